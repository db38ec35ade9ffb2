package hosts

import (
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// A reduction in parts: each rank gets its part of the elements of all ranks, and combines them in
// rank order. Then the results go where they are needed. It has few steps and works in every layout
// of ranks. A chain sends fewer bytes, because a host sends the sum of its ranks.
type parts struct {
	t    *Transport
	op   *dist.Op
	n    int // elements of a part; those after the last part travel in the exchange
	size int // bytes of an element
}

// inParts reports whether op is done in parts.
func (t *Transport) inParts(op *dist.Op) bool {
	if !op.Kind.Reduces() || len(t.l.far) == 0 || op.Src.Bytes() < int64(t.p.cfg.ChainBytes) || op.Src.Len() < len(t.ranks) {
		return false
	}
	return !t.l.ordered || t.partsCost(op) < t.chainCost(op)
}

// partsCost returns the time of op in parts, as bytes that a host sends.
func (t *Transport) partsCost(op *dist.Op) int {
	n, hosts, ranks := int(op.Src.Bytes()), len(t.l.members), t.l.mostRanks()
	return 2*t.p.cfg.MessageBytes + (ranks+1)*n/hosts*(hosts-1)
}

// chainCost returns the time of op as a chain, as bytes that a host sends. The leader of several
// ranks works for all, which takes half as long again.
func (t *Transport) chainCost(op *dist.Op) int {
	n, hosts := int(op.Src.Bytes()), len(t.l.members)
	c := t.chunkBytes(n)
	cost := (2*(hosts-1) + (n+c-1)/c) * (t.p.cfg.MessageBytes + c)
	if t.l.mostRanks() > 1 {
		cost += cost / 2
	}
	return cost
}

// mostRanks returns the ranks of the host that has most.
func (l *layout) mostRanks() int {
	most := 0
	for _, m := range l.members {
		most = max(most, len(m))
	}
	return most
}

// parts does a reduction.
//
// Errors: those of await; ErrMismatch if signatures differ, which breaks the group.
func (t *Transport) parts(op *dist.Op, h *header) error {
	p := &parts{t: t, op: op, n: op.Src.Len() / len(t.ranks), size: op.DType().Size()}
	if err := t.tail(op, h, p.n*len(t.ranks)); err != nil {
		return err
	}
	return p.run()
}

// run moves and combines all elements except those of the exchange.
func (p *parts) run() error {
	t, ranks := p.t, len(p.t.ranks)
	if need := p.n * ranks * p.size; len(t.gathered) < need {
		t.gathered = make([]byte, need)
	}
	gathered, err := view(t.gathered, p.n*ranks, p.op.DType())
	if err != nil {
		return err
	}
	src, err := p.op.Src.Slice(0, p.n*ranks)
	if err != nil {
		return err
	}
	if err := t.direct(&dist.Op{Kind: dist.KindAllToAll, Dst: gathered, Src: src, Count: p.n}); err != nil {
		return err
	}
	result, err := p.result(gathered)
	if err != nil {
		return err
	}
	t.scalars(p.op)
	for r := range ranks {
		t.srcs[r] = unsafe.Add(gathered.Pointer(), r*p.n*p.size)
	}
	dsts := [1]unsafe.Pointer{result.Pointer()}
	t.kernel(p.op)(dsts[:], t.srcs, p.n, t.mults, 0)
	switch p.op.Kind {
	case dist.KindAllReduce:
		dst, err := p.op.Dst.Slice(0, p.n*ranks)
		if err != nil {
			return err
		}
		return t.direct(&dist.Op{Kind: dist.KindAllGather, Dst: dst, Src: result, Count: p.n})
	case dist.KindReduce:
		dst := tensor.Buffer{}
		if p.op.Root == t.rank {
			if dst, err = p.op.Dst.Slice(0, p.n*ranks); err != nil {
				return err
			}
		}
		return t.direct(&dist.Op{Kind: dist.KindGather, Dst: dst, Src: result, Count: p.n, Root: p.op.Root})
	}
	return nil
}

// result returns the memory of this rank's result: in the destination, if this rank needs it.
func (p *parts) result(gathered tensor.Buffer) (tensor.Buffer, error) {
	at := p.t.rank * p.n
	switch {
	case p.op.Kind == dist.KindReduceScatter:
		return p.op.Dst, nil
	case p.op.Kind == dist.KindReduce && p.op.Root != p.t.rank:
		return gathered.Slice(at, at+p.n)
	}
	return p.op.Dst.Slice(at, at+p.n)
}
