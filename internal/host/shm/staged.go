package shm

import (
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/asym"
	"github.com/symgrad/symgrad/internal/host/reduce"
)

// The staging slots serve operations on private memory, which no other route can. Chunk g of the
// group's life uses slot g of stageSlots. sent counts the chunks that a rank has put into its
// slots; took counts those that it has taken from all others. A slot can be refilled when all ranks
// have taken its chunk.

// stagedPath runs operations in chunks through the staging slots.
type stagedPath struct {
	*announcer
	*reducer
	chunks uint64 // chunks that went through staging slots
	placed uint64 // round whose first chunk this rank has put
}

// run runs op in chunks: it puts the next chunk before it waits for the present one.
func (p *stagedPath) run(op *dist.Op) error {
	per := p.perChunkOf(op)
	chunks := (op.Count + per - 1) / per
	first := p.chunks
	shared := p.sharesSums(op)
	part := func(i int) (lo, n int) { return i * per, min(per, op.Count-i*per) }
	if p.placed != p.round {
		if err := p.putFirst(op); err != nil {
			return err
		}
	}
	for i := range chunks {
		if i+1 < chunks {
			if err := p.putChunk(op, first, i+1, per, shared); err != nil {
				return err
			}
		}
		lo, n := part(i)
		g := first + uint64(i)
		var err error
		if shared {
			err = p.shareChunk(op, g, lo, n)
		} else {
			err = p.takeChunk(op, g, lo, n)
		}
		if err != nil {
			return err
		}
	}
	p.chunks += uint64(chunks)
	p.publish(p.ctl.sent(p.rank), p.chunks)
	p.publish(p.ctl.took(p.rank), p.chunks)
	return nil
}

// putFirst puts the first chunk of op, in op's round.
func (p *stagedPath) putFirst(op *dist.Op) error {
	p.placed = p.round
	return p.putChunk(op, p.chunks, 0, p.perChunkOf(op), p.sharesSums(op))
}

// sharesSums reports whether each rank sums a block of every chunk of op, instead of the whole
// chunk for itself.
func (p *stagedPath) sharesSums(op *dist.Op) bool { return op.Kind == dist.KindAllReduce && p.size > 2 }

// perChunkOf returns the elements of Op.Count that one chunk moves. Scattering kinds put a block
// for every rank into one slot.
func (p *stagedPath) perChunkOf(op *dist.Op) int {
	elems := p.ctl.chunk / op.DType().Size()
	switch op.Kind {
	case dist.KindReduceScatter, dist.KindAllToAll, dist.KindScatter:
		elems = max(1, elems/p.size)
	}
	return elems
}

// putChunk copies this rank's data for chunk i of op into its slot, after all have taken the slot's
// previous chunk. In a shared sum the ranks know that already for chunks of this operation.
func (p *stagedPath) putChunk(op *dist.Op, first uint64, i, per int, shared bool) error {
	if op.Src.IsZero() {
		return nil // Broadcast and Scatter, not on the root
	}
	g := first + uint64(i)
	if g >= stageSlots && (!shared || i < stageSlots) {
		for k := 1; k < p.size; k++ {
			r := (p.rank + k) % p.size
			if err := p.await(p.ctl.took(r), g-stageSlots+1, r); err != nil {
				return err
			}
		}
	}
	size := op.DType().Size()
	lo := i * per
	n := min(per, op.Count-lo)
	slot, src := p.ctl.slot(p.rank, g), op.Src.Raw()
	switch op.Kind {
	case dist.KindReduceScatter, dist.KindAllToAll, dist.KindScatter:
		for r := range p.size {
			if r != p.rank || op.Kind == dist.KindScatter {
				copy(slot[r*n*size:(r+1)*n*size], src[(r*op.Count+lo)*size:])
			}
		}
	default:
		copy(slot[:n*size], src[lo*size:])
	}
	p.publish(p.ctl.sent(p.rank), g+1)
	return nil
}

// Up to here an operation that filled a staging slot claims the next one at its end. For larger
// slots that costs more than it saves.
const (
	claimBroadcast = 64 << 10
	claimOthers    = 16 << 10
)

// claim claims the lines that this rank will fill in its next operation, as claim of smallPath.
func (p *stagedPath) claim(op *dist.Op) {
	asym.Claim(unsafe.Add(p.rings[p.rank], (p.round+1)%depth*entryLen), 1)
	n := int(op.Memo >> planBytes)
	switch {
	case op.Kind == dist.KindBroadcast && op.Root != p.rank: // it fills nothing else
	case p.placed == p.round && n <= p.ctl.chunk && (n <= claimOthers || op.Kind == dist.KindBroadcast && n <= claimBroadcast):
		asym.Claim(pointer(p.ctl.slot(p.rank, p.chunks)), (n+63)/64)
	}
}

// takeChunk takes n elements at lo, chunk g, from the slots into the own destination.
func (p *stagedPath) takeChunk(op *dist.Op, g uint64, lo, n int) error {
	if op.Dst.IsZero() || op.Kind == dist.KindBroadcast && op.Root == p.rank {
		if op.Kind == dist.KindBroadcast && lo == 0 {
			move(op.Dst.Pointer(), op.Src.Pointer(), op.Count*op.DType().Size())
		}
		p.publish(p.ctl.took(p.rank), g+1) // it needs no data from the slots
		return nil
	}
	size := op.DType().Size()
	dst := op.Dst.Pointer()
	switch op.Kind {
	case dist.KindBroadcast, dist.KindScatter:
		if err := p.await(p.ctl.sent(op.Root), g+1, op.Root); err != nil {
			return err
		}
		at := 0
		if op.Kind == dist.KindScatter {
			at = p.rank * n * size
		}
		p.copyOut(unsafe.Add(dst, lo*size), p.slotAt(op.Root, g, at), n*size)
	default:
		if err := p.allSent(g); err != nil {
			return err
		}
		p.takeFromAll(op, g, lo, n)
	}
	p.publish(p.ctl.took(p.rank), g+1)
	return nil
}

// allSent waits until all ranks have put chunk g.
func (p *stagedPath) allSent(g uint64) error {
	for k := 1; k < p.size; k++ {
		r := (p.rank + k) % p.size
		if err := p.await(p.ctl.sent(r), g+1, r); err != nil {
			return err
		}
	}
	return nil
}

func (p *stagedPath) slotAt(r int, g uint64, at int) unsafe.Pointer {
	return unsafe.Add(pointer(p.ctl.slot(r, g)), at)
}

// takeFromAll takes n elements at lo from the slots of the other ranks, and this rank's own from
// its source.
func (p *stagedPath) takeFromAll(op *dist.Op, g uint64, lo, n int) {
	size := op.DType().Size()
	at, own := 0, lo*size
	if op.Kind == dist.KindReduceScatter || op.Kind == dist.KindAllToAll {
		at = p.rank * n * size
		own += p.rank * op.Count * size
	}
	dst, src := unsafe.Add(op.Dst.Pointer(), lo*size), unsafe.Add(op.Src.Pointer(), own)
	for r := range p.size {
		p.srcs[r] = p.slotAt(r, g, at)
	}
	p.srcs[p.rank] = src
	if op.Kind.Reduces() {
		p.sumOut(op, dst, n)
		return
	}
	for r, from := range p.srcs {
		to := unsafe.Add(dst, r*op.Count*size)
		if r == p.rank {
			move(to, from, n*size)
			continue
		}
		p.copyOut(to, from, n*size)
	}
}

// touchPiece is the number of bytes that are summed before their slots are touched: they are then
// still in the first-level cache.
const touchPiece = 8 << 10

// sumOut sums n elements of p.srcs, which are slots except the own one.
func (p *stagedPath) sumOut(op *dist.Op, dst unsafe.Pointer, n int) {
	p.dsts[0] = dst
	if !p.touches() {
		p.sum(op, p.dsts[:1], n, 0)
		return
	}
	size := op.DType().Size()
	for {
		part := min(touchPiece/size, n)
		p.sum(op, p.dsts[:1], part, 0)
		for r, src := range p.srcs {
			if r != p.rank {
				reduce.Touch(src, part*size)
			}
		}
		if n -= part; n == 0 {
			return // no pointer may remain past the end of memory that the garbage collector knows
		}
		p.dsts[0] = unsafe.Add(p.dsts[0], part*size)
		for r, src := range p.srcs {
			p.srcs[r] = unsafe.Add(src, part*size)
		}
	}
}

// shareChunk sums n elements at lo, chunk g, like the direct route: every rank sums one block and
// stores it to all slots.
func (p *stagedPath) shareChunk(op *dist.Op, g uint64, lo, n int) error {
	if err := p.allSent(g); err != nil {
		return err
	}
	size := op.DType().Size()
	if a, b := block(n, p.size, p.rank); a < b {
		for r := range p.srcs {
			p.srcs[r] = p.slotAt(r, g, a*size)
			p.dsts[r] = p.srcs[r]
		}
		p.sum(op, p.dsts, b-a, 0)
	}
	p.publish(p.ctl.summed(p.rank), g+1)
	for k := 1; k < p.size; k++ {
		r := (p.rank + k) % p.size
		if err := p.await(p.ctl.summed(r), g+1, r); err != nil {
			return err
		}
	}
	move(unsafe.Add(op.Dst.Pointer(), lo*size), p.slotAt(p.rank, g, 0), n*size)
	return nil
}
