package gpu

import (
	"fmt"
	"math"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// The rules of this file are those of internal/hostheap: the same arguments are wrong on every heap.

// signalBytes is the size of a signal.
const signalBytes = 8

// checkSize is the error of every rank for wrong arguments of Alloc that they share.
func checkSize(alignment, bytes int64) error {
	if bytes < 0 {
		return fmt.Errorf("%w: negative size", dist.ErrCount)
	}
	if err := symmetric.CheckAlignment(alignment, symmetric.MaxAlignment); err != nil {
		return fmt.Errorf("%w: %w", dist.ErrInvalid, err)
	}
	return nil
}

// misaligned is the cause of an error for a word of n bytes at an offset that does not suit it.
func misaligned(n int64) error {
	return fmt.Errorf("%w: %w, to be a multiple of %d in the heap", dist.ErrInvalid, symmetric.ErrAlignment, n)
}

func checkAtomic(a symmetric.Atomic) error {
	if a.Op == symmetric.AtomicInvalid || a.Op > symmetric.OpCompareSwap {
		return fmt.Errorf("%w: no such operation", dist.ErrInvalid)
	}
	switch a.DType {
	case tensor.I32, tensor.I64, tensor.U32, tensor.U64:
		return nil
	case tensor.F32, tensor.F64:
		if a.Op == symmetric.OpFetch || a.Op == symmetric.OpSet {
			return nil
		}
		return fmt.Errorf("%w: %v is only fetched and set at once", dist.ErrDType, a.DType)
	}
	return fmt.Errorf("%w: %v has no atomics", dist.ErrDType, a.DType)
}

func checkSignal(op symmetric.SignalOp) error {
	if op != symmetric.SignalSet && op != symmetric.SignalAdd {
		return fmt.Errorf("%w: signal operation %d", dist.ErrInvalid, op)
	}
	return nil
}

// checkWatch is about a watch of words in a region of extent bytes.
func checkWatch(w symmetric.Watch, extent int64) error {
	switch w.DType {
	case tensor.I32, tensor.I64, tensor.U32, tensor.U64:
	default:
		return fmt.Errorf("%w: no wait for a word of %v", dist.ErrDType, w.DType)
	}
	switch {
	case !w.Cmp.Valid():
		return fmt.Errorf("%w: %v", dist.ErrInvalid, w.Cmp)
	case w.Count < 1 || int64(w.Count) > extent: // before it is multiplied
		return fmt.Errorf("%w: %d words", dist.ErrCount, w.Count)
	}
	return nil
}

// span is the bytes from the first to behind the last of count elements of size bytes, stride elements apart; false when a
// number is out of range.
func span(count, stride, size int) (int64, bool) {
	switch {
	case count < 0 || stride < 1:
		return 0, false
	case count == 0:
		return 0, true
	case int64(count-1) > (math.MaxInt64/int64(size)-1)/int64(stride):
		return 0, false
	}
	return (int64(count-1)*int64(stride) + 1) * int64(size), true
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
