package shm

import (
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// runLine is runSmall on the caller, without scalars, reduced to the necessary steps. It announces
// as early and takes the result as late as possible: work before and after counts for every rank,
// work in between does not.
func (p *smallPath) runLine(op *dist.Op) error {
	p.op = op
	p.enter(op.Hash())
	slot, n := op.Memo&planSlot != 0, op.Memo>>planBytes
	if err := p.makeRoom(slot); err != nil {
		return p.lineError(op, err)
	}
	switch {
	case n == 0 || op.Src.IsZero():
	case n > lineBytes:
		p.putSmall(op, int(n))
	default:
		copyLine(p.parcel(op, p.rank), op.Src.Pointer(), uintptr(n))
	}
	p.deliver(op)
	err := p.meetLine(op)
	switch {
	case err != nil:
		return p.lineError(op, err)
	case n == 0 || op.Dst.IsZero():
	case op.Memo&planTiny != 0:
		p.sumTiny(op)
	case op.Kind == dist.KindAllGather && n <= lineBytes:
		p.gatherTiny(op, uintptr(n))
	default:
		p.takeSmall(op)
	}
	p.ctl.idle(p.rank, op.Seq)
	return nil
}

// makeRoom returns when the entry of the round is free, and also a slot if slot is set.
func (p *smallPath) makeRoom(slot bool) error {
	if !p.roomy() {
		if err := p.allReached(p.round - depth + 1); err != nil {
			return err
		}
	}
	if slot {
		return p.nextSlot()
	}
	return nil
}

// lineError ends op and returns its error.
func (p *smallPath) lineError(op *dist.Op, err error) error {
	p.ctl.idle(p.rank, op.Seq)
	return p.opError(op, err)
}

// meetLine is meetSmall with the common case inline: a peer that comes soon and agrees.
func (p *smallPath) meetLine(op *dist.Op) error {
	if op.Kind.Rooted() || p.size > 2 && op.Kind >= dist.KindBarrier {
		return p.meetSmall(op)
	}
	want := p.chain<<roundBits | p.round
	for r := range p.rings {
		if r == p.rank {
			continue
		}
		w := word(p.rings[r], p.round)
		for range p.spins {
			if atomic.LoadUint64(w) == want {
				p.seen[r] = p.round
				break
			}
		}
		if p.seen[r] != p.round {
			return p.meetEach() // late, or with a different history
		}
	}
	p.slowest = p.round
	return nil
}

// copyLine copies n bytes, at most lineBytes; it costs less than the call of a larger copy.
func copyLine(dst, src unsafe.Pointer, n uintptr) {
	i := uintptr(0)
	for ; i+8 <= n; i += 8 {
		*(*[8]byte)(unsafe.Add(dst, i)) = *(*[8]byte)(unsafe.Add(src, i))
	}
	for ; i < n; i++ {
		*(*byte)(unsafe.Add(dst, i)) = *(*byte)(unsafe.Add(src, i))
	}
}

// gatherTiny copies the n bytes of each announcement.
func (p *smallPath) gatherTiny(op *dist.Op, n uintptr) {
	dst := op.Dst.Pointer()
	for r := range p.rings {
		copyLine(unsafe.Add(dst, uintptr(r)*n), p.given(op, r, 0), n)
	}
}

// sumTiny adds the floats of all ranks in rank order. They are so few that the call of a kernel
// would cost as much as the sum.
func (p *smallPath) sumTiny(op *dist.Op) {
	if op.Dst.DType() == tensor.F64 {
		addLines[float64](p, op)
		return
	}
	addLines[float32](p, op)
}

func addLines[T float32 | float64](p *smallPath, op *dist.Op) {
	dst := unsafe.Slice((*T)(op.Dst.Pointer()), op.Count)
	at := 0
	if op.Kind == dist.KindReduceScatter {
		at = p.rank * int(op.Dst.Bytes())
	}
	if p.size == 2 {
		addPair[T](op.Dst.Pointer(), p.given(op, 0, at), p.given(op, 1, at), op.Count)
		return
	}
	first := unsafe.Slice((*T)(p.given(op, 0, at)), len(dst))
	var sum [tinyBytes / 4]T // not dst, which may be a source
	n := copy(sum[:], first)
	for r := 1; r < p.size; r++ {
		for i, v := range unsafe.Slice((*T)(p.given(op, r, at)), n) {
			sum[i] += v
		}
	}
	copy(dst, sum[:n])
}
