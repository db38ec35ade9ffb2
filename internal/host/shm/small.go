package shm

import (
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/asym"
	"github.com/symgrad/symgrad/internal/host/reduce"
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

// smallPath runs operations whose data is in the announcements, or in one small slot of each rank.
type smallPath struct {
	announcer
	reducer
	smalls    uint64 // operations that went through small slots
	smallUsed [smallSlots]uint64
}

func (p *smallPath) plan(op *dist.Op) uint64 {
	n := 0
	if op.Count > 0 {
		n = op.Count * op.DType().Size()
		switch op.Kind { // scattering kinds have a block for every rank
		case dist.KindReduceScatter, dist.KindAllToAll, dist.KindScatter:
			n *= p.size
		}
	}
	plan := uint64(n)<<planBytes | planMade
	if n <= p.ctl.small {
		plan |= planSmall
	}
	scaled := op.Kind.Reduces() && op.Red.Kind == dist.RedPreMulSum // the announcement has the scalar
	if n > lineBytes || scaled {
		plan |= planSlot
	}
	if scaled || n > p.ctl.small {
		return plan
	}
	if p.size <= p.node.cfg.flat {
		plan |= planLine
		switch {
		case op.Kind == dist.KindBroadcast:
			plan |= planCast
		case p.size == 2 && !op.Kind.Rooted():
			plan |= planPair
		}
	}
	sums := op.Kind == dist.KindAllReduce || op.Kind == dist.KindReduceScatter
	if sums && op.Red.Kind == dist.RedSum && n > 0 && n <= tinyBytes && p.size > 1 {
		if dt := op.DType(); dt == tensor.F32 || dt == tensor.F64 {
			plan |= planTiny
		}
	}
	return plan
}

// runSmall runs an operation whose data is in the announcement, or in one slot written before it.
// It synchronizes once, and a rank that only gives data does not wait.
func (p *smallPath) runSmall(op *dist.Op) error {
	slot, bytes := op.Memo&planSlot != 0, int(op.Memo>>planBytes)
	if err := p.open(op.Hash()); err != nil {
		return err
	}
	if slot {
		if err := p.nextSlot(); err != nil {
			return err
		}
		if op.Kind.Reduces() {
			if err := p.postScalar(op); err != nil {
				return err
			}
		}
	}
	if op.Kind == dist.KindBroadcast && p.size > p.node.cfg.flat {
		return p.passOn(op, bytes)
	}
	if bytes > 0 && !op.Src.IsZero() {
		p.putSmall(op, bytes)
	}
	p.deliver(op)
	if err := p.meetSmall(op); err != nil {
		return err
	}
	if bytes == 0 || op.Dst.IsZero() {
		return nil
	}
	if op.Memo&planTiny != 0 {
		p.sumTiny(op)
		return nil
	}
	p.takeSmall(op)
	return nil
}

// nextSlot advances to the next slot, after all ranks have read its old content.
func (p *smallPath) nextSlot() error {
	p.smalls++
	used := &p.smallUsed[p.smalls%smallSlots]
	free := *used + 1
	*used = p.round
	if p.slowest >= free {
		return nil
	}
	return p.allReached(free)
}

// putSmall posts the part of the source, of bytes bytes, that other ranks need.
func (p *smallPath) putSmall(op *dist.Op, bytes int) {
	to, from := unsafe.Slice((*byte)(p.parcel(op, p.rank)), bytes), unsafe.Slice((*byte)(op.Src.Pointer()), bytes)
	switch op.Kind {
	case dist.KindReduceScatter, dist.KindAllToAll, dist.KindScatter: // a block for each rank
		own := p.rank * (bytes / p.size)
		copy(to, from[:own])
		own += bytes / p.size
		copy(to[own:], from[own:])
	default:
		copy(to, from)
	}
}

// deliver publishes the open round, that of op, and its data. It records op afterwards, while the
// announcements of the others arrive.
func (p *smallPath) deliver(op *dist.Op) {
	p.sign(op.Signature())
	p.post()
	p.handOut(op)
	op.Posted()
}

// mostHandedOut is the largest size for handOut: from 2 KiB on it costs more than it saves.
const mostHandedOut = 1 << 10

// handOut moves posted data, for which another core waits, to a cache that both share. Measured
// between two ranks, a small operation takes a tenth to a third less time. A barrier would end a
// tenth sooner, but the operation after it would take longer.
func (p *smallPath) handOut(op *dist.Op) {
	n := op.Memo >> planBytes
	if n == 0 || n > mostHandedOut || p.size != 2 || p.crowded() || op.Kind == dist.KindBroadcast && p.rank != op.Root {
		return
	}
	asym.Demote(unsafe.Pointer(word(p.rings[p.rank], p.round)), 1)
	if op.Memo&planSlot != 0 {
		asym.Demote(p.parcel(op, p.rank), int(n+63)/64)
	}
}

// claim claims the lines that this rank will fill in its next operation, if that resembles op. The
// others have read them since. This way they are invalidated now, and not while ranks wait for the
// stores.
func (p *smallPath) claim(op *dist.Op) {
	asym.Claim(unsafe.Add(p.rings[p.rank], (p.round+1)%depth*entryLen), 1)
	if op.Memo&planSlot != 0 && (op.Kind != dist.KindBroadcast || op.Root == p.rank) {
		asym.Claim(pointer(p.ctl.smallSlot(p.rank, p.smalls+1)), int(op.Memo>>planBytes+63)/64)
	}
}

// parcel returns the place of rank r's posted data of the running op: in its announcement, or in a
// slot.
func (p *smallPath) parcel(op *dist.Op, r int) unsafe.Pointer {
	if op.Memo&planSlot != 0 {
		return pointer(p.ctl.smallSlot(r, p.smalls))
	}
	return unsafe.Add(p.rings[r], p.round%depth*entryLen)
}

func (p *smallPath) postScalar(op *dist.Op) error {
	if op.Red.Kind != dist.RedPreMulSum {
		return nil
	}
	bits, err := reduce.ScalarBits(op.Red.Scalar)
	if err == nil {
		(&sides{scalar: bits}).put(p.entry())
	}
	return err
}

// getScalars reads the scalars that all ranks posted.
func (p *smallPath) getScalars() {
	for r := range p.scalars {
		var s sides
		s.get(p.ctl.entry(r, p.round))
		p.scalars[r] = s.scalar
	}
}

// meetSmall waits for the ranks whose data this rank needs. An operation on its caller that needs
// no data goes on at once. A difference in its arguments is then found by the waiting ranks or in
// the next operation, because an announcement hashes all operations so far. On a stream it waits
// for all ranks, and finds the difference now.
func (p *smallPath) meetSmall(op *dist.Op) error {
	rootGives := op.Kind == dist.KindBroadcast || op.Kind == dist.KindScatter
	atRoot := op.Root == p.rank
	switch {
	case op.Kind == dist.KindBarrier || op.Kind == dist.KindSync:
		return p.meetAtBarrier()
	case !op.Kind.Rooted():
		return p.meetAll()
	case !p.eager || atRoot && !rootGives:
		return p.meetEach()
	case atRoot == rootGives: // only gives data
		return nil
	}
	if err := p.meet(op.Root); err != nil {
		return err
	}
	return p.same()
}

// passOn is a broadcast along a tree: a rank gets the data from its parent before it announces it.
func (p *smallPath) passOn(op *dist.Op, bytes int) error {
	own := unsafe.Slice((*byte)(p.parcel(op, p.rank)), bytes)
	if place := (p.rank - op.Root + p.size) % p.size; place > 0 {
		parent := ((place-1)/fanout + op.Root) % p.size
		if err := p.meet(parent); err != nil {
			return err
		}
		if p.differs { // do not pass on wrong data
			p.sign(op.Signature())
			return p.disagree()
		}
		copy(own, unsafe.Slice((*byte)(p.parcel(op, parent)), bytes))
		copy(op.Dst.Raw(), own)
		p.deliver(op)
		return nil
	}
	copy(own, op.Src.Raw())
	p.deliver(op)
	move(op.Dst.Pointer(), op.Src.Pointer(), bytes)
	if p.eager {
		return nil
	}
	return p.meetEach()
}

// takeSmall combines the ranks' data into the own destination.
func (p *smallPath) takeSmall(op *dist.Op) {
	block := op.Count * op.DType().Size()
	dst, at := op.Dst.Pointer(), 0
	switch op.Kind {
	case dist.KindReduceScatter, dist.KindAllToAll, dist.KindScatter:
		at = p.rank * block
	}
	switch op.Kind {
	case dist.KindAllReduce, dist.KindReduce, dist.KindReduceScatter:
		for r := range p.srcs {
			p.srcs[r] = p.given(op, r, at)
		}
		if op.Red.Kind == dist.RedPreMulSum {
			p.getScalars()
		}
		p.dsts[0] = dst
		p.sum(op, p.dsts[:1], op.Count, 0)
	case dist.KindBroadcast, dist.KindScatter:
		move(dst, p.given(op, op.Root, at), block)
		p.leave(op, op.Root, at, block)
		return
	default: // AllGather, Gather, AllToAll
		for r := range p.size {
			move(unsafe.Add(dst, r*block), p.given(op, r, at), block)
		}
	}
	for r := range p.size {
		p.leave(op, r, at, block)
	}
}

// given returns rank r's data for this operation, from byte at on. For this rank it is the source,
// because others are reading the posted copy.
func (p *smallPath) given(op *dist.Op, r, at int) unsafe.Pointer {
	from := op.Src.Pointer()
	if r != p.rank {
		from = p.parcel(op, r)
	}
	return unsafe.Add(from, at)
}

// leastTouched is the size from which touching lines saves their owner more, when it refills them,
// than it costs this rank.
const leastTouched = 2 << 10

// leave touches the data of rank r after this rank has read it, so that r can refill it fast.
func (p *smallPath) leave(op *dist.Op, r, at, bytes int) {
	if r != p.rank && bytes >= leastTouched && p.touches() {
		reduce.Touch(p.given(op, r, at), bytes)
	}
}

// move copies n bytes unless source and destination are the same.
func move(dst, src unsafe.Pointer, n int) {
	if dst != src {
		copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
	}
}
