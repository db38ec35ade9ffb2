package symmetric

import (
	"errors"
	"fmt"
)

// Sentinel errors, in addition to those of package dist.
var (
	// ErrNoSpace is returned by Heap.Alloc and Arena.Alloc if no free range is long enough.
	// Group.Heap of dist returns it on all ranks if there is no memory for the heap and the backend
	// can tell: NCCL alone cannot.
	ErrNoSpace = errors.New("symmetric heap is full")
	// ErrNotAllocated is returned by Heap.Free and Arena.Free for an unknown region, and by every
	// call on a freed region.
	ErrNotAllocated = errors.New("not allocated in this symmetric heap")
	// ErrAlignment is returned for an alignment that is no power of two or too large. Atomics,
	// signals and waits return it for an offset that is not a multiple of the word's size.
	ErrAlignment = errors.New("misaligned")
)

// AccessError is the error of a call on a Region. It wraps the cause.
type AccessError struct {
	Call   string // "put", "atomic add"
	Rank   int    // this rank in the heap's group
	Size   int    // ranks in the group
	Peer   int    // rank of the accessed part
	Offset int64  // of the region in the heap
	Extent int64  // bytes of the region
	At     int64  // offset in the region
	Bytes  int64  // of the access
	Err    error  // the cause; matches one of the sentinels
}

// Error returns a text such as "put rank 1/4: 8 B at 12 of the region of 16 B at offset 512 on rank
// 2: cause".
func (e *AccessError) Error() string {
	return fmt.Sprintf("%s rank %d/%d: %d B at %d of the region of %d B at offset %d on rank %d: %v",
		e.Call, e.Rank, e.Size, e.Bytes, e.At, e.Extent, e.Offset, e.Peer, e.Err)
}

// Unwrap returns the cause.
func (e *AccessError) Unwrap() error { return e.Err }
