package shm

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
)

// collective runs one lockstep operation. Its route follows from its signature, which is equal on
// all ranks, and from the announcements of all ranks.
func (t *Transport) collective(op *dist.Op) error {
	if op.Memo == 0 {
		op.Memo = t.plan(op)
	}
	if op.Memo&planSmall != 0 {
		return t.runSmall(op)
	}
	bytes := int(op.Memo >> planBytes)
	if err := t.direct.declare(op, bytes); err != nil {
		return err
	}
	if err := t.open(op.Hash()); err != nil {
		return err
	}
	if !t.direct.fits(op, t.rank) { // then the route is not direct on any rank, and the data can be ready early
		if err := t.staged.putFirst(op); err != nil {
			return err
		}
	}
	t.direct.sides[t.rank].put(t.entry())
	t.announce(op)
	if op.Kind == dist.KindBroadcast {
		return t.broadcast(op, bytes)
	}
	if err := t.meetAll(); err != nil {
		return err
	}
	if t.direct.allFit(op) {
		return t.direct.run(op, bytes)
	}
	return t.staged.run(op)
}

// broadcast runs a large broadcast. The other ranks wait only for the root. The root waits for them
// only if they read its memory.
func (t *Transport) broadcast(op *dist.Op, bytes int) error {
	staged := t.direct.sides[t.rank].src.heap == 0 // on the root, which decides, this is the announced value
	met := t.meetEach
	switch {
	case t.eager && t.rank != op.Root:
		met = func() error {
			if err := t.meet(op.Root); err != nil {
				return err
			}
			return t.same()
		}
	case t.eager && staged:
		met = func() error { return nil }
	}
	if err := met(); err != nil {
		return err
	}
	if t.direct.readable(op.Root) {
		return t.direct.broadcast(op, bytes)
	}
	return t.staged.run(op)
}

// batch runs the members of a group call: first the collectives in order, then all sends and
// receives together.
func (t *Transport) batch(op *dist.Op) error {
	for i := range op.Ops {
		if op.Ops[i].Kind.PointToPoint() {
			continue
		}
		if err := t.collective(&op.Ops[i]); err != nil {
			what := op.Ops[i].Kind.String()
			if name := op.Ops[i].Name; name != "" {
				what += fmt.Sprintf(" %q", name)
			}
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return t.messages.exchange(op.Ops)
}
