package hosts

import "sync/atomic"

// spans says which exchanges of a broken group still end. A rank completes an exchange after all
// ranks have begun it. If it then breaks the group, its reason may overtake the data of the
// exchange, which the others need in order to end the same call in the same way.
type spans struct {
	meets bool          // an exchange is running; only for the running operation
	met   atomic.Uint64 // last exchange that this rank has completed
	last  atomic.Uint64 // last exchange that a rank had completed when it broke the group
}

// reach notes that a rank broke the group after an exchange.
func (s *spans) reach(round uint64) {
	for {
		old := s.last.Load()
		if round <= old || s.last.CompareAndSwap(old, round) {
			return
		}
	}
}

// completes reports whether the running exchange ends although the group is broken.
func (t *Transport) completes() bool { return t.spans.meets && t.round <= t.spans.last.Load() }
