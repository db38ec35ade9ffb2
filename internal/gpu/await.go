package gpu

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// A wait polls the driver: it spins, then yields, then sleeps for longer and longer. The driver's
// own waits cannot be ended when a peer dies, and some kernels never end.
const (
	spinFor  = 40 * time.Microsecond
	yieldFor = 2 * time.Millisecond
	napLeast = 20 * time.Microsecond
	napMost  = 500 * time.Microsecond
)

// Rest pauses a wait that has lasted for waited. It sleeps by the system call: on an idle machine a
// timer of the runtime is late by a millisecond, the time of some ten steps of a small model.
func Rest(waited time.Duration) {
	switch {
	case waited < spinFor:
	case waited < yieldFor:
		runtime.Gosched()
	default:
		nap(min(napLeast+waited/16, napMost))
	}
}

// Await implements dist.Queue.
//
// Errors: the operation's, an *dist.OpError; ErrTimeout after the group's step timeout, which
// breaks the group.
func (s *Stream) Await(n uint64) error {
	if done, err := s.state(n, 0); done {
		return err
	}
	began := time.Now()
	for {
		waited := time.Since(began)
		if done, err := s.state(n, waited); done {
			return err
		}
		Rest(waited)
	}
}

// Finished implements dist.Queue.
func (s *Stream) Finished(n uint64) bool {
	done, _ := s.state(n, 0)
	return done
}

// state reports whether ticket n is done, and its error. waited is the time that the caller has
// waited for it.
func (s *Stream) state(n uint64, waited time.Duration) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n <= s.done {
		return true, s.failure(n)
	}
	e := s.at(n)
	if e.err != nil {
		return true, e.err
	}
	var broken error
	if e.t != nil {
		broken = e.t.ledger.broken()
	}
	past, err := s.reached(n, broken != nil)
	switch {
	case err != nil:
		return true, s.fault(e, err)
	case past && (n <= s.done || e.met()):
		return true, e.err
	case broken != nil:
		e.err = e.t.opError(&e.op, broken)
		return true, e.err
	case e.t == nil:
		return s.stuck(n, waited)
	case waited > e.t.limit:
		text := fmt.Sprintf("%v: after %v rank %d still waits: %s", dist.ErrTimeout, e.t.limit, e.t.member.Rank, e.late())
		e.err = e.t.opError(&e.op, e.t.ledger.fail(endTimeout, e.t.member.Rank, text))
		return true, e.err
	}
	return false, nil
}

// late describes the ranks that the operation waits for.
func (e *ticket) late() string {
	if e.op.Kind.PointToPoint() {
		return fmt.Sprintf("%v with rank %d", e.op.Kind, e.op.Peer)
	}
	return e.t.ledger.missing(e.round)
}

// reached reports whether the device has passed ticket n. If calm is set, it records no event where
// that might block on a stuck device. The lock is held.
func (s *Stream) reached(n uint64, calm bool) (bool, error) {
	if s.closed.Load() {
		return true, nil
	}
	k := 0
	for k < len(s.marks) && s.marks[k].ticket < n {
		k++
	}
	if k == len(s.marks) {
		if s.capturing.Load() || calm && s.last-s.done > sparseMarks {
			return false, nil
		}
		if err := s.mark(s.last); err != nil {
			return false, err
		}
		k = len(s.marks) - 1
	}
	ok, err := s.marks[k].event.Done()
	if err != nil || !ok {
		return false, err
	}
	s.passed(k + 1)
	return true, nil
}

// fault returns the error of e after the driver's error err: this process has lost the device.
func (s *Stream) fault(e *ticket, err error) error {
	err = fmt.Errorf("%v: %w", s.Device(), err)
	if e.t != nil {
		e.err = e.t.opError(&e.op, errors.Join(e.t.ledger.fail(endFault, e.t.member.Rank, err.Error()), err))
		return e.err
	}
	e.err = fmt.Errorf("%w: %w", dist.ErrAborted, err)
	return e.err
}

// stuck returns the state of ticket n, which has no operation and which the device has not reached.
// It never will if an operation of a broken group comes before it.
func (s *Stream) stuck(n uint64, waited time.Duration) (bool, error) {
	if waited < patience {
		return false, nil
	}
	for m := s.done + 1; m < n; m++ {
		e := s.at(m)
		if e.t == nil {
			continue
		}
		if err := e.t.ledger.broken(); err != nil {
			return true, fmt.Errorf("stream on %v: the device is stuck at %v #%d: %w", s.Device(), e.op.Kind, e.op.Seq, err)
		}
	}
	return false, nil
}
