package shm

import (
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/reduce"
	"github.com/symgrad/symgrad/tensor"
)

// tinyBytes is the largest size of all blocks for sumTiny; beyond it the call of a kernel pays off.
const tinyBytes = 128

// fanout is the number of children of a rank in the tree of a small broadcast, in groups larger
// than flatRanks.
const fanout = 4

// The plan of an operation, which a repeated operation keeps: its route, where the arguments
// determine it, and above planBytes the bytes that a rank posts.
const (
	planMade  = 1 << iota // ensures that no plan is 0
	planSmall             // the data fits into an announcement or a small slot
	planSlot              // the data is in a slot
	planLine              // use runLine: no scalars, and every rank reads the words of all
	planTiny              // a sum for sumTiny
	planPair              // use runPair: two ranks that wait for each other
	planCast              // use runCast: a broadcast in which ranks read the root's word
	planBytes = iota
)

func (t *Transport) plan(op *dist.Op) uint64 {
	n := 0
	if op.Count > 0 {
		n = op.Count * op.DType().Size()
		switch op.Kind { // scattering kinds have a block for every rank
		case dist.KindReduceScatter, dist.KindAllToAll, dist.KindScatter:
			n *= t.size
		}
	}
	plan := uint64(n)<<planBytes | planMade
	if n <= t.ctl.small {
		plan |= planSmall
	}
	scaled := op.Kind.Reduces() && op.Red.Kind == dist.RedPreMulSum // the announcement has the scalar
	if n > lineBytes || scaled {
		plan |= planSlot
	}
	if scaled || n > t.ctl.small {
		return plan
	}
	if t.size <= t.node.cfg.flat {
		plan |= planLine
		switch {
		case op.Kind == dist.KindBroadcast:
			plan |= planCast
		case t.size == 2 && !op.Kind.Rooted():
			plan |= planPair
		}
	}
	sums := op.Kind == dist.KindAllReduce || op.Kind == dist.KindReduceScatter
	if sums && op.Red.Kind == dist.RedSum && n > 0 && n <= tinyBytes && t.size > 1 {
		if dt := op.DType(); dt == tensor.F32 || dt == tensor.F64 {
			plan |= planTiny
		}
	}
	return plan
}

// runSmall runs an operation whose data is in the announcement, or in one slot written before it.
// It synchronizes once, and a rank that only gives data does not wait.
func (t *Transport) runSmall(op *dist.Op) error {
	slot, bytes := op.Memo&planSlot != 0, int(op.Memo>>planBytes)
	if err := t.open(op.Hash()); err != nil {
		return err
	}
	if slot {
		if err := t.nextSlot(); err != nil {
			return err
		}
		if op.Kind.Reduces() {
			if err := t.postScalar(op); err != nil {
				return err
			}
		}
	}
	if op.Kind == dist.KindBroadcast && t.size > t.node.cfg.flat {
		return t.passOn(op, bytes)
	}
	if bytes > 0 && !op.Src.IsZero() {
		t.putSmall(op, bytes)
	}
	t.announce(op)
	if err := t.meetSmall(op); err != nil {
		return err
	}
	if bytes == 0 || op.Dst.IsZero() {
		return nil
	}
	if op.Memo&planTiny != 0 {
		t.sumTiny(op)
		return nil
	}
	t.takeSmall(op)
	return nil
}

// nextSlot advances to the next slot, after all ranks have read its old content.
func (t *Transport) nextSlot() error {
	t.smalls++
	used := &t.smallUsed[t.smalls%smallSlots]
	free := *used + 1
	*used = t.round
	if t.slowest >= free {
		return nil
	}
	return t.allReached(free)
}

// putSmall posts the part of the source, of bytes bytes, that other ranks need.
func (t *Transport) putSmall(op *dist.Op, bytes int) {
	to, from := unsafe.Slice((*byte)(t.parcel(op, t.rank)), bytes), unsafe.Slice((*byte)(op.Src.Pointer()), bytes)
	switch op.Kind {
	case dist.KindReduceScatter, dist.KindAllToAll, dist.KindScatter: // a block for each rank
		own := t.rank * (bytes / t.size)
		copy(to, from[:own])
		own += bytes / t.size
		copy(to[own:], from[own:])
	default:
		copy(to, from)
	}
}

// parcel returns the place of rank r's posted data of the running op: in its announcement, or in a
// slot.
func (t *Transport) parcel(op *dist.Op, r int) unsafe.Pointer {
	if op.Memo&planSlot != 0 {
		return pointer(t.ctl.smallSlot(r, t.smalls))
	}
	return unsafe.Add(t.rings[r], t.round%depth*entryLen)
}

func (t *Transport) postScalar(op *dist.Op) error {
	if op.Red.Kind != dist.RedPreMulSum {
		return nil
	}
	bits, err := reduce.ScalarBits(op.Red.Scalar)
	if err == nil {
		(&sides{scalar: bits}).put(t.entry())
	}
	return err
}

// getScalars reads the scalars that all ranks posted.
func (t *Transport) getScalars() {
	for r := range t.scalars {
		var s sides
		s.get(t.ctl.entry(r, t.round))
		t.scalars[r] = s.scalar
	}
}

// meetSmall waits for the ranks whose data this rank needs. An operation on its caller that needs
// no data goes on at once. A difference in its arguments is then found by the waiting ranks or in
// the next operation, because an announcement hashes all operations so far. On a stream it waits
// for all ranks, and finds the difference now.
func (t *Transport) meetSmall(op *dist.Op) error {
	rootGives := op.Kind == dist.KindBroadcast || op.Kind == dist.KindScatter
	atRoot := op.Root == t.rank
	switch {
	case op.Kind == dist.KindBarrier || op.Kind == dist.KindSync:
		return t.meetAtBarrier()
	case !op.Kind.Rooted():
		return t.meetAll()
	case !t.eager || atRoot && !rootGives:
		return t.meetEach()
	case atRoot == rootGives: // only gives data
		return nil
	}
	if err := t.meet(op.Root); err != nil {
		return err
	}
	return t.same()
}

// passOn is a broadcast along a tree: a rank gets the data from its parent before it announces it.
func (t *Transport) passOn(op *dist.Op, bytes int) error {
	own := unsafe.Slice((*byte)(t.parcel(op, t.rank)), bytes)
	if place := (t.rank - op.Root + t.size) % t.size; place > 0 {
		parent := ((place-1)/fanout + op.Root) % t.size
		if err := t.meet(parent); err != nil {
			return err
		}
		if t.differs { // do not pass on wrong data
			t.sign(op.Signature())
			return t.disagree()
		}
		copy(own, unsafe.Slice((*byte)(t.parcel(op, parent)), bytes))
		copy(op.Dst.Raw(), own)
		t.announce(op)
		return nil
	}
	copy(own, op.Src.Raw())
	t.announce(op)
	move(op.Dst.Pointer(), op.Src.Pointer(), bytes)
	if t.eager {
		return nil
	}
	return t.meetEach()
}

// takeSmall combines the ranks' data into the own destination.
func (t *Transport) takeSmall(op *dist.Op) {
	block := op.Count * op.DType().Size()
	dst, at := op.Dst.Pointer(), 0
	switch op.Kind {
	case dist.KindReduceScatter, dist.KindAllToAll, dist.KindScatter:
		at = t.rank * block
	}
	switch op.Kind {
	case dist.KindAllReduce, dist.KindReduce, dist.KindReduceScatter:
		for r := range t.srcs {
			t.srcs[r] = t.given(op, r, at)
		}
		if op.Red.Kind == dist.RedPreMulSum {
			t.getScalars()
		}
		t.dsts[0] = dst
		t.sum(op, t.dsts[:1], op.Count, 0)
	case dist.KindBroadcast, dist.KindScatter:
		move(dst, t.given(op, op.Root, at), block)
		t.leave(op, op.Root, at, block)
		return
	default: // AllGather, Gather, AllToAll
		for r := range t.size {
			move(unsafe.Add(dst, r*block), t.given(op, r, at), block)
		}
	}
	for r := range t.size {
		t.leave(op, r, at, block)
	}
}

// given returns rank r's data for this operation, from byte at on. For this rank it is the source,
// because others are reading the posted copy.
func (t *Transport) given(op *dist.Op, r, at int) unsafe.Pointer {
	from := op.Src.Pointer()
	if r != t.rank {
		from = t.parcel(op, r)
	}
	return unsafe.Add(from, at)
}

// leastTouched is the size from which touching lines saves their owner more, when it refills them,
// than it costs this rank.
const leastTouched = 2 << 10

// leave touches the data of rank r after this rank has read it, so that r can refill it fast.
func (t *Transport) leave(op *dist.Op, r, at, bytes int) {
	if r != t.rank && bytes >= leastTouched && t.touches() {
		reduce.Touch(t.given(op, r, at), bytes)
	}
}

// move copies n bytes unless source and destination are the same.
func move(dst, src unsafe.Pointer, n int) {
	if dst != src {
		copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
	}
}

// sum reduces n elements of t.srcs in rank order and stores them to all dsts.
func (t *Transport) sum(op *dist.Op, dsts []unsafe.Pointer, n int, how reduce.How) {
	if t.kernelFor != (kernelKey{op.DType(), op.Red.Kind}) {
		t.kernelFor = kernelKey{op.DType(), op.Red.Kind}
		t.kernel = reduce.For(op.DType(), op.Red.Kind)
	}
	t.kernel(dsts, t.srcs, n, t.scalars, how)
}
