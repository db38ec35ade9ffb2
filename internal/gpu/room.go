package gpu

import "fmt"

// Unending is an Engine whose Abort ends nothing that is queued: operations of ranks whose peer has died stay on their devices to the end
// of the process.
type Unending interface {
	// Unending does nothing: an engine that has it is one.
	Unending()
}

// mostBehind is how many operations may be under way on a stream with one that nobody can end. The driver takes some thousand launches of
// a stream, and lets who queues another wait until there is room: for good, behind an operation whose peer has died. An operation is
// one to eight launches.
const mostBehind = 128

// crowded reports whether the next operation on s has to wait for room. The locks are held.
func (s *Stream) crowded() bool { return s.unending > s.done && s.last-s.done >= mostBehind }

// room returns when s is crowded no more, or the group is broken, and its next operation is not queued.
//
// Errors: why the group of the operation that s stands at is broken, if it is another.
func (t *Transport) room(s *Stream) error {
	var other error
	_ = t.pact.poll(func() bool { // why this group is broken is its Work's to tell
		s.sweep()
		if e := s.at(s.unending); s.crowded() && e.t != nil && e.t != t {
			other = e.t.pact.broken()
		}
		return other != nil || !s.crowded()
	}, t.pact.whereabouts)
	if other != nil {
		return fmt.Errorf("stream on %v: the device does not get on: %w", s.Device(), other)
	}
	return nil
}
