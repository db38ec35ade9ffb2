package sim

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/hostheap"
	"github.com/symgrad/symgrad/symmetric"
)

// memory is one symmetric heap: the parts of all ranks. The universe's lock guards arena and
// closed.
type memory struct {
	number int      // from 1, for errors
	parts  [][]byte // by rank
	arena  *symmetric.Arena
	closed []bool         // by rank
	asleep []atomic.Int64 // by rank: number of waits on its part
}

// makeHeap concludes a meeting about a heap. If the heap is too large, all ranks get an error and
// the group stays whole.
func (b *board) makeHeap() error {
	const unit = symmetric.Alignment
	if err := hostheap.CheckHeap(b.sigs[0].Count, len(b.ends)); err != nil {
		for r := range b.ends {
			b.ends[r].err = err
		}
		return nil
	}
	capacity := max((b.sigs[0].Count+unit-1)&^(unit-1), unit)
	arena, err := symmetric.NewArena(capacity)
	if err != nil {
		return err
	}
	b.u.heaps++
	n := len(b.ends)
	m := &memory{
		number: b.u.heaps, parts: make([][]byte, n), arena: arena, closed: make([]bool, n), asleep: make([]atomic.Int64, n),
	}
	for r := range m.parts {
		m.parts[r] = aligned(capacity)
		b.ends[r].result = result{mem: m}
	}
	return nil
}

// aligned returns n zeroed bytes that begin at a multiple of symmetric.MaxAlignment.
func aligned(n int64) []byte {
	const unit = symmetric.MaxAlignment
	raw := make([]byte, n+unit)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(raw))) & (unit - 1)
	return raw[skip : int64(skip)+n : int64(skip)+n]
}

// alloc concludes a meeting about a region; the key of the deposits is the alignment. If arguments
// are wrong on all ranks, or the heap is full, all ranks get an error and the group stays whole.
func (b *board) alloc() {
	m, alignment, bytes := b.ends[0].deposit.mem, int64(b.ends[0].deposit.key), b.sigs[0].Count
	var off int64
	err := b.sameAlignment()
	if err != nil {
		b.fail(err)
	} else if err = hostheap.CheckSize(alignment, bytes); err == nil {
		off, err = m.arena.Aligned(alignment, bytes)
	}
	for r := range b.ends {
		if err == nil {
			clear(m.parts[r][off : off+bytes])
		}
		b.ends[r].result, b.ends[r].err = result{off: off}, err
	}
}

func (b *board) sameAlignment() error {
	first := b.ends[0].deposit.key
	for r := range b.ends {
		if have := b.ends[r].deposit.key; have != first {
			return fmt.Errorf("%w on the alignment: rank 0 wants %d, rank %d wants %d", dist.ErrMismatch, first, r, have)
		}
	}
	return nil
}

// free concludes a meeting that frees a region.
func (b *board) free() {
	err := b.ends[0].deposit.mem.arena.Free(b.sigs[0].Count)
	for r := range b.ends {
		b.ends[r].err = err
	}
}

// newHeap returns one rank's end of a memory.
func newHeap(t *transport, m *memory) *hostheap.Heap {
	return hostheap.New(&host{t: t, mem: m}, hostheap.Config{Rank: t.rank, Parts: m.parts, Spins: 1})
}

// host gives a memory to internal/host/hostheap.
type host struct {
	t   *transport
	mem *memory
}

// Alloc implements hostheap.Host.
func (h *host) Alloc(alignment, bytes int64) (int64, error) {
	res, err := h.t.call(deposit{
		sig: dist.Signature{Kind: dist.KindAlloc, Count: bytes}, key: int(alignment), mem: h.mem,
	})
	return res.off, err
}

// Free implements hostheap.Host.
func (h *host) Free(off, _ int64) error {
	_, err := h.t.call(deposit{sig: dist.Signature{Kind: dist.KindFree, Count: off}, mem: h.mem})
	return err
}

// Stats implements hostheap.Host.
func (h *host) Stats() symmetric.Stats {
	h.t.b.u.mu.Lock()
	defer h.t.b.u.mu.Unlock()
	return h.mem.arena.Stats()
}

// Alive implements hostheap.Host.
func (h *host) Alive() error {
	h.t.b.u.mu.Lock()
	defer h.t.b.u.mu.Unlock()
	return h.t.b.broken
}

// Unmap implements hostheap.Host. Peers that wait for this rank to allocate with them stop waiting.
func (h *host) Unmap() error {
	h.t.b.u.mu.Lock()
	defer h.t.b.u.mu.Unlock()
	h.mem.closed[h.t.rank] = true
	h.t.b.changed.Broadcast()
	return nil
}
