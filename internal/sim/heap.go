package sim

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// memory is one symmetric heap: the parts of all ranks. The universe's lock guards arena and closed.
type memory struct {
	number int      // from 1, for errors
	parts  [][]byte // by rank
	arena  *symmetric.Arena
	closed []bool // by rank
}

// makeHeap concludes a meeting about a heap.
func (b *board) makeHeap() error {
	const unit = symmetric.Alignment
	capacity := max((b.sigs[0].Count+unit-1)&^(unit-1), unit)
	arena, err := symmetric.NewArena(capacity)
	if err != nil {
		return err
	}
	b.u.heaps++
	m := &memory{number: b.u.heaps, parts: make([][]byte, len(b.ends)), arena: arena, closed: make([]bool, len(b.ends))}
	for r := range m.parts {
		m.parts[r] = aligned(capacity)
		b.ends[r].result = result{mem: m}
	}
	return nil
}

// aligned is n zeroed bytes that begin at a multiple of symmetric.Alignment.
func aligned(n int64) []byte {
	const unit = symmetric.Alignment
	raw := make([]byte, n+unit)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(raw))) & (unit - 1)
	return raw[skip : int64(skip)+n : int64(skip)+n]
}

// alloc concludes a meeting about a region. A full heap is an error of all ranks and leaves the group whole.
func (b *board) alloc() {
	m, bytes := b.ends[0].deposit.mem, b.sigs[0].Count
	off, err := m.arena.Alloc(bytes)
	for r := range b.ends {
		if err == nil {
			clear(m.parts[r][off : off+bytes])
		}
		b.ends[r].result, b.ends[r].err = result{off: off}, err
	}
}

// free concludes a meeting that gives a region back.
func (b *board) free() {
	err := b.ends[0].deposit.mem.arena.Free(b.sigs[0].Count)
	for r := range b.ends {
		b.ends[r].err = err
	}
}

// heap is one rank's end of a memory. It implements symmetric.Heap.
type heap struct {
	t      *transport
	mem    *memory
	closed atomic.Bool
	fences atomic.Uint64
}

// Alloc implements symmetric.Heap.
func (h *heap) Alloc(bytes int64) (symmetric.Region, error) {
	res, err := h.call(dist.KindAlloc, bytes)
	if err != nil {
		return nil, fmt.Errorf("alloc %d B rank %d/%d: %w", bytes, h.t.rank, h.t.size(), err)
	}
	return &region{h: h, off: res.off, n: bytes}, nil
}

// Free implements symmetric.Heap.
func (h *heap) Free(r symmetric.Region) error {
	own, ok := r.(*region)
	if !ok || own.h != h || own.freed.Load() {
		return fmt.Errorf("free rank %d/%d: %w", h.t.rank, h.t.size(), symmetric.ErrNotAllocated)
	}
	if _, err := h.call(dist.KindFree, own.off); err != nil {
		return fmt.Errorf("free at offset %d rank %d/%d: %w", own.off, h.t.rank, h.t.size(), err)
	}
	own.freed.Store(true)
	return nil
}

func (h *heap) call(kind dist.Kind, number int64) (result, error) {
	switch {
	case h.closed.Load():
		return result{}, fmt.Errorf("the heap: %w", dist.ErrClosed)
	case number < 0:
		return result{}, fmt.Errorf("%w: negative size", dist.ErrCount)
	}
	return h.t.call(deposit{sig: dist.Signature{Kind: kind, Count: number}, mem: h.mem})
}

// Fence implements symmetric.Heap.
func (h *heap) Fence() error {
	if h.closed.Load() {
		return fmt.Errorf("fence: the heap: %w", dist.ErrClosed)
	}
	h.fences.Add(1) // a locked instruction orders all stores before it
	return nil
}

// Quiet implements symmetric.Heap. A Put is a copy by this CPU, complete when it returns.
func (h *heap) Quiet() error { return h.Fence() }

// Stats implements symmetric.Heap.
func (h *heap) Stats() symmetric.Stats {
	h.t.b.u.mu.Lock()
	defer h.t.b.u.mu.Unlock()
	return h.mem.arena.Stats()
}

// Close implements symmetric.Heap.
func (h *heap) Close() error {
	if h.closed.Swap(true) {
		return nil
	}
	h.t.b.u.mu.Lock()
	defer h.t.b.u.mu.Unlock()
	h.mem.closed[h.t.rank] = true
	h.t.b.changed.Broadcast()
	return nil
}

// region implements symmetric.Region.
type region struct {
	h     *heap
	off   int64
	n     int64
	freed atomic.Bool
}

// Local implements symmetric.Region. It is empty when the heap is closed.
func (r *region) Local() tensor.Buffer {
	if r.h.closed.Load() {
		return tensor.Of([]byte(nil))
	}
	return tensor.Of(r.bytes(r.h.t.rank))
}

// Offset implements symmetric.Region.
func (r *region) Offset() int64 { return r.off }

func (r *region) bytes(rank int) []byte { return r.h.mem.parts[rank][r.off : r.off+r.n : r.off+r.n] }

// Peer implements symmetric.Region.
func (r *region) Peer(rank int) (tensor.Buffer, error) {
	if err := r.check(rank, 0, 0); err != nil {
		return tensor.Buffer{}, fmt.Errorf("peer: %w", err)
	}
	return tensor.Of(r.bytes(rank)), nil
}

// Put implements symmetric.Region.
func (r *region) Put(rank int, at int64, src tensor.Buffer) error {
	if err := r.transfer(rank, at, src); err != nil {
		return fmt.Errorf("put: %w", err)
	}
	copy(r.bytes(rank)[at:], src.Raw())
	return nil
}

// Get implements symmetric.Region.
func (r *region) Get(dst tensor.Buffer, rank int, at int64) error {
	if err := r.transfer(rank, at, dst); err != nil {
		return fmt.Errorf("get: %w", err)
	}
	copy(dst.Raw(), r.bytes(rank)[at:])
	return nil
}

func (r *region) transfer(rank int, at int64, b tensor.Buffer) error {
	if b.Device() != tensor.Host {
		return fmt.Errorf("rank %d: %w: the buffer is on %v", rank, dist.ErrDevice, b.Device())
	}
	return r.check(rank, at, b.Bytes())
}

func (r *region) check(rank int, at, n int64) error {
	switch {
	case r.h.closed.Load():
		return fmt.Errorf("rank %d: the heap: %w", rank, dist.ErrClosed)
	case r.freed.Load():
		return fmt.Errorf("rank %d: %w", rank, symmetric.ErrNotAllocated)
	case rank < 0 || rank >= r.h.t.size():
		return fmt.Errorf("%w: rank %d is not in 0 to %d", dist.ErrRoot, rank, r.h.t.size()-1)
	case at < 0 || n > r.n-at:
		return fmt.Errorf("rank %d: %w: %d B at offset %d of a region of %d B", rank, dist.ErrCount, n, at, r.n)
	}
	return nil
}
