package gpu

import "github.com/symgrad/symgrad/internal/gpu/cuda"

// Unending is an Engine whose Abort cannot end queued work. Operations whose peer has died stay on
// the device until the process ends.
//
// The driver queues some thousand launches of a stream. Then a call that queues more waits for
// room, and never returns if such an operation blocks the stream. So few are under way at any time.
// Start limits the operations on a stream with one, of any engine. Pace limits the library's calls
// within an operation, which may have hundreds of chunks. Both waits end with the group.
type Unending interface {
	// Pace sets a function that the engine calls, with the stream, before each call of its library
	// for a collective operation. Messages do not call it, since several of them wait for each
	// other. Its error ends the operation. Pace is called once, before the engine is used.
	Pace(before func(s *cuda.Stream) error)
}

// mostBehind is the number of operations that may be under way on a stream with one that cannot be
// ended. Each has one to eight launches; larger ones are limited by Pace.
const mostBehind = 128

// crowded reports whether the next operation on s must wait for room. The lock is held.
func (s *Stream) crowded() bool { return s.unending > s.done && s.last-s.done >= mostBehind }

// paceCalls is the number of library calls between two events. Up to twice as many are under way,
// of two or three launches each.
const paceCalls = 128

// backpressure counts the library calls of Unending engines.
type backpressure struct {
	calls int
	marks [2]*cuda.Event // after every other paceCalls calls; nil before the first
}

// pace is the function for Unending.Pace. The locks are held, and the device is entered.
//
// Errors: the error of a group that breaks during the wait; ErrTimeout, which breaks it; those of
// the driver.
func (q *streamSet) pace(s *cuda.Stream) error {
	p := &q.paced
	if p.calls++; p.calls%paceCalls != 0 || q.last != nil && q.last.capturing.Load() {
		return nil
	}
	k := p.calls / paceCalls % len(p.marks)
	if next := p.marks[1-k]; next != nil {
		var failed error
		if err := q.ledger.poll(func() bool {
			var done bool
			done, failed = next.Done()
			return done || failed != nil
		}, q.ledger.whereabouts); err != nil {
			return err
		}
		if failed != nil {
			return failed
		}
	}
	if p.marks[k] == nil {
		ev, err := q.member.Device.NewEvent()
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
