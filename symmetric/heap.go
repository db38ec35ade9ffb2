package symmetric

import (
	"context"

	"github.com/symgrad/symgrad/tensor"
)

// Alignment is the alignment of every region in bytes, that of nvshmem_malloc. MaxAlignment is the
// most that Heap.Aligned gives: parts of a heap begin at a page, whose address differs between
// ranks.
const (
	Alignment    = 512
	MaxAlignment = 4096
)

// Heap is one rank's end of a symmetric heap. It may be used from several goroutines.
type Heap interface {
	// Alloc is a new region of bytes bytes, zeroed, at the same offset on every rank.
	// Collective: all ranks of the heap's group, same order, same size. It returns after a barrier.
	// Errors: ErrNoSpace, ErrMismatch of dist where sizes differ, ErrClosed and ErrAborted of dist.
	Alloc(bytes int64) (Region, error)
	// Calloc is Alloc of count elements of bytes bytes each.
	// Errors: those of Alloc; ErrNoSpace where the product is more than an int64 holds.
	Calloc(count, bytes int64) (Region, error)
	// Aligned is Alloc at an address that is a multiple of alignment on every rank.
	// Shapes/units: a power of two up to MaxAlignment; up to Alignment it is Alloc.
	// Collective: as Alloc, same alignment. Errors: those of Alloc; ErrAlignment.
	Aligned(alignment, bytes int64) (Region, error)
	// Free gives r back, after which every call on r, on its slices, and on those of the other
	// ranks is ErrNotAllocated. Collective: all ranks, same order. Errors: ErrNotAllocated, also
	// for a slice of a region.
	Free(r Region) error
	// Fence orders what this rank sends to one peer: all before it is visible there before all
	// after it.
	Fence() error
	// Quiet returns when all that this rank has sent is complete and visible to every rank.
	Quiet() error
	// Stats is the present use.
	Stats() Stats
	// Close unmaps the heap, after the one-sided calls of this rank that still run; a Wait among
	// them ends with ErrClosed. Regions, views and tensors in it must not be used afterwards, and
	// no rank gives a collective memory of the heap that it is to be read from here. Idempotent,
	// not collective.
	Close() error
}

// Region is one collective allocation, or a slice of one: the same number of bytes at the same
// offset on every rank. Offsets within it are in bytes.
//
// Errors: every call with a wrong rank, offset, size, type or device, on a region that is freed, on
// a heap that is closed or in a group that is broken is an *AccessError, and touches no memory. It
// matches ErrNotAllocated, ErrAlignment, or, of package dist, ErrRank, ErrRange, ErrDType,
// ErrDevice, ErrInvalid, ErrClosed, ErrAborted, ErrTimeout.
type Region interface {
	// Local is this rank's part, as untyped bytes; empty when the region is freed or the heap
	// closed. Its As gives them an element type, which a collective with an arithmetic reduction
	// needs; View gives a slice of them.
	Local() tensor.Buffer
	// Peer is another rank's part, directly addressable, as untyped bytes.
	Peer(rank int) (tensor.Buffer, error)
	// Offset is where the region begins, in bytes from the base of the heap; equal on all ranks.
	Offset() int64
	// Slice is the bytes bytes at offset at as a region of their own, freed with the whole.
	Slice(at, bytes int64) (Region, error)

	// Put copies src to offset at of rank's part. When it returns, src may be changed.
	Put(rank int, at int64, src tensor.Buffer) error
	// PutNBI is Put that may return earlier. Owns: src belongs to the heap until Quiet.
	PutNBI(rank int, at int64, src tensor.Buffer) error
	// Get copies from offset at of rank's part to dst, which is filled when it returns.
	Get(dst tensor.Buffer, rank int, at int64) error
	// GetNBI is Get that may return earlier. Owns: dst belongs to the heap until Quiet.
	GetNBI(dst tensor.Buffer, rank int, at int64) error
	// IPut copies every s.Buffer-th element of src, s.Count of them, to every s.Region-th element
	// from offset at of rank's part.
	IPut(rank int, at int64, src tensor.Buffer, s Strides) error
	// IGet copies every s.Region-th element from offset at of rank's part, s.Count of them, to
	// every s.Buffer-th of dst.
	IGet(dst tensor.Buffer, rank int, at int64, s Strides) error
	// PutWord is Put of one element, given as its bits: shmem_p.
	PutWord(rank int, at int64, dt tensor.DType, bits uint64) error
	// GetWord is Get of one element, as its bits: shmem_g.
	GetWord(rank int, at int64, dt tensor.DType) (uint64, error)

	// PutSignal is Put followed by an update of a signal of the same rank, which is visible there
	// only after the data.
	PutSignal(rank int, at int64, src tensor.Buffer, s Signal) error
	// PutSignalNBI is PutSignal that may return earlier. Owns: src belongs to the heap until Quiet.
	PutSignalNBI(rank int, at int64, src tensor.Buffer, s Signal) error
	// Signal updates the signal at offset at, a multiple of 8, of rank's part. It does not order
	// earlier Puts: Fence does.
	Signal(rank int, at int64, op SignalOp, value uint64) error
	// Atomic does a on the word at offset at, a multiple of its size, of rank's part, at once with
	// respect to every other Atomic, Signal, PutWord and Wait on it. Returns: the bits it held
	// before.
	Atomic(rank int, at int64, a Atomic) (old uint64, err error)

	// Wait returns when words of this rank's own part are as w says. What was sent before the
	// update that ended it, by PutSignal or with a Fence between, is then visible. Errors: those of
	// ctx; ErrTimeout after the step timeout; ErrAborted when a peer dies or the group is aborted;
	// ErrClosed when the heap is closed here, or the group's end on all other ranks.
	Wait(ctx context.Context, w Watch) (Hit, error)
	// Test is Wait that does not wait: the Hit's Index is -1 when the words are not as w says.
	Test(w Watch) (Hit, error)
}

// Strides says which elements a strided copy moves: Count of them, and the distances, in elements,
// between two of them in the region and in the buffer.
type Strides struct {
	Count  int // 0 moves nothing
	Region int // at least 1
	Buffer int // at least 1
}

// Stats is the use of a heap on one rank.
type Stats struct {
	Capacity int64 // bytes that can be allocated in all
	Used     int64 // bytes allocated now, rounded up to Alignment
	Peak     int64 // most bytes ever allocated at once
	Regions  int   // regions allocated now
}
