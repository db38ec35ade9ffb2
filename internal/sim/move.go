package sim

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"github.com/symgrad/symgrad/tensor"
)

// move does a collective for all ranks, with the Ops in the ends. In place is safe, because no step
// writes data that a later step reads. A destination overlaps only its own source, in the block
// that no other rank reads later.
//
// Errors: the Ops do not fit together, which is possible only in an unchecked world.
func (b *board) move(kind dist.Kind) error {
	for r := range b.ends {
		if b.ends[r].deposit.op == nil {
			return fmt.Errorf("%w: rank %d is in %v", dist.ErrMismatch, r, b.ends[r].deposit.sig.Kind)
		}
	}
	count, root := b.op(0).Count, b.op(0).Root
	if count == 0 {
		return nil
	}
	switch kind {
	case dist.KindAllReduce:
		return b.allReduce(count)
	case dist.KindReduce:
		return b.reduce(root, 0, count)
	case dist.KindReduceScatter:
		return b.each(func(r int) error { return b.reduce(r, r*count, count) })
	case dist.KindBroadcast:
		return b.each(func(r int) error { return copyBlock(b.op(r), 0, b.op(root), 0, count) })
	case dist.KindScatter:
		return b.each(func(r int) error { return copyBlock(b.op(r), 0, b.op(root), r*count, count) })
	case dist.KindGather:
		return b.each(func(r int) error { return copyBlock(b.op(root), r*count, b.op(r), 0, count) })
	case dist.KindAllGather:
		return b.each(func(to int) error {
			return b.each(func(r int) error { return copyBlock(b.op(to), r*count, b.op(r), 0, count) })
		})
	case dist.KindAllToAll:
		return b.each(func(to int) error {
			return b.each(func(r int) error { return copyBlock(b.op(to), r*count, b.op(r), to*count, count) })
		})
	}
	return nil // Barrier and Sync
}

func (b *board) op(rank int) *dist.Op { return b.ends[rank].deposit.op }

// each calls f for every rank, up to the first error.
func (b *board) each(f func(rank int) error) error {
	for r := range b.ends {
		if err := f(r); err != nil {
			return err
		}
	}
	return nil
}

// allReduce combines into rank 0's destination and copies that to the others.
func (b *board) allReduce(count int) error {
	if err := b.reduce(0, 0, count); err != nil {
		return err
	}
	result := *b.op(0)
	result.Src = result.Dst
	for r := 1; r < len(b.ends); r++ {
		if err := copyBlock(b.op(r), 0, &result, 0, count); err != nil {
			return err
		}
	}
	return nil
}

// reduce combines count elements at element from of all sources into the destination of rank to.
func (b *board) reduce(to, from, count int) error {
	for r := range b.ends {
		src, err := b.op(r).Src.Slice(from, from+count)
		if err != nil {
			return fmt.Errorf("source of rank %d: %w", r, err)
		}
		b.srcs[r], b.scalars[r] = src, b.ends[r].deposit.scalar
	}
	dst, err := b.op(to).Dst.Slice(0, count)
	if err != nil {
		return fmt.Errorf("destination of rank %d: %w", to, err)
	}
	err = reduce.Into(dst, b.srcs, b.op(0).Red.Kind, b.scalars)
	clear(b.srcs) // drop the references
	return err
}

// copyBlock copies count elements at element from of one Op's source to element at of another's
// destination.
func copyBlock(to *dist.Op, at int, of *dist.Op, from, count int) error {
	dst, err := to.Dst.Slice(at, at+count)
	if err != nil {
		return fmt.Errorf("destination: %w", err)
	}
	src, err := of.Src.Slice(from, from+count)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	if src.DType() != dst.DType() {
		return fmt.Errorf("%w: source is %v, destination %v", dist.ErrDType, src.DType(), dst.DType())
	}
	if !tensor.Same(src, dst) { // in place: a message may be reading it
		copy(dst.Raw(), src.Raw())
	}
	return nil
}

// post is one send or receive on the board.
type post struct {
	op   *dist.Op
	done bool
}

// exchange posts sends and receives at once and waits until all have met their counterparts. A rank
// has one exchange at a time, so the first pending posts of a pair of ranks match.
func (b *board) exchange(rank int, now activity, ops ...*dist.Op) error {
	if err := b.begin(rank, now); err != nil {
		return err
	}
	e := &b.ends[rank]
	e.posts, e.left = e.posts[:0], len(ops)
	for _, op := range ops {
		e.posts = append(e.posts, post{op: op})
	}
	for i := range e.posts {
		if err := b.match(rank, i); err != nil {
			b.fail(err)
			return err
		}
	}
	if e.left > 0 {
		return b.await(rank, forMoves)
	}
	return nil
}

// match completes post i of rank if its counterpart is on the board.
func (b *board) match(rank, i int) error {
	mine := &b.ends[rank].posts[i]
	if mine.done || b.oldest(rank, mine.op.Kind, mine.op.Peer) != mine {
		return nil
	}
	other := dist.KindSend
	if mine.op.Kind == dist.KindSend {
		other = dist.KindRecv
	}
	theirs := b.oldest(mine.op.Peer, other, rank)
	if theirs == nil {
		return nil
	}
	send, recv, from, to := mine, theirs, rank, mine.op.Peer
	if mine.op.Kind == dist.KindRecv {
		send, recv, from, to = theirs, mine, to, from
	}
	if s, r := send.op.Src, recv.op.Dst; s.DType() != r.DType() || s.Len() != r.Len() {
		return fmt.Errorf("%w on a message: rank %d sends %v[%d], rank %d receives %v[%d]", dist.ErrMismatch,
			from, s.DType(), s.Len(), to, r.DType(), r.Len())
	}
	copy(recv.op.Dst.Raw(), send.op.Src.Raw())
	mine.done, theirs.done = true, true
	b.ends[from].left--
	b.ends[to].left--
	b.changed.Broadcast()
	return nil
}

// oldest returns the first pending post of rank with the given kind and peer, or nil.
func (b *board) oldest(rank int, kind dist.Kind, peer int) *post {
	e := &b.ends[rank]
	if e.left == 0 {
		return nil
	}
	for i := range e.posts {
		if p := &e.posts[i]; !p.done && p.op.Kind == kind && p.op.Peer == peer {
			return p
		}
	}
	return nil
}
