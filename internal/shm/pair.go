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
func (t *Transport) runPair(op *dist.Op) error {
	t.op = op
	t.enter(op.Hash())
	slot, n := op.Memo&planSlot != 0, int(op.Memo>>planBytes)
	if slot || !t.roomy() {
		if err := t.makeRoom(slot); err != nil {
			return t.lineError(op, err)
		}
	}
	if n > lineBytes {
		t.putSmall(op, n)
	} else {
		copyLine(t.parcel(op, t.rank), op.Src.Pointer(), uintptr(n))
	}
	t.announce(op)
	t.ctl.idle(t.rank, op.Seq)
	theirs, want := word(t.rings[1-t.rank], t.round), t.chain<<roundBits|t.round
	first, second := op.Src.Pointer(), t.parcel(op, 1-t.rank)
	if op.Kind == dist.KindReduceScatter {
		block := t.rank * (n / 2)
		first, second = unsafe.Add(first, block), unsafe.Add(second, block)
	}
	if t.rank == 1 {
		first, second = second, first
	}
	met := false
	for range t.spins {
		if met = atomic.LoadUint64(theirs) == want; met {
			break
		}
	}
	if !met { // late, or with a different history
		if err := t.meetEach(); err != nil {
			return t.lineError(op, err)
		}
		t.ctl.idle(t.rank, op.Seq)
	}
	t.seen[1-t.rank], t.slowest = t.round, t.round
	switch {
	case op.Memo&planTiny != 0 && op.Dst.DType() == tensor.F64:
		addPair[float64](op.Dst.Pointer(), first, second, op.Count)
	case op.Memo&planTiny != 0:
		addPair[float32](op.Dst.Pointer(), first, second, op.Count)
	case op.Kind >= dist.KindBarrier:
		return t.leaveInTurn(op)
	case n == 0:
	case op.Kind == dist.KindAllGather && n <= lineBytes:
		t.gatherTiny(op, uintptr(n))
	default:
		t.takeSmall(op)
	}
	return nil
}

// leaveInTurn is the second half of meetAtBarrier for two ranks that have met.
func (t *Transport) leaveInTurn(op *dist.Op) error {
	switch t.firstOut() {
	case -1:
	case t.rank:
		t.finish()
	default:
		if err := t.finished(1 - t.rank); err != nil {
			return t.lineError(op, err)
		}
		t.ctl.idle(t.rank, op.Seq)
	}
	return nil
}

// runCast is runLine for a broadcast: the root waits for no rank, the others for the root. It
// repeats the beginning of runPair to avoid a call.
func (t *Transport) runCast(op *dist.Op) error {
	t.op = op
	t.enter(op.Hash())
	slot, n := op.Memo&planSlot != 0, int(op.Memo>>planBytes)
	if slot || !t.roomy() {
		if err := t.makeRoom(slot); err != nil {
			return t.lineError(op, err)
		}
	}
	given, theirs, want := t.parcel(op, op.Root), word(t.rings[op.Root], t.round), t.chain<<roundBits|t.round
	if t.rank == op.Root {
		copyLineOrMore(given, op.Src.Pointer(), n)
		t.announce(op)
		t.ctl.idle(t.rank, op.Seq)
		if op.Dst != op.Src {
			copyLineOrMore(op.Dst.Pointer(), op.Src.Pointer(), n)
		}
		return nil
	}
	t.announce(op)
	t.ctl.idle(t.rank, op.Seq)
	met := false
	for range t.spins {
		if met = atomic.LoadUint64(theirs) == want; met {
			t.seen[op.Root] = t.round
			break
		}
	}
	if !met { // late, or with a different history
		err := t.meet(op.Root)
		if err == nil {
			err = t.same()
		}
		if err != nil {
			return t.lineError(op, err)
		}
		t.ctl.idle(t.rank, op.Seq)
	}
	copyLineOrMore(op.Dst.Pointer(), given, n)
	t.leave(op, op.Root, 0, n)
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
	for i := range z {
		z[i] = x[i] + y[i]
	}
}
