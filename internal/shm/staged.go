package shm

import (
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/reduce"
)

// The staging slots serve operations on private memory, which no other route can. Chunk g of the
// group's life uses slot g of stageSlots. sent counts the chunks that a rank has put into its
// slots; took counts those that it has taken from all others. A slot can be refilled when all ranks
// have taken its chunk.

// runStaged runs op in chunks: it puts the next chunk before it waits for the present one.
func (t *Transport) runStaged(op *dist.Op) error {
	per := t.perChunkOf(op)
	chunks := (op.Count + per - 1) / per
	first := t.chunks
	shared := t.sharesSums(op)
	part := func(i int) (lo, n int) { return i * per, min(per, op.Count-i*per) }
	if t.placed != t.round {
		if err := t.putFirst(op); err != nil {
			return err
		}
	}
	for i := range chunks {
		if i+1 < chunks {
			if err := t.putChunk(op, first, i+1, per, shared); err != nil {
				return err
			}
		}
		lo, n := part(i)
		g := first + uint64(i)
		var err error
		if shared {
			err = t.shareChunk(op, g, lo, n)
		} else {
			err = t.takeChunk(op, g, lo, n)
		}
		if err != nil {
			return err
		}
	}
	t.chunks += uint64(chunks)
	t.publish(t.ctl.sent(t.rank), t.chunks)
	t.publish(t.ctl.took(t.rank), t.chunks)
	return nil
}

// putFirst puts the first chunk of op, in op's round.
func (t *Transport) putFirst(op *dist.Op) error {
	t.placed = t.round
	return t.putChunk(op, t.chunks, 0, t.perChunkOf(op), t.sharesSums(op))
}

// sharesSums reports whether each rank sums a block of every chunk of op, instead of the whole
// chunk for itself.
func (t *Transport) sharesSums(op *dist.Op) bool { return op.Kind == dist.KindAllReduce && t.size > 2 }

// perChunkOf returns the elements of Op.Count that one chunk moves. Scattering kinds put a block
// for every rank into one slot.
func (t *Transport) perChunkOf(op *dist.Op) int {
	elems := t.ctl.chunk / op.DType().Size()
	switch op.Kind {
	case dist.KindReduceScatter, dist.KindAllToAll, dist.KindScatter:
		elems = max(1, elems/t.size)
	}
	return elems
}

// putChunk copies this rank's data for chunk i of op into its slot, after all have taken the slot's
// previous chunk. In a shared sum the ranks know that already for chunks of this operation.
func (t *Transport) putChunk(op *dist.Op, first uint64, i, per int, shared bool) error {
	if op.Src.IsZero() {
		return nil // Broadcast and Scatter, not on the root
	}
	g := first + uint64(i)
	if g >= stageSlots && (!shared || i < stageSlots) {
		for k := 1; k < t.size; k++ {
			r := (t.rank + k) % t.size
			if err := t.await(t.ctl.took(r), g-stageSlots+1, r); err != nil {
				return err
			}
		}
	}
	size := op.DType().Size()
	lo := i * per
	n := min(per, op.Count-lo)
	slot, src := t.ctl.slot(t.rank, g), op.Src.Raw()
	switch op.Kind {
	case dist.KindReduceScatter, dist.KindAllToAll, dist.KindScatter:
		for r := range t.size {
			if r != t.rank || op.Kind == dist.KindScatter {
				copy(slot[r*n*size:(r+1)*n*size], src[(r*op.Count+lo)*size:])
			}
		}
	default:
		copy(slot[:n*size], src[lo*size:])
	}
	t.publish(t.ctl.sent(t.rank), g+1)
	return nil
}

// takeChunk takes n elements at lo, chunk g, from the slots into the own destination.
func (t *Transport) takeChunk(op *dist.Op, g uint64, lo, n int) error {
	if op.Dst.IsZero() || op.Kind == dist.KindBroadcast && op.Root == t.rank {
		if op.Kind == dist.KindBroadcast && lo == 0 {
			move(op.Dst.Pointer(), op.Src.Pointer(), op.Count*op.DType().Size())
		}
		t.publish(t.ctl.took(t.rank), g+1) // it needs no data from the slots
		return nil
	}
	size := op.DType().Size()
	dst := op.Dst.Pointer()
	switch op.Kind {
	case dist.KindBroadcast, dist.KindScatter:
		if err := t.await(t.ctl.sent(op.Root), g+1, op.Root); err != nil {
			return err
		}
		at := 0
		if op.Kind == dist.KindScatter {
			at = t.rank * n * size
		}
		t.copyOut(unsafe.Add(dst, lo*size), t.slotAt(op.Root, g, at), n*size)
	default:
		if err := t.allSent(g); err != nil {
			return err
		}
		t.takeFromAll(op, g, lo, n)
	}
	t.publish(t.ctl.took(t.rank), g+1)
	return nil
}

// allSent waits until all ranks have put chunk g.
func (t *Transport) allSent(g uint64) error {
	for k := 1; k < t.size; k++ {
		r := (t.rank + k) % t.size
		if err := t.await(t.ctl.sent(r), g+1, r); err != nil {
			return err
		}
	}
	return nil
}

func (t *Transport) slotAt(r int, g uint64, at int) unsafe.Pointer {
	return unsafe.Add(pointer(t.ctl.slot(r, g)), at)
}

// takeFromAll takes n elements at lo from the slots of the other ranks, and this rank's own from
// its source.
func (t *Transport) takeFromAll(op *dist.Op, g uint64, lo, n int) {
	size := op.DType().Size()
	at, own := 0, lo*size
	if op.Kind == dist.KindReduceScatter || op.Kind == dist.KindAllToAll {
		at = t.rank * n * size
		own += t.rank * op.Count * size
	}
	dst, src := unsafe.Add(op.Dst.Pointer(), lo*size), unsafe.Add(op.Src.Pointer(), own)
	for r := range t.size {
		t.reducer.srcs[r] = t.slotAt(r, g, at)
	}
	t.reducer.srcs[t.rank] = src
	if op.Kind.Reduces() {
		t.sumOut(op, dst, n)
		return
	}
	for r, from := range t.reducer.srcs {
		to := unsafe.Add(dst, r*op.Count*size)
		if r == t.rank {
			move(to, from, n*size)
			continue
		}
		t.copyOut(to, from, n*size)
	}
}

// touchPiece is the number of bytes that are summed before their slots are touched: they are then
// still in the first-level cache.
const touchPiece = 8 << 10

// sumOut sums n elements of t.reducer.srcs, which are slots except the own one.
func (t *Transport) sumOut(op *dist.Op, dst unsafe.Pointer, n int) {
	t.reducer.dsts[0] = dst
	if !t.touches() {
		t.reducer.sum(op, t.reducer.dsts[:1], n, 0)
		return
	}
	size := op.DType().Size()
	for {
		part := min(touchPiece/size, n)
		t.reducer.sum(op, t.reducer.dsts[:1], part, 0)
		for r, src := range t.reducer.srcs {
			if r != t.rank {
				reduce.Touch(src, part*size)
			}
		}
		if n -= part; n == 0 {
			return // no pointer may remain past the end of memory that the garbage collector knows
		}
		t.reducer.dsts[0] = unsafe.Add(t.reducer.dsts[0], part*size)
		for r, src := range t.reducer.srcs {
			t.reducer.srcs[r] = unsafe.Add(src, part*size)
		}
	}
}

// shareChunk sums n elements at lo, chunk g, like the direct route: every rank sums one block and
// stores it to all slots.
func (t *Transport) shareChunk(op *dist.Op, g uint64, lo, n int) error {
	if err := t.allSent(g); err != nil {
		return err
	}
	size := op.DType().Size()
	if a, b := block(n, t.size, t.rank); a < b {
		for r := range t.reducer.srcs {
			t.reducer.srcs[r] = t.slotAt(r, g, a*size)
			t.reducer.dsts[r] = t.reducer.srcs[r]
		}
		t.reducer.sum(op, t.reducer.dsts, b-a, 0)
	}
	t.publish(t.ctl.summed(t.rank), g+1)
	for k := 1; k < t.size; k++ {
		r := (t.rank + k) % t.size
		if err := t.await(t.ctl.summed(r), g+1, r); err != nil {
			return err
		}
	}
	move(unsafe.Add(op.Dst.Pointer(), lo*size), t.slotAt(t.rank, g, 0), n*size)
	return nil
}
