package gpu

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
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
		t.streams.room(gs)
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
	if t.streams.last != s || op.Kind == dist.KindBatch || op.Kind.PointToPoint() {
		if t.ledger.broken() != nil { // before events are recorded, which may have no room
			return nil, errBroken
		}
	}
	if t.streams.last != s {
		if err := t.streams.follow(s); err != nil {
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
		w, err := t.engines.choose.pick(op)
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

// anew queues op by its engine after the driver rejected the cached launch: the engine finds the
// error.
func (t *Transport) anew(e *ticket, op *dist.Op, s *Stream) error {
	w, err := t.engines.choose.pick(op)
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
	w, err := t.engines.choose.pick(op)
	if err != nil {
		return nil, err
	}
	if kept := t.engines.cachedLaunch(op, w, s); kept != nil {
		return kept, nil
	}
	return nil, t.enqueue(e, op, w, s)
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
		for _, h := range t.heaps.heaps {
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
	if t.engines.unending[w.engine] && !s.capturing.Load() {
		s.unending = s.last
	}
	if err := t.engines.queue(op, w, s.cu); err != nil {
		return t.fault(fmt.Errorf("%s: %w", t.engines.list[w.engine].Name(), err))
	}
	if timed {
		if err := s.clock(e, 1); err != nil {
			return t.fault(err)
		}
	}
	return nil
}

// batch queues a group call: its collectives first, one by one, because one may need the result of
// another; then its messages together.
func (t *Transport) batch(e *ticket, s *Stream) error {
	ops := e.op.Ops
	ways := make([]route, len(ops)) // dist allocates for a group call as well
	for i := range ops {
		var err error
		if ways[i], err = t.engines.choose.pick(&ops[i]); err != nil {
			return fmt.Errorf("%v in it: %w", ops[i].Kind, err)
		}
	}
	if err := errors.Join(t.ownMessages(ops), t.engines.batchers(ops, ways)); err != nil {
		return err
	}
	messages := 0
	for i := range ops {
		if ops[i].Kind.PointToPoint() {
			messages++
			continue
		}
		kept, err := t.collective(e, &ops[i], s)
		if kept != nil && kept.Launch(s.cu) != nil {
			err = t.anew(e, &ops[i], s)
		}
		if err != nil {
			return err
		}
	}
	if messages == 0 {
		return nil
	}
	if err := s.before(s.last - 1); err != nil {
		return t.fault(err)
	}
	for i := range ops {
		if ops[i].Kind.PointToPoint() && ops[i].Peer != t.member.Rank {
			if err := t.announceMessage(e, &ops[i]); err != nil {
				return err
			}
			if t.engines.unending[ways[i].engine] && !s.capturing.Load() {
				s.unending = s.last
			}
		}
	}
	if err := t.inDevice(func() error { return t.engines.exchange(ops, ways, s.cu) }); err != nil {
		return t.fault(err)
	}
	return nil
}
