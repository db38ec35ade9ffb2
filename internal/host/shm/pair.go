package shm

import (
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// runPair is runLine for two ranks that wait for each other, mostly in one function because calls
// are a large part of its time. Everything that does not need the peer is done before it looks for
// the peer.
func (p *smallPath) runPair(op *dist.Op) error {
	p.op = op
	p.enter(op.Hash())
	slot, n := op.Memo&planSlot != 0, int(op.Memo>>planBytes)
	if slot || !p.roomy() {
		if err := p.makeRoom(slot); err != nil {
			return p.lineError(op, err)
		}
	}
	if n > lineBytes {
		p.putSmall(op, n)
	} else {
		copyLine(p.parcel(op, p.rank), op.Src.Pointer(), uintptr(n))
	}
	p.deliver(op)
	p.ctl.idle(p.rank, op.Seq)
	theirs, want := word(p.rings[1-p.rank], p.round), p.chain<<roundBits|p.round
	first, second := op.Src.Pointer(), p.parcel(op, 1-p.rank)
	if op.Kind == dist.KindReduceScatter {
		block := p.rank * (n / 2)
		first, second = unsafe.Add(first, block), unsafe.Add(second, block)
	}
	if p.rank == 1 {
		first, second = second, first
	}
	met := false
	for range p.spins {
		if met = atomic.LoadUint64(theirs) == want; met {
			break
		}
	}
	if !met { // late, or with a different history
		if err := p.meetEach(); err != nil {
			return p.lineError(op, err)
		}
		p.ctl.idle(p.rank, op.Seq)
	}
	p.seen[1-p.rank], p.slowest = p.round, p.round
	switch {
	case op.Memo&planTiny != 0 && op.Dst.DType() == tensor.F64:
		addPair[float64](op.Dst.Pointer(), first, second, op.Count)
	case op.Memo&planTiny != 0:
		addPair[float32](op.Dst.Pointer(), first, second, op.Count)
	case op.Kind >= dist.KindBarrier:
		return p.leaveInTurn(op)
	case n == 0:
	case op.Kind == dist.KindAllGather && n <= lineBytes:
		p.gatherTiny(op, uintptr(n))
	default:
		p.takeSmall(op)
	}
	return nil
}

// leaveInTurn is the second half of meetAtBarrier for two ranks that have met.
func (p *smallPath) leaveInTurn(op *dist.Op) error {
	switch p.firstOut() {
	case -1:
	case p.rank:
		p.finish()
	default:
		if err := p.finished(1 - p.rank); err != nil {
			return p.lineError(op, err)
		}
		p.ctl.idle(p.rank, op.Seq)
	}
	return nil
}

// runCast is runLine for a broadcast: the root waits for no rank, the others for the root. It
// repeats the beginning of runPair to avoid a call.
func (p *smallPath) runCast(op *dist.Op) error {
	p.op = op
	p.enter(op.Hash())
	slot, n := op.Memo&planSlot != 0, int(op.Memo>>planBytes)
	if slot || !p.roomy() {
		if err := p.makeRoom(slot); err != nil {
			return p.lineError(op, err)
		}
	}
	given, theirs, want := p.parcel(op, op.Root), word(p.rings[op.Root], p.round), p.chain<<roundBits|p.round
	if p.rank == op.Root {
		copyLineOrMore(given, op.Src.Pointer(), n)
		p.deliver(op)
		p.ctl.idle(p.rank, op.Seq)
		if op.Dst != op.Src {
			copyLineOrMore(op.Dst.Pointer(), op.Src.Pointer(), n)
		}
		return nil
	}
	p.deliver(op)
	p.ctl.idle(p.rank, op.Seq)
	met := false
	for range p.spins {
		if met = atomic.LoadUint64(theirs) == want; met {
			p.seen[op.Root] = p.round
			break
		}
	}
	if !met { // late, or with a different history
		err := p.meet(op.Root)
		if err == nil {
			err = p.same()
		}
		if err != nil {
			return p.lineError(op, err)
		}
		p.ctl.idle(p.rank, op.Seq)
	}
	copyLineOrMore(op.Dst.Pointer(), given, n)
	p.leave(op, op.Root, 0, n)
	return nil
}

// copyLineOrMore copies n bytes between places that do not overlap.
func copyLineOrMore(dst, src unsafe.Pointer, n int) {
	if n <= lineBytes {
		copyLine(dst, src, uintptr(n))
		return
	}
	copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
}

// addPair sets dst[i] = a[i] + b[i] for n elements.
func addPair[T float32 | float64](dst, a, b unsafe.Pointer, n int) {
	x, y, z := unsafe.Slice((*T)(a), n), unsafe.Slice((*T)(b), n), unsafe.Slice((*T)(dst), n)
	i := 0
	for ; i+1 < len(z); i += 2 { // the time of a shorter loop depends on its place in memory
		z[i] = x[i] + y[i]
		z[i+1] = x[i+1] + y[i+1]
	}
	if i < len(z) {
		z[i] = x[i] + y[i]
	}
}
