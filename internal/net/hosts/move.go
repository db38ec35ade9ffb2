package hosts

import (
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"github.com/symgrad/symgrad/tensor"
)

// piece is a range of elements of a collective, which one exchange moves.
type piece struct {
	op     *dist.Op
	from   int // first element of each block
	n      int // elements of each block
	size   int // bytes of an element
	blocks int
}

// blocks returns the number of blocks that a rank contributes to op: one for each target, or one
// for all.
func blocks(op *dist.Op, ranks int) int {
	switch op.Kind {
	case dist.KindReduceScatter, dist.KindScatter, dist.KindAllToAll:
		return ranks
	}
	return 1
}

// sender returns which ranks contribute data; nil means all.
func sender(op *dist.Op) func(rank int) bool {
	if op.Kind == dist.KindBroadcast || op.Kind == dist.KindScatter {
		return func(rank int) bool { return rank == op.Root }
	}
	return nil
}

// move does a collective by exchanges: in each, every rank sees a piece of the data of all, and
// takes its part. The first exchange compares the calls.
func (t *Transport) move(op *dist.Op, h *header) error {
	if op.Count == 0 || op.DType() == tensor.Invalid {
		return t.meet(&exchange{own: *h})
	}
	switch {
	case t.pairs(op):
		return t.pair(op, h)
	case t.isFast(op):
		return t.fast(op, h)
	case t.inParts(op):
		return t.parts(op, h)
	}
	if way := t.large(op); way != nil {
		if err := t.meet(&exchange{own: *h}); err != nil {
			return err
		}
		return way(op)
	}
	size, ranks := op.DType().Size(), blocks(op, len(t.ranks))
	most := t.board.most / (size * ranks)
	p, x := &t.piece, &t.exchange // here, because an allocation takes a percent of a small operation
	for from := 0; from < op.Count; from += most {
		*p = piece{op: op, from: from, n: min(most, op.Count-from), size: size, blocks: ranks}
		*x = exchange{own: *h, bytes: p.n * size * ranks, from: sender(op)}
		if x.from == nil || x.from(t.rank) {
			x.fill = t.gather
		}
		if err := t.meet(x); err != nil {
			return err
		}
		t.take(p, x)
	}
	return nil
}

// large returns how to do an operation that is too large for exchanges; nil for another one.
func (t *Transport) large(op *dist.Op) func(op *dist.Op) error {
	switch {
	case t.chains(op):
		return t.chain
	case t.copies(op):
		return t.direct
	}
	return nil
}

// gather copies this rank's part of a piece to data: one range of each block.
func (p *piece) gather(data []byte) {
	src := p.op.Src.Raw()
	n := p.n * p.size
	for b := range p.blocks {
		at := (b*p.op.Count + p.from) * p.size
		copy(data[b*n:(b+1)*n], src[at:])
	}
}

// take computes this rank's result of a piece from the data of all ranks.
func (t *Transport) take(p *piece, x *exchange) {
	op := p.op
	switch op.Kind {
	case dist.KindAllReduce:
		t.reduce(p, x, 0)
	case dist.KindReduce:
		if op.Root == t.rank {
			t.reduce(p, x, 0)
		}
	case dist.KindReduceScatter:
		t.reduce(p, x, t.rank)
	case dist.KindBroadcast:
		t.copyFrom(p, x, op.Root, 0, 0)
	case dist.KindScatter:
		t.copyFrom(p, x, op.Root, t.rank, 0)
	case dist.KindGather:
		if op.Root == t.rank {
			t.copyAll(p, x, 0)
		}
	case dist.KindAllGather:
		t.copyAll(p, x, 0)
	case dist.KindAllToAll:
		t.copyAll(p, x, t.rank)
	}
}

// reduce combines one block of all ranks.
func (t *Transport) reduce(p *piece, x *exchange, block int) {
	t.scalars(p.op)
	for r := range t.ranks {
		t.srcs[r] = pointer(t.board.data(t.round, r, x.bytes)[block*p.n*p.size:])
	}
	dsts := [1]unsafe.Pointer{pointer(p.op.Dst.Raw()[p.from*p.size:])}
	t.kernel(p.op)(dsts[:], t.srcs, p.n, t.mults, 0)
}

// scalars reads the scalars of all ranks from the board, if op has some.
func (t *Transport) scalars(op *dist.Op) {
	if op.Red.Kind != dist.RedPreMulSum {
		return
	}
	var h header
	for r := range t.ranks {
		h.get(t.board.header(t.round, r))
		t.mults[r] = h.scalar
	}
}

// kernel returns the kernel of a reduction.
func (t *Transport) kernel(op *dist.Op) reduce.Kernel {
	if k := &t.last; k.dt != op.DType() || k.red != op.Red.Kind {
		*k = kernel{op.DType(), op.Red.Kind, reduce.For(op.DType(), op.Red.Kind)}
	}
	return t.last.do
}

type kernel struct {
	dt  tensor.DType
	red dist.RedKind
	do  reduce.Kernel
}

// copyAll copies a block of every rank to its place in the destination.
func (t *Transport) copyAll(p *piece, x *exchange, block int) {
	for r := range t.ranks {
		t.copyFrom(p, x, r, block, r)
	}
}

// copyFrom copies a block of rank to block at of the destination.
func (t *Transport) copyFrom(p *piece, x *exchange, rank, block, at int) {
	n := p.n * p.size
	data := t.board.data(t.round, rank, x.bytes)[block*n : (block+1)*n]
	copy(p.op.Dst.Raw()[(at*p.op.Count+p.from)*p.size:], data)
}
