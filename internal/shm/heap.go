package shm

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Heap is one rank's view of a symmetric heap: a segment that holds the parts of all ranks one after the other. It
// implements symmetric.Heap.
type Heap struct {
	t     *Transport // whose ranks share it
	id    uint64
	part  int64 // bytes a rank
	seg   segment
	own   uintptr // address of the own part, for locate
	fence atomic.Uint64

	mu     sync.Mutex
	arena  *symmetric.Arena
	closed bool
}

// newHeap runs as one operation of the group.
func (t *Transport) newHeap(bytes int64) (*Heap, error) {
	own := header{id: t.node.newID()}
	own.sig = dist.Signature{Kind: dist.KindHeap, Count: bytes, Root: -1}
	if err := t.agree(&own); err != nil {
		return nil, err
	}
	part := max(bytes+pageBytes-1, pageBytes) &^ (pageBytes - 1)
	id := t.headers[0].id
	arena, err := symmetric.NewArena(part)
	if err != nil {
		return nil, err
	}
	seg, err := t.share("a symmetric heap", t.ranks, id, part*int64(t.size))
	if err != nil {
		return nil, err
	}
	h := &Heap{t: t, id: id, part: part, seg: seg, arena: arena}
	h.own = uintptr(unsafe.Pointer(unsafe.SliceData(h.of(t.rank))))
	t.node.addHeap(h)
	return h, nil
}

// of is the part of a rank of the heap's group.
func (h *Heap) of(rank int) []byte {
	lo := int64(rank) * h.part
	return h.seg.bytes()[lo : lo+h.part : lo+h.part]
}

// Alloc implements symmetric.Heap.
func (h *Heap) Alloc(bytes int64) (symmetric.Region, error) {
	var r *Region
	err := h.collective(dist.KindAlloc, bytes, func() error {
		off, err := h.arena.Alloc(bytes)
		if err != nil {
			return err
		}
		r = &Region{heap: h, off: off, n: bytes}
		clear(h.of(h.t.rank)[off : off+bytes])
		return h.t.barrier() // nobody puts into it before it is cleared
	})
	if err != nil {
		return nil, fmt.Errorf("alloc %d B rank %d/%d: %w", bytes, h.t.rank, h.t.size, err)
	}
	return r, nil
}

// Free implements symmetric.Heap.
func (h *Heap) Free(r symmetric.Region) error {
	reg, ok := r.(*Region)
	if !ok || reg.heap != h {
		return fmt.Errorf("free rank %d/%d: %w", h.t.rank, h.t.size, symmetric.ErrNotAllocated)
	}
	err := h.collective(dist.KindFree, reg.off, func() error {
		if err := h.arena.Free(reg.off); err != nil {
			return err
		}
		invariants.Mangle(reg.bytes(h.t.rank)) // all ranks have called: who still reads it reads garbage
		return nil
	})
	if err != nil {
		return fmt.Errorf("free at offset %d rank %d/%d: %w", reg.off, h.t.rank, h.t.size, err)
	}
	return nil
}

// collective agrees on an arena call among the ranks and does it on all of them.
func (h *Heap) collective(kind dist.Kind, number int64, do func() error) error {
	return h.t.exclusive(kind, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.closed {
			return dist.ErrClosed
		}
		own := header{sig: dist.Signature{Kind: kind, Count: number, Root: -1}}
		if err := h.t.agree(&own); err != nil {
			return err
		}
		return do()
	})
}

// Fence implements symmetric.Heap: a full memory barrier.
func (h *Heap) Fence() error {
	h.fence.Add(1) // a locked instruction orders all stores before it
	return nil
}

// Quiet implements symmetric.Heap. A Put is a copy by this CPU, complete when it returns.
func (h *Heap) Quiet() error { return h.Fence() }

// Stats implements symmetric.Heap.
func (h *Heap) Stats() symmetric.Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.arena.Stats()
}

// Close implements symmetric.Heap.
func (h *Heap) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	h.closed = true
	h.t.node.dropHeap(h)
	return h.seg.close()
}

// Region is one allocation of a Heap. It implements symmetric.Region.
type Region struct {
	heap *Heap
	off  int64
	n    int64
}

// Local implements symmetric.Region.
func (r *Region) Local() tensor.Buffer { return tensor.Of(r.bytes(r.heap.t.rank)) }

// Offset implements symmetric.Region.
func (r *Region) Offset() int64 { return r.off }

func (r *Region) bytes(rank int) []byte {
	if len(r.heap.seg.bytes()) == 0 {
		return nil // closed
	}
	return r.heap.of(rank)[r.off : r.off+r.n : r.off+r.n]
}

// Peer implements symmetric.Region.
func (r *Region) Peer(rank int) (tensor.Buffer, error) {
	if err := r.check(rank, 0, 0); err != nil {
		return tensor.Buffer{}, fmt.Errorf("peer: %w", err)
	}
	return tensor.Of(r.bytes(rank)), nil
}

// Put implements symmetric.Region.
func (r *Region) Put(rank int, at int64, src tensor.Buffer) error {
	if err := r.transfer(rank, at, src); err != nil {
		return fmt.Errorf("put: %w", err)
	}
	copy(r.bytes(rank)[at:], src.Raw())
	return nil
}

// Get implements symmetric.Region.
func (r *Region) Get(dst tensor.Buffer, rank int, at int64) error {
	if err := r.transfer(rank, at, dst); err != nil {
		return fmt.Errorf("get: %w", err)
	}
	copy(dst.Raw(), r.bytes(rank)[at:])
	return nil
}

func (r *Region) transfer(rank int, at int64, b tensor.Buffer) error {
	if b.Device() != tensor.Host {
		return fmt.Errorf("rank %d: %w: the buffer is on %v", rank, dist.ErrDevice, b.Device())
	}
	return r.check(rank, at, b.Bytes())
}

func (r *Region) check(rank int, at, n int64) error {
	switch {
	case len(r.heap.seg.bytes()) == 0:
		return fmt.Errorf("rank %d: the heap: %w", rank, dist.ErrClosed)
	case rank < 0 || rank >= r.heap.t.size:
		return fmt.Errorf("%w: rank %d is not in 0 to %d", dist.ErrRoot, rank, r.heap.t.size-1)
	case at < 0 || n > r.n-at:
		return fmt.Errorf("rank %d: %w: %d B at offset %d of a region of %d B", rank, dist.ErrCount, n, at, r.n)
	}
	return nil
}

// locate is where b lies among the symmetric heaps that all ranks of the group share; the zero place for other memory.
func (t *Transport) locate(b tensor.Buffer) place {
	if b.Len() == 0 {
		return place{}
	}
	p, n := uintptr(b.Pointer()), uintptr(b.Bytes())
	for _, h := range *t.node.heaps.Load() {
		if p >= h.own && p+n <= h.own+uintptr(h.part) && (h.t == t || containsAll(h.t.ranks, t.ranks)) {
			return place{heap: h.id, off: int64(p - h.own)}
		}
	}
	return place{}
}

func containsAll(set, ranks []int) bool {
	for _, r := range ranks {
		if !slices.Contains(set, r) {
			return false
		}
	}
	return true
}

// errNoHeap is what resolve returns when this rank cannot reach a peer's buffer.
var errNoHeap = errors.New("lies in a symmetric heap that is closed here, or not shared with this rank")

// resolve is n bytes at off of the part of world rank peer in heap id.
func (nd *node) resolve(id uint64, peer int, off, n int64) ([]byte, error) {
	for _, h := range *nd.heaps.Load() {
		if h.id != id {
			continue
		}
		r := slices.Index(h.t.ranks, peer)
		if r < 0 || off < 0 || n > h.part-off {
			break
		}
		return h.of(r)[off : off+n : off+n], nil
	}
	return nil, errNoHeap
}
