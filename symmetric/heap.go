package symmetric

import (
	"errors"

	"github.com/symgrad/symgrad/tensor"
)

// ErrNoSpace is returned by Heap.Alloc and Arena.Alloc when no free range is long enough.
var ErrNoSpace = errors.New("symmetric heap is full")

// ErrNotAllocated is returned by Heap.Free and Arena.Free for a region that is not, or no longer, allocated there.
var ErrNotAllocated = errors.New("not allocated in this symmetric heap")

// Alignment is the alignment of every region in bytes, that of nvshmem_malloc.
const Alignment = 512

// Heap is one rank's end of a symmetric heap.
type Heap interface {
	// Alloc is a new region of at least bytes bytes, zeroed, at the same offset on every rank.
	// Collective: all ranks of the heap's group, same order, same size.
	// Errors: ErrNoSpace, ErrMismatch of dist where sizes differ, ErrClosed and ErrAborted of dist.
	Alloc(bytes int64) (Region, error)
	// Free gives r back. Collective: all ranks, same order. Errors: ErrNotAllocated.
	Free(r Region) error
	// Fence orders this rank's Puts to one peer: those before it are visible before those after it.
	Fence() error
	// Quiet returns when all Puts of this rank are complete and visible.
	Quiet() error
	// Stats is the present use.
	Stats() Stats
	// Close unmaps the heap. Regions and tensors in it must not be used afterwards. Idempotent, not collective.
	Close() error
}

// Region is one collective allocation: the same number of bytes at the same offset on every rank.
type Region interface {
	Local() tensor.Buffer                            // this rank's part, as bytes (u8)
	Peer(rank int) (tensor.Buffer, error)            // another rank's part, directly addressable, as bytes (u8)
	Offset() int64                                   // from the base of the heap, in bytes; equal on all ranks
	Put(rank int, at int64, src tensor.Buffer) error // copy src to byte offset at of rank's part
	Get(dst tensor.Buffer, rank int, at int64) error // copy from byte offset at of rank's part to dst
}

// Stats is the use of a heap on one rank.
type Stats struct {
	Capacity int64 // bytes that can be allocated in all
	Used     int64 // bytes allocated now, rounded up to Alignment
	Peak     int64 // most bytes ever allocated at once
	Regions  int   // regions allocated now
}
