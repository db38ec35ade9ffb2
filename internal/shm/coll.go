package shm

import (
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/reduce"
	"github.com/symgrad/symgrad/tensor"
)

// enter publishes the next round; what this rank wrote before is visible to whoever sees the flag.
func (t *Transport) enter() {
	t.round++
	publish(t.ctl.flag(t.rank), t.round)
}

// barrier is one round: it returns when all ranks have entered it.
func (t *Transport) barrier() error {
	t.enter()
	return t.all()
}

// all waits for every rank to enter the current round, the next rank first so that not all wait for one line.
func (t *Transport) all() error {
	for i := 1; i < t.size; i++ {
		if err := t.await((t.rank + i) % t.size); err != nil {
			return err
		}
	}
	return nil
}

// agree is the first round of an operation: it exchanges headers into t.headers and compares signatures.
func (t *Transport) agree(own *header) error {
	round := t.round + 1
	own.put(t.ctl.header(t.rank, round))
	if err := t.barrier(); err != nil {
		return err
	}
	for r := range t.headers {
		t.headers[r].get(t.ctl.header(r, round))
	}
	if t.node.cfg.Unchecked && own.sig.Kind < dist.KindSplit {
		return nil
	}
	for r := 1; r < t.size; r++ {
		if t.headers[r].sig != t.headers[0].sig {
			return t.disagree()
		}
	}
	return nil
}

// disagree breaks the group: every rank finds the same difference in the same headers.
func (t *Transport) disagree() error {
	sigs := make([]dist.Signature, t.size)
	for r := range sigs {
		sigs[r] = t.headers[r].sig
	}
	err := dist.Compare(sigs)
	t.fail(abortMismatch, t.rank, err.Error())
	return err
}

// collective runs one lockstep operation.
func (t *Transport) collective(op *dist.Op) error {
	own := header{sig: op.Signature(), src: t.locate(op.Src), dst: t.locate(op.Dst)}
	if op.Kind.Reduces() && op.Red.Kind == dist.RedPreMulSum {
		bits, err := reduce.ScalarBits(op.Red.Scalar)
		if err != nil {
			return err
		}
		own.scalar = bits
	}
	// A rank whose buffers are private cannot be part of the direct path, so it stages its first chunk at once.
	own.staged = op.Count > 0 && !t.direct(op, t.rank, &own)
	if own.staged {
		t.stage(op, 0)
	}
	if err := t.agree(&own); err != nil {
		return err
	}
	if op.Count == 0 || op.Kind == dist.KindBarrier || op.Kind == dist.KindSync {
		return nil
	}
	direct, staged := true, true
	for r := range t.headers {
		h := &t.headers[r]
		direct = direct && t.direct(op, r, h)
		staged = staged && h.staged
		t.scalars[r] = h.scalar
	}
	if direct {
		return t.runDirect(op)
	}
	return t.runStaged(op, own.staged, staged)
}

// direct reports whether rank's side of op, as its header tells, lies in symmetric heaps as the direct path needs:
// sources that others read, and for sums the destinations that the owners of blocks write.
func (t *Transport) direct(op *dist.Op, rank int, h *header) bool {
	src, dst := h.src.heap != 0, h.dst.heap != 0
	switch op.Kind {
	case dist.KindAllReduce:
		return src && dst
	case dist.KindReduce:
		return src && (dst || rank != op.Root)
	case dist.KindBroadcast, dist.KindScatter:
		return src || rank != op.Root
	case dist.KindAllGather, dist.KindReduceScatter, dist.KindAllToAll, dist.KindGather:
		return src
	}
	return true
}

// runDirect does op by loads and stores in the heaps. The header round has told that all sources are ready; the last
// round tells that nobody reads or writes them any more.
func (t *Transport) runDirect(op *dist.Op) error {
	err := t.moveDirect(op)
	if err != nil {
		t.fail(abortFault, t.rank, err.Error())
		return err
	}
	return t.barrier()
}

func (t *Transport) moveDirect(op *dist.Op) error {
	n, count := t.size, op.Count
	switch op.Kind {
	case dist.KindAllReduce, dist.KindReduce:
		lo, hi := block(count, n, t.rank)
		return t.sumBlock(op, lo, hi)
	case dist.KindReduceScatter:
		return t.sumInto(op, op.Dst, t.rank*count, count)
	case dist.KindBroadcast:
		return t.pull(op, op.Root, 0, 0, count)
	case dist.KindScatter:
		return t.pull(op, op.Root, t.rank*count, 0, count)
	case dist.KindGather:
		if t.rank != op.Root {
			return nil
		}
	}
	for r := range n { // AllGather, Gather, AllToAll
		from := 0
		if op.Kind == dist.KindAllToAll {
			from = t.rank * count
		}
		if err := t.pull(op, r, from, r*count, count); err != nil {
			return err
		}
	}
	return nil
}

// block is the part of n elements that rank sums: whole cache lines, in rank order.
func block(count, n, rank int) (lo, hi int) {
	const line = 64 // elements; a multiple of a cache line for every dtype
	per := (count/n + line - 1) / line * line
	if per == 0 {
		per = line
	}
	lo, hi = min(rank*per, count), min((rank+1)*per, count)
	if rank == n-1 {
		hi = count
	}
	return lo, hi
}

// sumBlock sums elements lo to hi of all sources, in rank order, and stores them to the destinations that want them:
// the reduce-scatter and the allgather of an allreduce in one pass.
func (t *Transport) sumBlock(op *dist.Op, lo, hi int) error {
	if lo == hi {
		return nil
	}
	first := t.rank
	if op.Kind == dist.KindReduce {
		first = op.Root
	}
	dst, err := t.peerBuffer(op, first, t.headers[first].dst, lo, hi-lo)
	if err != nil {
		return err
	}
	if err := t.sumInto(op, dst, lo, hi-lo); err != nil || op.Kind == dist.KindReduce {
		return err
	}
	for i := 1; i < t.size; i++ {
		r := (t.rank + i) % t.size
		to, err := t.peerBuffer(op, r, t.headers[r].dst, lo, hi-lo)
		if err != nil {
			return err
		}
		copy(to.Raw(), dst.Raw())
	}
	return nil
}

// sumInto reduces elements at to at+n of all ranks' sources into dst.
func (t *Transport) sumInto(op *dist.Op, dst tensor.Buffer, at, n int) error {
	for r := range t.srcs {
		b, err := t.peerBuffer(op, r, t.headers[r].src, at, n)
		if err != nil {
			return err
		}
		t.srcs[r] = b
	}
	return reduce.Into(dst, t.srcs, op.Red.Kind, t.scalars)
}

// pull copies n elements at from of rank r's source to element to of the own destination.
func (t *Transport) pull(op *dist.Op, r, from, to, n int) error {
	src, err := t.peerBuffer(op, r, t.headers[r].src, from, n)
	if err != nil {
		return err
	}
	dst, err := op.Dst.Slice(to, to+n)
	if err == nil && !tensor.Same(dst, src) { // in place the block is there, and peers are reading it
		copy(dst.Raw(), src.Raw())
	}
	return err
}

// peerBuffer is n elements at element at of a buffer of rank r that lies at p.
func (t *Transport) peerBuffer(op *dist.Op, r int, p place, at, n int) (tensor.Buffer, error) {
	dt := op.DType()
	off := p.off + int64(at)*int64(dt.Size())
	b, err := t.node.resolve(p.heap, t.ranks[r], off, int64(n)*int64(dt.Size()))
	if err != nil {
		return tensor.Buffer{}, fmt.Errorf("buffer of rank %d: %w", r, err)
	}
	return tensor.FromPointer(unsafe.Pointer(unsafe.SliceData(b)), n, dt, tensor.Host)
}

// runStaged does op through the staging slots, one round a chunk. mine and everyone tell whether this rank, and all
// ranks, staged the first chunk before the header round.
func (t *Transport) runStaged(op *dist.Op, mine, everyone bool) error {
	per := t.perStep(op)
	for lo := 0; lo < op.Count; lo += per {
		if lo > 0 || !everyone {
			if lo > 0 || !mine {
				t.stage(op, lo)
			}
			if err := t.barrier(); err != nil {
				return err
			}
		}
		if err := t.collect(op, lo, min(per, op.Count-lo)); err != nil {
			t.fail(abortFault, t.rank, err.Error())
			return err
		}
		t.step++
	}
	return nil
}

// perStep is how many elements of Op.Count one step moves. Scattering kinds put a block for every rank into one slot.
func (t *Transport) perStep(op *dist.Op) int {
	elems := t.ctl.chunk / op.DType().Size()
	switch op.Kind {
	case dist.KindReduceScatter, dist.KindAllToAll, dist.KindScatter:
		elems = max(1, elems/t.size)
	}
	return elems
}

// stage copies what the others need of this rank for elements lo and on into the slot of this step.
func (t *Transport) stage(op *dist.Op, lo int) {
	if op.Src.IsZero() {
		return // Broadcast and Scatter, not on the root
	}
	size := op.DType().Size()
	n := min(t.perStep(op), op.Count-lo)
	slot, src := t.ctl.slot(t.rank, t.step), op.Src.Raw()
	switch op.Kind {
	case dist.KindReduceScatter, dist.KindAllToAll, dist.KindScatter:
		for r := range t.size {
			copy(slot[r*n*size:(r+1)*n*size], src[(r*op.Count+lo)*size:])
		}
	default:
		copy(slot[:n*size], src[lo*size:])
	}
}

// collect takes n elements at lo out of the slots of this step into the own destination.
func (t *Transport) collect(op *dist.Op, lo, n int) error {
	if op.Dst.IsZero() {
		return nil // Reduce and Gather, not on the root
	}
	switch op.Kind {
	case dist.KindAllReduce, dist.KindReduce, dist.KindReduceScatter:
		at := 0
		if op.Kind == dist.KindReduceScatter {
			at = t.rank * n
		}
		for r := range t.srcs {
			b, err := t.slotBuffer(op, r, at, n)
			if err != nil {
				return err
			}
			t.srcs[r] = b
		}
		dst, err := op.Dst.Slice(lo, lo+n)
		if err != nil {
			return err
		}
		return reduce.Into(dst, t.srcs, op.Red.Kind, t.scalars)
	case dist.KindBroadcast:
		return t.take(op, op.Root, 0, lo, n)
	case dist.KindScatter:
		return t.take(op, op.Root, t.rank*n, lo, n)
	}
	for r := range t.size { // AllGather, Gather, AllToAll
		at := 0
		if op.Kind == dist.KindAllToAll {
			at = t.rank * n
		}
		if err := t.take(op, r, at, r*op.Count+lo, n); err != nil {
			return err
		}
	}
	return nil
}

func (t *Transport) take(op *dist.Op, r, at, to, n int) error {
	src, err := t.slotBuffer(op, r, at, n)
	if err != nil {
		return err
	}
	dst, err := op.Dst.Slice(to, to+n)
	if err == nil {
		copy(dst.Raw(), src.Raw())
	}
	return err
}

// slotBuffer is n elements at element at of rank r's slot of this step.
func (t *Transport) slotBuffer(op *dist.Op, r, at, n int) (tensor.Buffer, error) {
	dt := op.DType()
	slot := t.ctl.slot(r, t.step)
	return tensor.FromPointer(unsafe.Pointer(&slot[at*dt.Size()]), n, dt, tensor.Host)
}

// batch runs the members of a group call: collectives first, in order, then all sends and receives together.
func (t *Transport) batch(op *dist.Op) error {
	var p2p []dist.Op
	for i := range op.Ops {
		if op.Ops[i].Kind.PointToPoint() {
			p2p = append(p2p, op.Ops[i])
			continue
		}
		t.ctl.busy(t.rank, op.Ops[i].Kind, -1, op.Seq)
		if err := t.collective(&op.Ops[i]); err != nil {
			return fmt.Errorf("%v %q: %w", op.Ops[i].Kind, op.Ops[i].Name, err)
		}
	}
	if len(p2p) == 0 {
		return nil
	}
	t.ctl.busy(t.rank, dist.KindBatch, -1, op.Seq)
	return t.exchange(p2p)
}
