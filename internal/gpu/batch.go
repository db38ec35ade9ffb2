package gpu

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// batchers returns an error if several messages use an engine that takes one at a time.
func (x *engineSet) batchers(ops []dist.Op, ways []route) error {
	messages := 0
	for i := range ops {
		if !ops[i].Kind.PointToPoint() || ops[i].Peer == x.member.Rank {
			continue
		}
		messages++
		e := x.list[ways[i].engine]
		if _, ok := e.(Batcher); !ok && messages > 1 {
			return fmt.Errorf("%w: engine %s sends one message at a time, and a group call has several", dist.ErrUnsupported, e.Name())
		}
	}
	return nil
}

// ownMessages returns an error unless each message to this rank has its receive: the i-th send
// pairs with the i-th receive.
func (c *core) ownMessages(ops []dist.Op) error {
	for i := range ops {
		if ops[i].Peer != c.member.Rank || !ops[i].Kind.PointToPoint() {
			continue
		}
		o := c.otherEnd(ops, i)
		switch {
		case o == nil:
			return fmt.Errorf("%w: a %v with this rank, %d, has no counterpart in its group call", dist.ErrRank, ops[i].Kind, c.member.Rank)
		case o.Count != ops[i].Count || o.DType() != ops[i].DType():
			return fmt.Errorf("%w: a message of %v[%d] to this rank is received as %v[%d]", dist.ErrCount,
				ops[i].DType(), ops[i].Count, o.DType(), o.Count)
		}
	}
	return nil
}

// otherEnd returns the counterpart of message i of a group call, a message with this rank, or nil.
func (c *core) otherEnd(ops []dist.Op, i int) *dist.Op {
	before := 0
	for j := range i {
		if ops[j].Kind == ops[i].Kind && ops[j].Peer == c.member.Rank {
			before++
		}
	}
	for j := range ops {
		if ops[j].Kind.PointToPoint() && ops[j].Kind != ops[i].Kind && ops[j].Peer == c.member.Rank {
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
func (x *engineSet) exchange(ops []dist.Op, ways []route, s *cuda.Stream) error {
	for i := range ops {
		if ops[i].Kind == dist.KindSend && ops[i].Peer == x.member.Rank && ops[i].Count > 0 {
			to := x.otherEnd(ops, i)
			if err := s.Copy(address(to.Dst), address(ops[i].Src), ops[i].Src.Bytes()); err != nil {
				return err
			}
		}
	}
	for k, e := range x.list {
		if err := x.exchangeBy(k, e, ops, ways, s); err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	return nil
}

func (x *engineSet) exchangeBy(k int, e Engine, ops []dist.Op, ways []route, s *cuda.Stream) error {
	var open Batcher
	var errs []error
	for i := range ops {
		op := &ops[i]
		if int(ways[i].engine) != k || !op.Kind.PointToPoint() || op.Peer == x.member.Rank || op.Count == 0 {
			continue
		}
		if b, ok := e.(Batcher); ok && open == nil {
			if err := b.BeginBatch(s); err != nil {
				return err
			}
			open = b
		}
		if err := x.queue(op, ways[i], s); err != nil {
			errs = append(errs, err)
			break
		}
	}
	if open != nil {
		errs = append(errs, open.EndBatch(s))
	}
	return errors.Join(errs...)
}
