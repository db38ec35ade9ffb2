package symmetric

import (
	"context"

	"github.com/symgrad/symgrad/tensor"
)

// Alignment is the alignment of every region in bytes, that of nvshmem_malloc. MaxAlignment is the
// largest alignment of Heap.Aligned: parts of a heap begin at a page, whose address differs between
// ranks.
const (
	Alignment    = 512
	MaxAlignment = 4096
)

// Heap is one rank's end of a symmetric heap. It may be used from several goroutines.
type Heap interface {
	// Alloc returns a new region of bytes bytes, zeroed, at the same offset on every rank.
	// Collective: all ranks of the heap's group, same order, same size. It returns after a barrier.
	// Errors: ErrNoSpace, ErrMismatch of dist if sizes differ, ErrClosed and ErrAborted of dist.
	Alloc(bytes int64) (Region, error)
	// Calloc is Alloc of count elements of bytes bytes each. Errors: those of Alloc; ErrNoSpace if
	// the product overflows an int64.
	Calloc(count, bytes int64) (Region, error)
	// Aligned is Alloc at an address that is a multiple of alignment on every rank.
	// Shapes/units: a power of two up to MaxAlignment; up to Alignment it is Alloc.
	// Collective: as Alloc, same alignment. Errors: those of Alloc; ErrAlignment.
	Aligned(alignment, bytes int64) (Region, error)
	// Free frees r. Every later call on r, its slices, and those of the other ranks returns
	// ErrNotAllocated. Collective: all ranks, same order. Errors: ErrNotAllocated, also for a slice
	// of a region.
	Free(r Region) error
	// Fence orders the data that this rank sends to one peer: earlier data is visible there before
	// later data.
	Fence() error
	// Quiet returns when everything that this rank sent is complete and visible to every rank.
	Quiet() error
	// Stats returns the present use.
	Stats() Stats
	// Close unmaps the heap, after running one-sided calls of this rank; a running Wait ends with
	// ErrClosed. Regions, views and tensors in it must not be used afterwards. No rank may pass
	// memory of the heap to a collective that this rank would have to read. Idempotent, not
	// collective.
	Close() error
}

// Region is one collective allocation, or a slice of one: the same number of bytes at the same
// offset on every rank. Offsets in it are in bytes.
//
// Errors: an *AccessError, without access to memory, for a wrong rank, offset, size, type or
// device, a freed region, a closed heap or a broken group. It matches ErrNotAllocated,
// ErrAlignment, or, of package dist, ErrRank, ErrRange, ErrDType, ErrDevice, ErrInvalid, ErrClosed,
// ErrAborted, ErrTimeout.
type Region interface {
	// Local returns this rank's part as untyped bytes; empty if the region is freed or the heap
	// closed. Its As sets an element type, which a collective with an arithmetic reduction needs;
	// View returns a typed slice.
	Local() tensor.Buffer
	// Peer returns another rank's part as untyped bytes that are directly addressable.
	Peer(rank int) (tensor.Buffer, error)
	// Offset returns the region's beginning, in bytes from the base of the heap; equal on all
	// ranks.
	Offset() int64
	// Slice returns the bytes bytes at offset at as a region, which is freed with the whole.
	Slice(at, bytes int64) (Region, error)

	// Put copies src to offset at of rank's part. When it returns, src may be changed.
	Put(rank int, at int64, src tensor.Buffer) error
	// PutNBI is Put that may return earlier. Owns: src belongs to the heap until Quiet.
	PutNBI(rank int, at int64, src tensor.Buffer) error
	// Get copies from offset at of rank's part to dst, which is filled when it returns.
	Get(dst tensor.Buffer, rank int, at int64) error
	// GetNBI is Get that may return earlier. Owns: dst belongs to the heap until Quiet.
	GetNBI(dst tensor.Buffer, rank int, at int64) error
	// IPut copies s.Count elements, every s.Buffer-th of src, to every s.Region-th element from
	// offset at of rank's part.
	IPut(rank int, at int64, src tensor.Buffer, s Strides) error
	// IGet copies s.Count elements, every s.Region-th from offset at of rank's part, to every
	// s.Buffer-th of dst.
	IGet(dst tensor.Buffer, rank int, at int64, s Strides) error
	// PutWord is Put of one element, passed as bits: shmem_p.
	PutWord(rank int, at int64, dt tensor.DType, bits uint64) error
	// GetWord is Get of one element, returned as bits: shmem_g.
	GetWord(rank int, at int64, dt tensor.DType) (uint64, error)

	// PutSignal is Put followed by an update of a signal on the same rank. The signal is visible
	// there only after the data.
	PutSignal(rank int, at int64, src tensor.Buffer, s Signal) error
	// PutSignalNBI is PutSignal that may return earlier. Owns: src belongs to the heap until Quiet.
	PutSignalNBI(rank int, at int64, src tensor.Buffer, s Signal) error
	// Signal updates the signal at offset at, a multiple of 8, of rank's part. It does not order
	// earlier Puts: Fence does.
	Signal(rank int, at int64, op SignalOp, value uint64) error
	// Atomic applies a to the word at offset at, a multiple of its size, of rank's part. It is
	// atomic with respect to every Atomic, Signal, PutWord and Wait on the word. Returns: the
	// previous bits.
	Atomic(rank int, at int64, a Atomic) (old uint64, err error)

	// Wait returns when words of this rank's own part satisfy w. Data sent before the update that
	// ended it, by PutSignal or before a Fence, is then visible. Errors: those of ctx; ErrTimeout
	// after the step timeout; ErrAborted if a peer dies or the group is aborted; ErrClosed if the
	// heap is closed here, or the group on all other ranks.
	Wait(ctx context.Context, w Watch) (Hit, error)
	// Test is Wait without waiting: the Hit's Index is -1 if the words do not satisfy w.
	Test(w Watch) (Hit, error)
}

// Strides selects the elements of a strided copy: Count of them, and the distances, in elements,
// between two of them in the region and in the buffer.
type Strides struct {
	Count  int // 0 moves nothing
	Region int // at least 1
	Buffer int // at least 1
}

// Stats is the use of a heap on one rank.
type Stats struct {
	Capacity int64 // total bytes that can be allocated
	Used     int64 // bytes allocated now, rounded up to Alignment
	Peak     int64 // largest Used so far
	Regions  int   // regions allocated now
}
