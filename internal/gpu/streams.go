package gpu

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/symgrad/symgrad/dist"
)

// streamSet is the streams that have run operations of a group, and their order.
type streamSet struct {
	*core
	*tools
	last    *Stream // that has run the newest operation
	paced   backpressure
	doubted sync.Once
	used    sync.Mutex // guards list
	list    []*Stream  // that have run any operation
}

// follow makes s wait for the stream that ran the group's last operation. The locks are held.
func (q *streamSet) follow(s *Stream) error {
	if q.last != nil {
		if s.capturing.Load() {
			return fmt.Errorf("%w: the captured stream did not run the group's last operation: run one on it first, and wait",
				dist.ErrInvalid)
		}
		if q.last.capturing.Load() { // waiting for it would add s to the capture, without a way out
			return fmt.Errorf("%w: the stream of the group's last operation is being captured: end the capture before you use another stream",
				dist.ErrInvalid)
		}
		if err := q.inDevice(func() error { return s.after(q.last, q.order) }); err != nil {
			return q.fault(err)
		}
	}
	q.last = s
	q.used.Lock()
	defer q.used.Unlock()
	if slices.Contains(q.list, s) {
		return nil
	}
	// A closed stream keeps its tickets, and they the buffers of their operations. A program may
	// make many.
	q.list = append(slices.DeleteFunc(q.list, (*Stream).over), s)
	return nil
}

// stuckWork reports to the device that operations of this broken group may never end: see
// cuda.Device.Doubt. It runs once, since a broken group queues nothing more.
func (q *streamSet) stuckWork() {
	q.doubted.Do(func() { q.member.Device.Doubt(q.drained) })
}

// stalled reports whether the device has operations of a broken group, this or another, that do not
// end. Freeing memory would then never return, so the memory is left until the process ends.
func (q *streamSet) stalled() bool {
	if q.ledger.broken() != nil {
		q.stuckWork()
	}
	return q.member.Device.Stuck()
}

// drained reports whether the device has done the work queued on the streams of this group.
func (q *streamSet) drained() bool {
	q.used.Lock()
	streams := slices.Clone(q.list)
	q.used.Unlock()
	return !slices.ContainsFunc(streams, func(s *Stream) bool { return !s.drained() })
}

// idle waits until the device has done all its work, on any stream. The driver and the libraries do
// so in calls that allocate memory, make communicators or load kernels. Their waits would never end
// while a kernel waits for a dead peer.
//
// Errors: ErrInvalid while a stream of the group is captured, since the driver would end the
// capture; the error of the broken group; ErrTimeout after the step timeout, which breaks it.
func (q *streamSet) idle() error {
	q.used.Lock()
	captured := slices.ContainsFunc(q.list, func(s *Stream) bool { return s.capturing.Load() })
	q.used.Unlock()
	if captured {
		return fmt.Errorf("%w: a stream of the group is being captured: make heaps and parts before the capture, or after", dist.ErrInvalid)
	}
	all, err := q.member.Device.MarkAll()
	if all == nil { // an old driver
		return err
	}
	defer all.Close()
	var failed error
	err = q.ledger.poll(func() bool {
		var done bool
		done, failed = all.Done()
		return done || failed != nil
	}, func() string { return "earlier work on " + q.on.String() + " has not ended" })
	return errors.Join(failed, err)
}

// room waits until s is no longer crowded or the group is broken. It breaks the group if s is stuck
// at an operation of another, broken group. The lock of s is not held.
func (q *streamSet) room(s *Stream) {
	var other, failed error
	_ = q.ledger.poll(func() bool { // the Work returns the error
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closed.Load() || s.capturing.Load() {
			return true
		}
		if failed = s.mark(s.last); failed != nil { // small operations may have no event yet
			return true
		}
		s.sweep()
		if !s.crowded() {
			return true
		}
		if e := s.at(s.unending); e.t == nil || &e.t.streams != q {
			switch {
			case e.err != nil:
				other = e.err
			case e.t != nil:
				other = e.t.ledger.broken()
			}
		}
		return other != nil
	}, q.ledger.whereabouts)
	switch {
	case failed != nil:
		_ = q.fault(failed)
	case other != nil:
		_ = q.fault(fmt.Errorf("stream on %v: the device is stuck: %w", s.Device(), other))
	}
}
