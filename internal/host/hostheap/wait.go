package hostheap

import (
	"context"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Wait implements symmetric.Region.
func (r *Region) Wait(ctx context.Context, w symmetric.Watch) (symmetric.Hit, error) {
	if ctx == nil {
		return symmetric.Hit{Index: -1}, r.wrong("wait", r.heap.rank, w.At, 0, fmt.Errorf("%w: no context", dist.ErrInvalid))
	}
	if err := r.enterWatch("wait", w); err != nil {
		return symmetric.Hit{Index: -1}, err
	}
	defer r.heap.gate.Leave()
	for range r.heap.spins {
		if hit := r.look(w); hit.Index >= 0 {
			return hit, nil
		}
	}
	return r.await(ctx, w)
}

// await is the slow part of a wait. It is a separate function because its closures allocate.
func (r *Region) await(ctx context.Context, w symmetric.Watch) (symmetric.Hit, error) {
	var hit symmetric.Hit
	n := int64(w.Count) * int64(w.DType.Size())
	done := func() bool {
		hit = r.look(w)
		return hit.Index >= 0
	}
	var left error // kept, because a Free that fails makes the region valid again
	leave := func() bool {
		switch {
		case r.heap.gate.Closed():
			left = ErrClosed
		case r.of.freed.Load():
			left = ErrFreed
		}
		return left != nil
	}
	err := r.heap.host.Await(ctx, r.off+w.At, n, done, leave)
	if hit.Index >= 0 {
		return hit, nil
	}
	if leave() {
		err = left
	}
	return symmetric.Hit{Index: -1}, r.wrong("wait", r.heap.rank, w.At, n, Unmet(w, r.word(w.At, w.DType), err))
}

// Test implements symmetric.Region.
func (r *Region) Test(w symmetric.Watch) (symmetric.Hit, error) {
	if err := r.enterWatch("test", w); err != nil {
		return symmetric.Hit{Index: -1}, err
	}
	defer r.heap.gate.Leave()
	return r.look(w), nil
}

// enterWatch is enter for a wait or test.
func (r *Region) enterWatch(call string, w symmetric.Watch) error {
	size := int64(w.DType.Size())
	if err := CheckWatch(w, r.off, r.n); err != nil {
		return r.wrong(call, r.heap.rank, w.At, size, err)
	}
	return r.enter(call, r.heap.rank, w.At, int64(w.Count)*size)
}

// look checks the words of w.
func (r *Region) look(w symmetric.Watch) symmetric.Hit {
	size := int64(w.DType.Size())
	var bits uint64
	for i := range w.Count {
		bits = r.word(w.At+int64(i)*size, w.DType)
		if w.Cmp.Holds(w.DType, bits, w.Value) != w.All {
			if w.All {
				return symmetric.Hit{Index: -1}
			}
			return symmetric.Hit{Index: i, Bits: bits}
		}
	}
	if w.All {
		return symmetric.Hit{Index: w.Count - 1, Bits: bits}
	}
	return symmetric.Hit{Index: -1}
}

// word returns a word of the own part.
func (r *Region) word(at int64, dt tensor.DType) uint64 {
	p := r.at(r.heap.rank, at)
	if dt.Size() == 8 {
		return atomic.LoadUint64((*uint64)(p))
	}
	return uint64(atomic.LoadUint32((*uint32)(unsafe.Pointer(p))))
}
