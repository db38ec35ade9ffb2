package symmetric

import (
	"fmt"
	"math"
	"slices"
)

// Arena tracks the allocated offsets of one heap. It accesses no memory. Equal calls in equal order
// return equal offsets, so ranks that allocate identically agree without communication. It is not
// safe for concurrent use.
type Arena struct {
	capacity int64
	taken    []span // ascending by off, disjoint
	used     int64
	peak     int64
}

type span struct{ off, bytes int64 }

// NewArena returns an empty arena of capacity bytes.
//
// Errors: a negative capacity.
func NewArena(capacity int64) (*Arena, error) {
	if capacity < 0 {
		return nil, fmt.Errorf("arena: negative capacity %d", capacity)
	}
	return &Arena{capacity: capacity}, nil
}

// Alloc allocates the first free range of at least bytes bytes and returns its offset, a multiple
// of Alignment.
//
// Shapes/units: bytes >= 0; 0 takes one unit, so that every region has its own offset. Errors:
// ErrNoSpace with the numbers, or a negative size.
func (a *Arena) Alloc(bytes int64) (int64, error) { return a.Aligned(Alignment, bytes) }

// Aligned is Alloc at a multiple of alignment.
//
// Errors: those of Alloc; ErrAlignment for an alignment that is no power of two.
func (a *Arena) Aligned(alignment, bytes int64) (int64, error) {
	if err := CheckAlignment(alignment, math.MaxInt64); err != nil {
		return 0, fmt.Errorf("arena: %w", err)
	}
	alignment = max(alignment, Alignment)
	if bytes < 0 {
		return 0, fmt.Errorf("arena: negative size %d", bytes)
	}
	need := roundUp(max(bytes, 1))
	if need < bytes {
		return 0, fmt.Errorf("arena: %d bytes: %w", bytes, ErrNoSpace)
	}
	off, largest := int64(0), int64(0)
	for i := 0; ; i++ {
		end := a.capacity
		if i < len(a.taken) {
			end = a.taken[i].off
		}
		if skip := -off & (alignment - 1); end-off >= skip && end-off-skip >= need {
			off += skip
			a.taken = slices.Insert(a.taken, i, span{off, need})
			a.used += need
			a.peak = max(a.peak, a.used)
			return off, nil
		}
		largest = max(largest, end-off)
		if i == len(a.taken) {
			return 0, fmt.Errorf("arena: %d bytes wanted, %d of %d in use, largest free range %d: %w",
				bytes, a.used, a.capacity, largest, ErrNoSpace)
		}
		off = a.taken[i].off + a.taken[i].bytes
	}
}

// Free frees the range at off.
//
// Errors: ErrNotAllocated if no range starts there.
func (a *Arena) Free(off int64) error {
	i, ok := slices.BinarySearchFunc(a.taken, off, func(s span, o int64) int {
		switch {
		case s.off < o:
			return -1
		case s.off > o:
			return 1
		}
		return 0
	})
	if !ok {
		return fmt.Errorf("arena: offset %d: %w", off, ErrNotAllocated)
	}
	a.used -= a.taken[i].bytes
	a.taken = slices.Delete(a.taken, i, i+1)
	return nil
}

// Stats returns the present use.
func (a *Arena) Stats() Stats {
	return Stats{Capacity: a.capacity, Used: a.used, Peak: a.peak, Regions: len(a.taken)}
}

// CheckAlignment returns ErrAlignment unless alignment is a power of two up to most.
func CheckAlignment(alignment, most int64) error {
	switch {
	case alignment <= 0 || alignment&(alignment-1) != 0:
		return fmt.Errorf("%w: %d is no power of two", ErrAlignment, alignment)
	case alignment > most:
		return fmt.Errorf("%w: %d is more than the maximum of %d", ErrAlignment, alignment, most)
	}
	return nil
}

func roundUp(n int64) int64 { return (n + Alignment - 1) &^ (Alignment - 1) }
