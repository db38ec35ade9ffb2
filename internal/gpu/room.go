package gpu

import (
	"fmt"

	"github.com/symgrad/symgrad/internal/cuda"
)

// Unending is an Engine whose Abort ends nothing that is queued: operations of ranks whose peer has
// died stay on their devices to the end of the process.
//
// The driver takes some thousand launches of a stream, and lets who queues another wait until there
// is room: behind such an operation for good. So few are under way at any time: operations on a
// stream with one, of whatever engine, by Start, and calls of the library within them, which may be
// hundreds of chunks, by Pace. Both waits end with the group.
type Unending interface {
	// Pace gives the engine what it calls, with the stream, before each call of its library for a
	// collective operation; messages do without, since the ends of several wait for each other. An
	// error of that ends the operation. It is called once, before the engine is used.
	Pace(before func(s *cuda.Stream) error)
}

// mostBehind is how many operations may be under way on a stream with one that nobody can end: one
// to eight launches each, those of more that Pace waits for aside.
const mostBehind = 128

// crowded reports whether the next operation on s has to wait for room. The lock is held.
func (s *Stream) crowded() bool { return s.unending > s.done && s.last-s.done >= mostBehind }

// room returns when s is crowded no more, or the group is broken, so that its next operation is not
// queued. It breaks the group where the operation that s stands at is of another one, which is
// broken. The lock of s is not held.
func (t *Transport) room(s *Stream) {
	var other, failed error
	_ = t.ledger.poll(func() bool { // why this group is broken is its Work's to tell
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closed.Load() || s.capturing.Load() {
			return true
		}
		if failed = s.mark(s.last); failed != nil { // behind small ones there may be no event yet
			return true
		}
		s.sweep()
		if !s.crowded() {
			return true
		}
		if e := s.at(s.unending); e.t != t {
			switch {
			case e.err != nil:
				other = e.err
			case e.t != nil:
				other = e.t.ledger.broken()
			}
		}
		return other != nil
	}, t.ledger.whereabouts)
	switch {
	case failed != nil:
		_ = t.fault(failed)
	case other != nil:
		_ = t.fault(fmt.Errorf("stream on %v: the device does not get on: %w", s.Device(), other))
	}
}

// paceCalls is how many calls of a library there are between two events: up to twice as many are
// under way, two or three launches each.
const paceCalls = 128

// backpressure counts the calls of Unending engines.
type backpressure struct {
	calls int
	marks [2]*cuda.Event // behind every other paceCalls of them; nil before the first
}

// pace is what Unending engines call. The locks are held, and the device is entered.
//
// Errors: what broke the group, while it waited; ErrTimeout, which breaks it; those of the driver.
func (t *Transport) pace(s *cuda.Stream) error {
	p := &t.paced
	if p.calls++; p.calls%paceCalls != 0 || t.last != nil && t.last.capturing.Load() {
		return nil
	}
	k := p.calls / paceCalls % len(p.marks)
	if next := p.marks[1-k]; next != nil {
		var failed error
		if err := t.ledger.poll(func() bool {
			var done bool
			done, failed = next.Done()
			return done || failed != nil
		}, t.ledger.whereabouts); err != nil {
			return err
		}
		if failed != nil {
			return failed
		}
	}
	if p.marks[k] == nil {
		ev, err := t.member.Device.NewEvent()
		if err != nil {
			return err
		}
		p.marks[k] = ev
	}
	return s.Record(p.marks[k])
}

// close frees the events.
func (p *backpressure) close() error {
	for _, ev := range p.marks {
		if ev != nil {
			if err := ev.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}
