package gpu

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/cuda"
)

// batch queues a group call: its collectives first, one by one, because one may need the result of
// another; then its messages together.
func (t *Transport) batch(e *ticket, s *Stream) error {
	ops := e.op.Ops
	ways := make([]route, len(ops)) // dist allocates for a group call as well
	for i := range ops {
		var err error
		if ways[i], err = t.choose.pick(&ops[i]); err != nil {
			return fmt.Errorf("%v in it: %w", ops[i].Kind, err)
		}
	}
	if err := errors.Join(t.ownMessages(ops), t.batchers(ops, ways)); err != nil {
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
			if t.unending[ways[i].engine] && !s.capturing.Load() {
				s.unending = s.last
			}
		}
	}
	if err := t.inDevice(func() error { return t.exchange(ops, ways, s.cu) }); err != nil {
		return t.fault(err)
	}
	return nil
}

// batchers returns an error if several messages use an engine that takes one at a time.
func (t *Transport) batchers(ops []dist.Op, ways []route) error {
	messages := 0
	for i := range ops {
		if !ops[i].Kind.PointToPoint() || ops[i].Peer == t.member.Rank {
			continue
		}
		messages++
		e := t.engines[ways[i].engine]
		if _, ok := e.(Batcher); !ok && messages > 1 {
			return fmt.Errorf("%w: engine %s sends one message at a time, and a group call has several", dist.ErrUnsupported, e.Name())
		}
	}
	return nil
}

// ownMessages returns an error unless each message to this rank has its receive: the i-th send
// pairs with the i-th receive.
func (t *Transport) ownMessages(ops []dist.Op) error {
	for i := range ops {
		if ops[i].Peer != t.member.Rank || !ops[i].Kind.PointToPoint() {
			continue
		}
		o := t.otherEnd(ops, i)
		switch {
		case o == nil:
			return fmt.Errorf("%w: a %v with this rank, %d, has no counterpart in its group call", dist.ErrRank, ops[i].Kind, t.member.Rank)
		case o.Count != ops[i].Count || o.DType() != ops[i].DType():
			return fmt.Errorf("%w: a message of %v[%d] to this rank is received as %v[%d]", dist.ErrCount,
				ops[i].DType(), ops[i].Count, o.DType(), o.Count)
		}
	}
	return nil
}

// otherEnd returns the counterpart of message i of a group call, a message with this rank, or nil.
func (t *Transport) otherEnd(ops []dist.Op, i int) *dist.Op {
	before := 0
	for j := range i {
		if ops[j].Kind == ops[i].Kind && ops[j].Peer == t.member.Rank {
			before++
		}
	}
	for j := range ops {
		if ops[j].Kind.PointToPoint() && ops[j].Kind != ops[i].Kind && ops[j].Peer == t.member.Rank {
			if before == 0 {
				return &ops[j]
			}
			before--
		}
	}
	return nil
}

// exchange queues the messages of a group call: an engine's between its BeginBatch and EndBatch,
// those with this rank as copies.
func (t *Transport) exchange(ops []dist.Op, ways []route, s *cuda.Stream) error {
	for i := range ops {
		if ops[i].Kind == dist.KindSend && ops[i].Peer == t.member.Rank && ops[i].Count > 0 {
			to := t.otherEnd(ops, i)
			if err := s.Copy(address(to.Dst), address(ops[i].Src), ops[i].Src.Bytes()); err != nil {
				return err
			}
		}
	}
	for k, e := range t.engines {
		if err := t.exchangeBy(k, e, ops, ways, s); err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	return nil
}

func (t *Transport) exchangeBy(k int, e Engine, ops []dist.Op, ways []route, s *cuda.Stream) error {
	var open Batcher
	var errs []error
	for i := range ops {
		op := &ops[i]
		if int(ways[i].engine) != k || !op.Kind.PointToPoint() || op.Peer == t.member.Rank || op.Count == 0 {
			continue
		}
		if b, ok := e.(Batcher); ok && open == nil {
			if err := b.BeginBatch(s); err != nil {
				return err
			}
			open = b
		}
		if err := t.queue(op, ways[i], s); err != nil {
			errs = append(errs, err)
			break
		}
	}
	if open != nil {
		errs = append(errs, open.EndBatch(s))
	}
	return errors.Join(errs...)
}
