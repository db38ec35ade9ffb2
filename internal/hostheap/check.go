package hostheap

import (
	"fmt"
	"math"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// The rules of this file hold on every heap, wherever its memory lies: the same arguments are wrong
// on all of them, with the same errors.

var (
	// ErrClosed is the cause of an error on a closed heap. It matches dist.ErrClosed.
	ErrClosed = fmt.Errorf("the heap: %w", dist.ErrClosed)
	// ErrFreed is the cause of an error on a region that was given back. It matches
	// symmetric.ErrNotAllocated.
	ErrFreed = fmt.Errorf("freed: %w", symmetric.ErrNotAllocated)
)

// SignalBytes is the size of a signal.
const SignalBytes = 8

// Product is the bytes of count elements of size bytes each, as an argument that all ranks refuse
// or none: -1 where one of the two is negative, and where there are too many the largest number,
// which no heap holds.
func Product(count, size int64) int64 {
	switch {
	case count < 0 || size < 0:
		return -1
	case size > 0 && count > math.MaxInt64/size:
		return math.MaxInt64
	}
	return count * size
}

// addressable is more than a process has addresses for.
const addressable = 1 << 47

// CheckHeap is an error for a heap of bytes bytes on each of n ranks that no process can map,
// before sizes are rounded and multiplied.
func CheckHeap(bytes int64, n int) error {
	if bytes > addressable/int64(n) {
		return fmt.Errorf("%w: %d parts of %d B are more than a process can address", symmetric.ErrNoSpace, n, bytes)
	}
	return nil
}

// CheckSize is the error of every rank for wrong arguments of Alloc that they share.
func CheckSize(alignment, bytes int64) error {
	if bytes < 0 {
		return fmt.Errorf("%w: negative size", dist.ErrCount)
	}
	if err := symmetric.CheckAlignment(alignment, symmetric.MaxAlignment); err != nil {
		return fmt.Errorf("%w: %w", dist.ErrInvalid, err)
	}
	return nil
}

// CheckPlace returns the error of an access of n bytes at offset at of rank's part of a region of
// extent bytes, of so many ranks: nil where the place exists.
func CheckPlace(rank, ranks int, at, n, extent int64) error {
	switch {
	case rank < 0 || rank >= ranks:
		return fmt.Errorf("%w %d is not in 0 to %d", dist.ErrRank, rank, ranks-1)
	case n < 0:
		return fmt.Errorf("%w: a negative length", dist.ErrRange)
	case at < 0:
		return fmt.Errorf("%w: the offset is before the region", dist.ErrRange)
	case at > extent:
		return fmt.Errorf("%w: the offset is beyond the region, which has %d B", dist.ErrRange, extent)
	case n > extent-at:
		return fmt.Errorf("%w: it ends beyond the region, which has %d B", dist.ErrRange, extent)
	}
	return nil
}

// CheckWord is an error for a word of bytes bytes, a power of two, at an offset of the heap that is
// no multiple of them.
func CheckWord(off, bytes int64) error {
	if off&(bytes-1) == 0 {
		return nil
	}
	return misaligned(bytes)
}

func misaligned(bytes int64) error {
	return fmt.Errorf("%w: %w, to be a multiple of %d in the heap", dist.ErrInvalid, symmetric.ErrAlignment, bytes)
}

// CheckBuffer is an error for the local side of a transfer that is no buffer, or lies neither on
// the host nor on the device on.
func CheckBuffer(b tensor.Buffer, on tensor.Device) error {
	if d := b.Device(); !b.IsZero() && (d == tensor.Host || d == on) {
		return nil
	}
	return wrongBuffer(b, on)
}

func wrongBuffer(b tensor.Buffer, on tensor.Device) error {
	if b.IsZero() {
		return fmt.Errorf("%w: no buffer", dist.ErrDType)
	}
	return fmt.Errorf("%w: the buffer is on %v, the heap on %v", dist.ErrDevice, b.Device(), on)
}

// CheckStrides is the bytes that a strided transfer with b, which has been checked, spans in its
// region.
//
// Errors: ErrRange for numbers out of range, and for more elements than b has.
func CheckStrides(b tensor.Buffer, s symmetric.Strides) (int64, error) {
	size := b.DType().Size()
	there, ok := extent(s.Count, s.Region, size)
	here, ok2 := extent(s.Count, s.Buffer, size)
	if !ok || !ok2 || here > b.Bytes() {
		return there, fmt.Errorf("%w: %d elements at a stride of %d in the region and %d in the buffer, which has %d: "+
			"want strides of at least 1 that stay in the buffer", dist.ErrRange, s.Count, s.Region, s.Buffer, b.Len())
	}
	return there, nil
}

// extent is the bytes from the first to behind the last of count elements of size bytes, stride
// elements apart; false when a number is out of range.
func extent(count, stride, size int) (int64, bool) {
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

// CheckAtomic is an error for an operation that there is not, or not for its type.
func CheckAtomic(a symmetric.Atomic) error {
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

// CheckSignal is an error for an operation that there is not.
func CheckSignal(op symmetric.SignalOp) error {
	if op != symmetric.SignalSet && op != symmetric.SignalAdd {
		return fmt.Errorf("%w: signal operation %d", dist.ErrInvalid, op)
	}
	return nil
}

// CheckWatch is about a watch of words in a region of bytes bytes that begins at offset off of its
// heap. That they lie in the region is for the access itself to check.
func CheckWatch(w symmetric.Watch, off, bytes int64) error {
	switch w.DType {
	case tensor.I32, tensor.I64, tensor.U32, tensor.U64:
	default:
		return fmt.Errorf("%w: no wait for a word of %v", dist.ErrDType, w.DType)
	}
	switch {
	case !w.Cmp.Valid():
		return fmt.Errorf("%w: %v", dist.ErrInvalid, w.Cmp)
	case w.Count < 1 || int64(w.Count) > bytes: // before it is multiplied
		return fmt.Errorf("%w: a wait for %d words in a region of %d B: want at least 1, within the region", dist.ErrRange, w.Count, bytes)
	}
	return CheckWord(off+w.At, int64(w.DType.Size()))
}

// Unmet is the error of a wait that ends with cause, when last is a word that was not as w says.
func Unmet(w symmetric.Watch, last uint64, cause error) error {
	return fmt.Errorf("for %v %v, not %v: %w", w.Cmp, format(w.DType, w.Value), format(w.DType, last), cause)
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
