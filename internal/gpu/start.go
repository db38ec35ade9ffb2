package gpu

import (
	"errors"
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// errBroken is returned inside Start by an operation that does not run because the group is broken.
// Its Work returns the reason.
var errBroken = errors.New("broken")

// Start implements dist.Transport. s is a Stream of the group's device. Events order the operations
// of different streams. While s is captured the Work is done at once, and the code that replays the
// graph keeps the order.
func (t *Transport) Start(op dist.Op, s dist.Stream) (dist.Work, error) {
	gs, ok := s.(*Stream)
	if !ok || gs.dev != t.member.Device {
		return dist.Work{}, fmt.Errorf("%w: the group runs on streams of %v, not on one of %v", dist.ErrDevice,
			t.member.Device.Tensor(), s.Device())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed.Load() {
		return dist.Work{}, dist.ErrClosed
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.crowded() && !gs.capturing.Load() {
		gs.mu.Unlock() // so that other goroutines can query Works
		t.room(gs)
		gs.mu.Lock()
	}
	if err := gs.usable(); err != nil {
		return dist.Work{}, err
	}
	if gs.capturing.Load() {
		e := &t.scratch
		e.op, e.t = op, t
		_, err := t.run(e, gs) // returns no launch here: see cachedLaunch
		return dist.Work{}, t.captured(e, err)
	}
	e, n := gs.push()
	e.op, e.t = op, t
	kept, err := t.run(e, gs)
	if kept != nil && kept.Launch(gs.cu) != nil { // here, so that the call stack is short
		err = t.anew(e, &e.op, gs)
	}
	if err != nil {
		if !errors.Is(err, errBroken) {
			gs.recycle(e)
			gs.last--
			return dist.Work{}, err
		}
		e.err = t.opError(&e.op, t.ledger.broken())
	}
	if n%sparseMarks == 0 || e.err == nil && t.wantsMark(e, n, gs) { // a stuck device has little room for events
		if err := gs.mark(n); err != nil {
			_ = t.fault(err)
			e.err = t.opError(&e.op, t.ledger.broken())
		}
	}
	return dist.NewWork(gs, n), nil
}

// wantsMark reports whether an event is recorded at once after e, which is ticket n of s.
func (t *Transport) wantsMark(e *ticket, n uint64, s *Stream) bool {
	return t.cfg.Precise || e.op.Kind == dist.KindBatch || e.op.Kind.PointToPoint() || e.op.Bytes() >= eagerBytes ||
		n%(mostBehind/4) == 0 && s.unending > s.done
}

// captured returns the result of Start for a captured operation.
func (t *Transport) captured(e *ticket, err error) error {
	if errors.Is(err, errBroken) {
		err = t.ledger.broken()
	}
	*e = ticket{} // drop the references
	return err
}

// run queues e's operation on s, or returns its cached launch for the caller. The locks are held.
func (t *Transport) run(e *ticket, s *Stream) (*cuda.Kept, error) {
	op := &e.op
	if t.last != s || op.Kind == dist.KindBatch || op.Kind.PointToPoint() {
		if t.ledger.broken() != nil { // before events are recorded, which may have no room
			return nil, errBroken
		}
	}
	if t.last != s {
		if err := t.follow(s); err != nil {
			return nil, err
		}
	}
	switch {
	case op.Kind == dist.KindBatch:
		return nil, t.batch(e, s)
	case op.Kind.PointToPoint():
		if err := s.before(s.last - 1); err != nil {
			return nil, t.fault(err)
		}
		w, err := t.choose.pick(op)
		if err != nil {
			return nil, err
		}
		if err := t.announceMessage(e, op); err != nil {
			return nil, err
		}
		return nil, t.enqueue(e, op, w, s)
	}
	return t.collective(e, op, s)
}

// before records an event after ticket n unless s is captured: the next operation may last until a
// peer acts.
func (s *Stream) before(n uint64) error {
	if s.capturing.Load() || n <= s.done {
		return nil
	}
	return s.mark(n)
}

// follow makes s wait for the stream that ran the group's last operation. The locks are held.
func (t *Transport) follow(s *Stream) error {
	if t.last != nil {
		if s.capturing.Load() {
			return fmt.Errorf("%w: the captured stream did not run the group's last operation: run one on it first, and wait",
				dist.ErrInvalid)
		}
		if t.last.capturing.Load() { // waiting for it would add s to the capture, without a way out
			return fmt.Errorf("%w: the stream of the group's last operation is being captured: end the capture before you use another stream",
				dist.ErrInvalid)
		}
		if err := t.inDevice(func() error { return s.after(t.last, t.order) }); err != nil {
			return t.fault(err)
		}
	}
	t.last = s
	t.used.Lock()
	defer t.used.Unlock()
	if slices.Contains(t.streams, s) {
		return nil
	}
	// A closed stream keeps its tickets, and they the buffers of their operations. A program may
	// make many.
	t.streams = append(slices.DeleteFunc(t.streams, (*Stream).over), s)
	return nil
}

func (t *Transport) inDevice(f func() error) error {
	if err := t.member.Device.Enter(); err != nil {
		return err
	}
	defer t.member.Device.Leave()
	return f()
}

// fault breaks the group after an error of the driver or an engine on this rank: the others wait
// for this rank.
func (t *Transport) fault(err error) error {
	_ = t.ledger.fail(endFault, t.member.Rank, err.Error())
	return errBroken
}

// cachedLaunch returns the engine's cached launch of op, or nil. Barriers, composed and timed
// operations and captured streams have none. A barrier first waits for the heaps, timers need the
// context, and a capture records an operation's present launch.
func (t *Transport) cachedLaunch(op *dist.Op, w route, s *Stream) *cuda.Kept {
	k := t.keepers[w.engine]
	if k == nil || w.how != plain || op.Kind == dist.KindBarrier || op.Timed || s.capturing.Load() {
		return nil
	}
	return k.Kept(op, s.cu)
}

// anew queues op by its engine after the driver rejected the cached launch: the engine finds the
// error.
func (t *Transport) anew(e *ticket, op *dist.Op, s *Stream) error {
	w, err := t.choose.pick(op)
	if err != nil {
		return err
	}
	return t.enqueue(e, op, w, s)
}

// collective announces op and queues it, or returns its cached launch for the caller.
func (t *Transport) collective(e *ticket, op *dist.Op, s *Stream) (*cuda.Kept, error) {
	c := opEntry{sig: op.Signature(), beside: op.Overlap, along: op.Along}
	var misplaced error
	if op.Symmetric {
		misplaced = t.places(op, &c)
	}
	announced := t.ledger.announce(&c)
	if misplaced != nil { // return the caller's own mistake, even if the group is broken
		_ = t.ledger.fail(endMismatch, t.member.Rank, fmt.Sprintf("%v: rank %d promised a symmetric %v: %v", dist.ErrMismatch,
			t.member.Rank, op.Kind, misplaced))
		return nil, misplaced
	}
	if announced != nil {
		return nil, errBroken
	}
	if t.ledger.compare {
		e.round = t.ledger.round
	}
	w, err := t.choose.pick(op)
	if err != nil {
		return nil, err
	}
	if kept := t.cachedLaunch(op, w, s); kept != nil {
		return kept, nil
	}
	return nil, t.enqueue(e, op, w, s)
}

// places records the locations of op's buffers in the group's heaps. Operations in place have one
// location for both.
//
// Errors: ErrInvalid for a buffer in no heap.
func (t *Transport) places(op *dist.Op, c *opEntry) error {
	c.symmetric = true
	c.src, c.dst = t.place(op.Src), t.place(op.Dst)
	if !op.Src.IsZero() && !op.Dst.IsZero() && tensor.Overlap(op.Src, op.Dst) { // in place, as dist has checked
		if op.Src.Len() < op.Dst.Len() {
			c.src = c.dst
		} else {
			c.dst = c.src
		}
	}
	for _, side := range [...]struct {
		name  string
		place uint64
	}{{"source", c.src}, {"destination", c.dst}} {
		if side.place == placePrivate {
			return fmt.Errorf("%w: the %s is in no symmetric heap of the group; a heap of the parent counts if it was made before Split",
				dist.ErrInvalid, side.name)
		}
	}
	return nil
}

// place returns the heap and offset of b: 0 for no buffer, placePrivate for a buffer in no heap.
func (t *Transport) place(b tensor.Buffer) uint64 {
	if b.Len() == 0 {
		return 0
	}
	number, off := t.member.Memory.locate(address(b), b.Bytes())
	if number == 0 {
		return placePrivate
	}
	return number<<placeSlabBits | uint64(off)
}

// announceMessage posts a send or receive. Messages without elements are not queued. Such a receive
// is done when its send was announced and compared. So is one from another host, whose data may
// come before the note about it.
func (t *Transport) announceMessage(e *ticket, op *dist.Op) error {
	out := op.Kind == dist.KindSend
	k, err := t.ledger.post(op.Peer, out, op.DType(), op.Count)
	if err != nil {
		return errBroken
	}
	if !out && t.ledger.compare && (op.Count == 0 || !t.member.Near(op.Peer)) {
		if e.empty.k != 0 {
			e.more = append(e.more, e.empty)
		}
		e.empty = arrival{op.Peer, k}
	}
	return nil
}

// enqueue passes op to the engine of w.
func (t *Transport) enqueue(e *ticket, op *dist.Op, w route, s *Stream) error {
	if op.Count == 0 && op.Kind != dist.KindBarrier && op.Kind != dist.KindSync {
		return nil
	}
	timed := op.Timed && !s.capturing.Load()
	v := t.member.Device
	if err := v.Enter(); err != nil {
		return t.fault(err)
	}
	defer v.Leave()
	if op.Kind == dist.KindBarrier {
		for _, h := range t.heaps {
			if err := h.joinPending(s.cu, s.capturing.Load()); err != nil {
				return t.fault(err)
			}
		}
	}
	if timed {
		if err := s.clock(e, 0); err != nil {
			return t.fault(err)
		}
	}
	if t.unending[w.engine] && !s.capturing.Load() {
		s.unending = s.last
	}
	if err := t.queue(op, w, s.cu); err != nil {
		return t.fault(fmt.Errorf("%s: %w", t.engines[w.engine].Name(), err))
	}
	if timed {
		if err := s.clock(e, 1); err != nil {
			return t.fault(err)
		}
	}
	return nil
}
