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
	defer r.heap.gate.leave()
	for range r.heap.spins {
		if hit := r.look(w); hit.Index >= 0 {
			return hit, nil
		}
	}
	return r.await(ctx, w)
}

// await is the slow part of a wait, a function of its own because what its closures hold is allocated.
func (r *Region) await(ctx context.Context, w symmetric.Watch) (symmetric.Hit, error) {
	var hit symmetric.Hit
	n := int64(w.Count) * int64(w.DType.Size())
	done := func() bool {
		hit = r.look(w)
		return hit.Index >= 0
	}
	leave := func() bool { return r.of.freed.Load() || r.heap.gate.closed() }
	err := r.heap.host.Await(ctx, r.off+w.At, n, done, leave)
	switch {
	case hit.Index >= 0:
		return hit, nil
	case r.heap.gate.closed():
		err = errClosed
	case r.of.freed.Load():
		err = fmt.Errorf("freed: %w", symmetric.ErrNotAllocated)
	}
	err = fmt.Errorf("for %v %v, not %v: %w", w.Cmp, format(w.DType, w.Value), format(w.DType, r.word(w.At, w.DType)), err)
	return symmetric.Hit{Index: -1}, r.wrong("wait", r.heap.rank, w.At, n, err)
}

// Test implements symmetric.Region.
func (r *Region) Test(w symmetric.Watch) (symmetric.Hit, error) {
	if err := r.enterWatch("test", w); err != nil {
		return symmetric.Hit{Index: -1}, err
	}
	defer r.heap.gate.leave()
	return r.look(w), nil
}

// enterWatch is enter for a wait or test.
func (r *Region) enterWatch(call string, w symmetric.Watch) error {
	size := int64(w.DType.Size())
	if err := r.checkWatch(w); err != nil {
		return r.wrong(call, r.heap.rank, w.At, size, err)
	}
	if (r.off+w.At)&(size-1) != 0 {
		return r.wrong(call, r.heap.rank, w.At, size, misaligned(size))
	}
	return r.enter(call, r.heap.rank, w.At, int64(w.Count)*size)
}

func (r *Region) checkWatch(w symmetric.Watch) error {
	switch w.DType {
	case tensor.I32, tensor.I64, tensor.U32, tensor.U64:
	default:
		return fmt.Errorf("%w: no wait for a word of %v", dist.ErrDType, w.DType)
	}
	switch {
	case !w.Cmp.Valid():
		return fmt.Errorf("%w: %v", dist.ErrInvalid, w.Cmp)
	case w.Count < 1 || int64(w.Count) > r.n: // before it is multiplied
		return fmt.Errorf("%w: %d words", dist.ErrCount, w.Count)
	}
	return nil
}

// look is the state of the words of w.
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

// word is a word of the own part.
func (r *Region) word(at int64, dt tensor.DType) uint64 {
	p := r.at(r.heap.rank, at)
	if dt.Size() == 8 {
		return atomic.LoadUint64((*uint64)(p))
	}
	return uint64(atomic.LoadUint32((*uint32)(unsafe.Pointer(p))))
}

// format is a word as a number.
func format(dt tensor.DType, bits uint64) string {
	switch dt {
	case tensor.I64:
		return fmt.Sprint(int64(bits))
	case tensor.I32:
		return fmt.Sprint(int32(bits))
	case tensor.U32:
		return fmt.Sprint(uint32(bits))
	}
	return fmt.Sprint(bits)
}
