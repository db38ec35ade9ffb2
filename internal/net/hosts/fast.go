package hosts

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"github.com/symgrad/symgrad/tensor"
)

// A fast allreduce adds first inside hosts and then between them, so that its floats are not added
// in rank order. The ranks of a host each combine one part of the elements. The ranks with the same
// number on their hosts, a column, combine their parts. Then the ranks of a host collect the parts.
// Each host sends its sum only, and all its ranks send.

// openColumn makes the column of this rank, if operations may be fast and all hosts have the same
// number of ranks, which is at least two.
//
// Collective.
func (t *Transport) openColumn() error {
	ranks := len(t.l.members[0])
	for _, m := range t.l.members {
		if len(m) != ranks {
			return nil
		}
	}
	if !t.p.cfg.Fast || ranks < 2 || len(t.l.far) == 0 {
		return nil
	}
	sub, err := t.split(t.near(t.rank), t.rank)
	if err != nil {
		return err
	}
	g, err := dist.NewGroup(sub, 8)
	if err == nil {
		t.column = g.Blocking()
	}
	return err
}

// agreeOnOrder breaks the group if some ranks have fast operations and others do not.
//
// Collective. Errors: those of await; ErrMismatch.
func (t *Transport) agreeOnOrder() error {
	own := syncHeader
	if t.p.cfg.Fast {
		own.a = 1
	}
	if err := t.meet(&exchange{own: own}); err != nil {
		return err
	}
	names := [2]string{"rank", "fast"}
	for r := range t.ranks {
		if first, other := t.headerOf(0).a, t.headerOf(r).a; first != other {
			t.fail(fmt.Errorf("%w on the order of sums: rank 0 has %s, rank %d has %s", dist.ErrMismatch, names[first], r, names[other]))
			return t.Broken()
		}
	}
	return nil
}

// isFast reports whether op is a fast allreduce. Sums of 16 bits are not, because they would be
// rounded twice.
func (t *Transport) isFast(op *dist.Op) bool {
	dt := op.DType()
	return t.column != nil && op.Kind == dist.KindAllReduce && dt != tensor.F16 && dt != tensor.BF16 &&
		op.Src.Bytes() >= int64(t.p.cfg.ChainBytes)
}

// fast does an allreduce.
//
// Errors: those of await; ErrMismatch if signatures differ, which breaks the group.
func (t *Transport) fast(op *dist.Op, h *header) error {
	near, p := t.inner.group, reduce.Partial{DType: op.DType(), Red: op.Red.Kind, Ranks: len(t.ranks)}
	n := op.Src.Len() / near.Size()
	if err := t.tail(op, h, n*near.Size()); err != nil {
		return err
	}
	t.op.Blocks() // other groups wait
	src, err1 := op.Src.Slice(0, n*near.Size())
	dst, err2 := op.Dst.Slice(0, n*near.Size())
	own, err3 := op.Dst.Slice(near.Rank()*n, (near.Rank()+1)*n)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	sum, first := dist.RedOp{Kind: p.Combining()}, op.Red
	if first.Kind != dist.RedPreMulSum {
		first = sum
	}
	if _, err := near.ReduceScatter(own, src, first); err != nil {
		return t.inside(err)
	}
	if _, err := t.column.AllReduce(own, own, sum); err != nil {
		return t.awaitReason(fmt.Errorf("ranks of other hosts: %w", err))
	}
	if p.Ends() {
		if err := p.Finish(own, own); err != nil {
			return err
		}
	}
	_, err := near.AllGather(dst, own)
	return t.inside(err)
}

// tail compares the calls of all ranks, and reduces the elements from from on. They are fewer than
// the ranks.
func (t *Transport) tail(op *dist.Op, h *header, from int) error {
	size := op.DType().Size()
	rest := op.Src.Len() - from
	x := &exchange{own: *h, bytes: rest * size}
	x.fill = func(data []byte) { copy(data, op.Src.Raw()[from*size:]) }
	if err := t.meet(x); err != nil {
		return err
	}
	if rest > 0 && (op.Kind != dist.KindReduce || op.Root == t.rank) {
		t.reduce(&piece{op: op, from: from, n: rest, size: size}, x, 0)
	}
	return nil
}
