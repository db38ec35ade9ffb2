package gpu

import (
	"errors"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// Stream is a CUDA stream, and the tickets of the operations that groups have queued on it. It
// implements dist.Stream and dist.Queue.
//
// A ticket is done when an event recorded after it is. Events are recorded when a caller asks. So
// waiting for the newest operation is exact, but waiting for an older one without an event waits
// for later ones as well. Large operations get an event at once. So do messages, and the operation
// before a message: the end of a message depends on the peer's program. Config.Precise does so
// after every operation.
type Stream struct {
	dev    *cuda.Device
	cu     *cuda.Stream
	from   *Transport // the transport whose NewStream made it; nil for others
	closed atomic.Bool
	wedged atomic.Bool // closed while the device was stuck
	gone   atomic.Bool // Close has ended, and all tickets are done

	mu        sync.Mutex
	tickets   []ticket // ring; its length is a power of two
	last      uint64   // newest ticket
	done      uint64   // every ticket up to here is done
	unending  uint64   // newest ticket of an Unending engine
	marks     []mark   // of tickets that may be pending, in their order
	spare     []*cuda.Event
	further   int // events to make before the driver is asked again whether marks are done
	timers    []*cuda.Event
	failed    []failure
	forgot    uint64      // newest ticket whose failure is no longer in failed
	capturing atomic.Bool // changed under the lock
	joins     *joiner
}

// ticket is one operation, or a position in the stream without one if t is nil.
type ticket struct {
	op    dist.Op
	t     *Transport
	round uint64 // that all ranks must have announced; 0 for none
	empty arrival
	more  []arrival // of the other messages of a group call
	err   error
	timer [2]*cuda.Event // before and after a timed operation
}

// arrival is a received message without elements, or from another host. The device gets nothing of
// the one, and perhaps nothing wrong of the other. So the ticket waits for the sender's
// announcement.
type arrival struct {
	peer int
	k    uint64 // its number; 0 for none
}

// mark is an event recorded after a ticket.
type mark struct {
	ticket uint64
	event  *cuda.Event
}

type failure struct {
	ticket uint64
	err    error
}

const (
	firstTickets = 1024
	maxFailures  = 1024    // as on a host stream: older failures return the oldest kept
	sparseMarks  = 256     // tickets between events, at most
	eagerBytes   = 1 << 20 // from this size an event costs little compared with its operation
	sweptMarks   = 8       // marks per query of the driver, which takes 1.7 us
)

// NewStream returns a stream of the least priority, for computing.
//
// Owns: the caller closes it. Errors: those of the driver.
func NewStream(v *cuda.Device) (*Stream, error) {
	least, _, err := v.PriorityRange()
	if err != nil {
		return nil, err
	}
	return newStream(v, least)
}

func newStream(v *cuda.Device, priority int) (*Stream, error) {
	cu, err := v.NewStream(priority)
	if err != nil {
		return nil, fmt.Errorf("stream on %v: %w", v.Tensor(), err)
	}
	return streamOver(v, cu), nil
}

func streamOver(v *cuda.Device, cu *cuda.Stream) *Stream {
	return &Stream{dev: v, cu: cu, tickets: make([]ticket, firstTickets)}
}

// Device implements dist.Stream.
func (s *Stream) Device() tensor.Device { return s.dev.Tensor() }

// CUDA returns the underlying stream, to queue kernels and copies on: Mark makes a Work of them.
func (s *Stream) CUDA() *cuda.Stream { return s.cu }

// Handle returns the underlying CUstream, for other libraries. It is valid until Close.
func (s *Stream) Handle() uintptr { return s.cu.Handle() }

// Mark returns a Work that is done when all work queued on s so far is.
//
// Errors: ErrClosed; ErrInvalid while s is being captured; those of the driver.
func (s *Stream) Mark() (dist.Work, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return dist.Work{}, err
	}
	if s.capturing.Load() {
		return dist.Work{}, fmt.Errorf("stream on %v: %w: it is being captured", s.Device(), dist.ErrInvalid)
	}
	_, n := s.push()
	if err := s.mark(n); err != nil {
		s.last--
		return dist.Work{}, err
	}
	return dist.NewWork(s, n), nil
}

func (s *Stream) usable() error {
	if s.closed.Load() {
		return fmt.Errorf("stream on %v: %w", s.Device(), dist.ErrClosed)
	}
	return nil
}

// push takes the next ticket. The lock is held.
func (s *Stream) push() (*ticket, uint64) {
	if s.last-s.done == uint64(len(s.tickets)) {
		s.sweep()
	}
	if s.last-s.done == uint64(len(s.tickets)) {
		bigger := make([]ticket, 2*len(s.tickets))
		for n := s.done + 1; n <= s.last; n++ {
			bigger[n&uint64(len(bigger)-1)] = *s.at(n)
		}
		s.tickets = bigger
	}
	s.last++
	e := s.at(s.last)
	s.recycle(e)
	return e, s.last
}

// recycle empties a ticket for its next use.
func (s *Stream) recycle(e *ticket) {
	for _, ev := range e.timer {
		if ev != nil {
			s.timers = append(s.timers, ev)
		}
	}
	e.t, e.round, e.empty, e.more, e.err, e.timer = nil, 0, arrival{}, e.more[:0], nil, [2]*cuda.Event{}
}

func (s *Stream) at(n uint64) *ticket { return &s.tickets[n&uint64(len(s.tickets)-1)] }

// mark records an event after ticket n, the newest. The lock is held.
func (s *Stream) mark(n uint64) error {
	if k := len(s.marks); k > 0 && s.marks[k-1].ticket >= n {
		return nil
	}
	if len(s.spare) == 0 && s.further == 0 && len(s.marks) >= 2*sweptMarks {
		if done, err := s.marks[sweptMarks-1].event.Done(); err == nil && done {
			s.passed(sweptMarks)
		} else {
			s.further = sweptMarks
		}
	}
	var ev *cuda.Event
	if k := len(s.spare); k > 0 {
		ev, s.spare = s.spare[k-1], s.spare[:k-1]
	} else {
		s.further = max(s.further-1, 0)
		var err error
		if ev, err = s.dev.NewEvent(); err != nil {
			return err
		}
	}
	if err := s.cu.Record(ev); err != nil {
		s.spare = append(s.spare, ev)
		return err
	}
	s.marks = append(s.marks, mark{n, ev})
	return nil
}

// sweep removes the marks that are done: all before a done one are done. The lock is held.
func (s *Stream) sweep() {
	s.passed(sort.Search(len(s.marks), func(k int) bool {
		done, err := s.marks[k].event.Done()
		return err != nil || !done
	}))
}

// passed notes that the first k marks are done, and with them the tickets up to there that met.
func (s *Stream) passed(k int) {
	if k == 0 {
		return
	}
	reached := s.marks[k-1].ticket
	for s.done < reached && s.at(s.done+1).met() {
		s.finish(s.done + 1)
	}
	if s.done < reached { // keep the last event, for the tickets that are not done
		k--
	}
	for _, m := range s.marks[:k] {
		s.spare = append(s.spare, m.event)
	}
	s.marks = s.marks[:copy(s.marks, s.marks[k:])]
}

// finish notes that ticket n, the next after s.done, is done.
func (s *Stream) finish(n uint64) {
	s.done = n
	err := s.at(n).err
	if err == nil {
		return
	}
	if len(s.failed) == maxFailures {
		s.forgot = s.failed[1].ticket
		s.failed = append(s.failed[:1], s.failed[2:]...)
	}
	s.failed = append(s.failed, failure{n, err})
}

// met reports whether the other ranks have announced all that the ticket needs to be done.
func (e *ticket) met() bool {
	switch {
	case e.t == nil || e.err != nil:
		return true
	case e.round != 0 && !e.t.ledger.met(e.round):
		return false
	}
	for _, a := range e.more {
		if !e.t.ledger.paired(a.peer, false, a.k) {
			return false
		}
	}
	return e.empty.k == 0 || e.t.ledger.paired(e.empty.peer, false, e.empty.k)
}

// failure returns the error of a ticket that is done. The lock is held.
func (s *Stream) failure(n uint64) error {
	for _, f := range s.failed {
		if f.ticket == n {
			return f.err
		}
	}
	if n <= s.forgot && n > s.failed[0].ticket {
		return s.failed[0].err
	}
	return nil
}

// Synchronize implements dist.Stream.
//
// Errors: the error of a broken group whose operations block the device; those of the driver.
func (s *Stream) Synchronize() error {
	if s.closed.Load() {
		return nil // Close has waited
	}
	s.mu.Lock()
	newest := s.newest()
	s.mu.Unlock()
	if newest != 0 {
		// The Work reports its own error. After it the device may be stuck, with no room for
		// another event.
		if err := s.Await(newest); errors.Is(err, dist.ErrAborted) {
			return s.outlast(err)
		}
	}
	w, err := s.Mark()
	if err != nil {
		return err
	}
	return w.Wait()
}

// outlast waits until the device has no more work for s. An operation on s failed with cause, which
// outlast returns if that takes too long.
func (s *Stream) outlast(cause error) error {
	for began := time.Now(); !s.drained(); {
		waited := time.Since(began)
		if waited > patience {
			return fmt.Errorf("stream on %v: the device is stuck: %w", s.Device(), cause)
		}
		Rest(waited)
	}
	return nil
}

// newest returns the last ticket of a group that may be pending, or 0. The lock is held.
func (s *Stream) newest() uint64 {
	for n := s.last; n > s.done; n-- {
		if e := s.at(n); e.t != nil && e.err == nil {
			return n
		}
	}
	return 0
}

// Close implements dist.Stream. A stream that is stuck because its group is broken is left to the
// driver. A wrapped CUstream stays with its owner.
func (s *Stream) Close() error {
	if s.closed.Load() {
		return nil
	}
	err := s.Synchronize()
	if s.closed.Swap(true) {
		return nil
	}
	if errors.Is(err, dist.ErrAborted) {
		s.wedged.Store(true)
		err = nil // the Works have returned it
	}
	s.mu.Lock()
	joins := s.joins
	s.mu.Unlock()
	errs := []error{err}
	if joins != nil {
		errs = append(errs, joins.close(s.wedged.Load()))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.dev.Enter(); e != nil {
		return errors.Join(append(errs, e)...)
	}
	defer s.dev.Leave()
	for n := s.done + 1; n <= s.last; n++ { // for callers that still ask
		if e := s.at(n); e.err == nil && e.t != nil && e.t.ledger.broken() != nil {
			e.err = e.t.opError(&e.op, e.t.ledger.broken())
		}
		s.finish(n)
	}
	for i := range s.tickets {
		s.recycle(&s.tickets[i])
	}
	s.gone.Store(true)
	for _, m := range s.marks {
		s.spare = append(s.spare, m.event)
	}
	s.marks = nil
	for _, ev := range append(s.spare, s.timers...) {
		errs = append(errs, ev.Close())
	}
	s.spare, s.timers = nil, nil
	return errors.Join(append(errs, s.cu.Close())...)
}

// drained reports whether the device has no more work for s.
func (s *Stream) drained() bool {
	if s.closed.Load() {
		return !s.wedged.Load()
	}
	idle, err := s.cu.Idle()
	return idle || err != nil
}

// over reports whether Close has ended, and the device has no work of s.
func (s *Stream) over() bool { return s.gone.Load() && !s.wedged.Load() }

// release detaches the tickets of t, which closes and has waited for them.
func (s *Stream) release(t *Transport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := s.done + 1; n <= s.last; n++ {
		e := s.at(n)
		if e.t != t {
			continue
		}
		if err := t.ledger.broken(); err != nil && e.err == nil {
			e.err = t.opError(&e.op, err)
		}
		e.t = nil
	}
}

// patience is how long a wait lasts after its group broke, while the engines abort.
const patience = time.Second
