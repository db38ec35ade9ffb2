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
func (t *Transport) runLine(op *dist.Op) error {
	t.op = op
	t.enter(op.Hash())
	slot, n := op.Memo&planSlot != 0, op.Memo>>planBytes
	if err := t.makeRoom(slot); err != nil {
		return t.lineError(op, err)
	}
	switch {
	case n == 0 || op.Src.IsZero():
	case n > lineBytes:
		t.putSmall(op, int(n))
	default:
		copyLine(t.parcel(op, t.rank), op.Src.Pointer(), uintptr(n))
	}
	t.announce(op)
	err := t.meetLine(op)
	switch {
	case err != nil:
		return t.lineError(op, err)
	case n == 0 || op.Dst.IsZero():
	case op.Memo&planTiny != 0:
		t.sumTiny(op)
	case op.Kind == dist.KindAllGather && n <= lineBytes:
		t.gatherTiny(op, uintptr(n))
	default:
		t.takeSmall(op)
	}
	t.ctl.idle(t.rank, op.Seq)
	return nil
}

// makeRoom returns when the entry of the round is free, and also a slot if slot is set.
func (t *Transport) makeRoom(slot bool) error {
	if !t.roomy() {
		if err := t.allReached(t.round - depth + 1); err != nil {
			return err
		}
	}
	if slot {
		return t.nextSlot()
	}
	return nil
}

// lineError ends op and returns its error.
func (t *Transport) lineError(op *dist.Op, err error) error {
	t.ctl.idle(t.rank, op.Seq)
	return t.opError(op, err)
}

// meetLine is meetSmall with the common case inline: a peer that comes soon and agrees.
func (t *Transport) meetLine(op *dist.Op) error {
	if op.Kind.Rooted() || t.size > 2 && op.Kind >= dist.KindBarrier {
		return t.meetSmall(op)
	}
	want := t.chain<<roundBits | t.round
	for r := range t.rings {
		if r == t.rank {
			continue
		}
		w := word(t.rings[r], t.round)
		for range t.spins {
			if atomic.LoadUint64(w) == want {
				t.seen[r] = t.round
				break
			}
		}
		if t.seen[r] != t.round {
			return t.meetEach() // late, or with a different history
		}
	}
	t.slowest = t.round
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
func (t *Transport) gatherTiny(op *dist.Op, n uintptr) {
	dst := op.Dst.Pointer()
	for r := range t.rings {
		copyLine(unsafe.Add(dst, uintptr(r)*n), t.given(op, r, 0), n)
	}
}

// sumTiny adds the floats of all ranks in rank order. They are so few that the call of a kernel
// would cost as much as the sum.
func (t *Transport) sumTiny(op *dist.Op) {
	if op.Dst.DType() == tensor.F64 {
		addLines[float64](t, op)
		return
	}
	addLines[float32](t, op)
}

func addLines[T float32 | float64](t *Transport, op *dist.Op) {
	dst := unsafe.Slice((*T)(op.Dst.Pointer()), op.Count)
	at := 0
	if op.Kind == dist.KindReduceScatter {
		at = t.rank * int(op.Dst.Bytes())
	}
	if t.size == 2 {
		addPair[T](op.Dst.Pointer(), t.given(op, 0, at), t.given(op, 1, at), op.Count)
		return
	}
	first := unsafe.Slice((*T)(t.given(op, 0, at)), len(dst))
	var sum [tinyBytes / 4]T // not dst, which may be a source
	n := copy(sum[:], first)
	for r := 1; r < t.size; r++ {
		for i, v := range unsafe.Slice((*T)(t.given(op, r, at)), n) {
			sum[i] += v
		}
	}
	copy(dst, sum[:n])
}
