package hostheap

import (
	"fmt"
	"math"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// The rules of this file hold for every heap, in any memory: the same arguments are invalid, with
// the same errors.

var (
	// ErrClosed is the cause of an error on a closed heap. It matches dist.ErrClosed.
	ErrClosed = fmt.Errorf("the heap: %w", dist.ErrClosed)
	// ErrFreed is the cause of an error on a freed region. It matches symmetric.ErrNotAllocated.
	ErrFreed = fmt.Errorf("freed: %w", symmetric.ErrNotAllocated)
)

// SignalBytes is the size of a signal.
const SignalBytes = 8

// Product returns the bytes of count elements of size bytes, or a value that all ranks reject: -1
// if one of them is negative, and the largest int64 after an overflow.
func Product(count, size int64) int64 {
	switch {
	case count < 0 || size < 0:
		return -1
	case size > 0 && count > math.MaxInt64/size:
		return math.MaxInt64
	}
	return count * size
}

// addressable exceeds the address space of a process.
const addressable = 1 << 47

// CheckHeap returns an error if no process can map a heap of bytes bytes on each of n ranks. It
// runs before sizes are rounded and multiplied.
func CheckHeap(bytes int64, n int) error {
	if bytes > addressable/int64(n) {
		return fmt.Errorf("%w: %d parts of %d B are more than a process can address", symmetric.ErrNoSpace, n, bytes)
	}
	return nil
}

// CheckSize returns the error for invalid arguments of Alloc that all ranks share.
func CheckSize(alignment, bytes int64) error {
	if bytes < 0 {
		return fmt.Errorf("%w: negative size", dist.ErrCount)
	}
	if err := symmetric.CheckAlignment(alignment, symmetric.MaxAlignment); err != nil {
		return fmt.Errorf("%w: %w", dist.ErrInvalid, err)
	}
	return nil
}

// CheckPlace returns the error of an access of n bytes at offset at of rank's part of a region, or
// nil. The region has extent bytes on each of ranks ranks.
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

// CheckWord returns an error unless off, an offset in the heap, is a multiple of bytes, a power of
// two.
func CheckWord(off, bytes int64) error {
	if off&(bytes-1) == 0 {
		return nil
	}
	return misaligned(bytes)
}

func misaligned(bytes int64) error {
	return fmt.Errorf("%w: %w, to be a multiple of %d in the heap", dist.ErrInvalid, symmetric.ErrAlignment, bytes)
}

// CheckBuffer returns an error if b, the local side of a transfer, is no buffer, or is neither on
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

// CheckStrides returns the extent in the region, in bytes, of a strided transfer with the checked
// buffer b.
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

// extent returns the bytes from the first to the end of the last of count elements of size bytes,
// stride elements apart; false if a number is out of range.
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

// CheckAtomic rejects an unknown operation, or one that the type does not have.
func CheckAtomic(a symmetric.Atomic) error {
	if a.Op == symmetric.AtomicInvalid || a.Op > symmetric.OpCompareSwap {
		return fmt.Errorf("%w: unknown operation %d", dist.ErrInvalid, a.Op)
	}
	switch a.DType {
	case tensor.I32, tensor.I64, tensor.U32, tensor.U64:
		return nil
	case tensor.F32, tensor.F64:
		if a.Op == symmetric.OpFetch || a.Op == symmetric.OpSet {
			return nil
		}
		return fmt.Errorf("%w: %v has only the atomics fetch and set", dist.ErrDType, a.DType)
	}
	return fmt.Errorf("%w: %v has no atomics", dist.ErrDType, a.DType)
}

// CheckSignal rejects an unknown signal operation.
func CheckSignal(op symmetric.SignalOp) error {
	if op != symmetric.SignalSet && op != symmetric.SignalAdd {
		return fmt.Errorf("%w: unknown signal operation %d", dist.ErrInvalid, op)
	}
	return nil
}

// CheckWatch checks a watch in a region of bytes bytes that begins at offset off of its heap. The
// access itself checks that the words are in the region.
func CheckWatch(w symmetric.Watch, off, bytes int64) error {
	switch w.DType {
	case tensor.I32, tensor.I64, tensor.U32, tensor.U64:
	default:
		return fmt.Errorf("%w: a wait for a word of %v: want i32, i64, u32 or u64", dist.ErrDType, w.DType)
	}
	switch {
	case !w.Cmp.Valid():
		return fmt.Errorf("%w: %v", dist.ErrInvalid, w.Cmp)
	case w.Count < 1 || int64(w.Count) > bytes: // before the multiplication
		return fmt.Errorf("%w: a wait for %d words in a region of %d B: want at least 1, within the region", dist.ErrRange, w.Count, bytes)
	}
	return CheckWord(off+w.At, int64(w.DType.Size()))
}

// Unmet returns the error of a wait that ends with cause; last is a word that did not satisfy w.
func Unmet(w symmetric.Watch, last uint64, cause error) error {
	return fmt.Errorf("for %v %v, not %v: %w", w.Cmp, format(w.DType, w.Value), format(w.DType, last), cause)
}

// format formats a word as a number.
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
