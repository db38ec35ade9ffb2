package nvshmem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/symmetric"
)

// pageBytes is the alignment of allocations and of the parts of the staging areas.
const pageBytes = symmetric.MaxAlignment

// heap records this rank's allocations and the device memory that the library has taken. Addresses
// are passed to the library only if they are in it.
type heap struct {
	blocks atomic.Pointer[[]block] // sorted by address

	grown atomic.Int64 // bytes that the library has mapped: by which free device memory shrank with allocations

	mu sync.Mutex // held while the blocks change
}

// block is one allocation. All ranks have it, each at its own address.
type block struct {
	base  uintptr
	bytes int64
}

// has reports whether the bytes bytes at addr are in one allocation. It allocates nothing and may
// be called concurrently.
func (h *heap) has(addr uintptr, bytes int64) bool {
	all := h.blocks.Load()
	if all == nil || bytes < 0 {
		return false
	}
	for _, b := range *all {
		if addr >= b.base && addr-b.base <= uintptr(b.bytes) && bytes <= b.bytes-int64(addr-b.base) {
			return true
		}
	}
	return false
}

// add records an allocation.
func (h *heap) add(b block) {
	h.change(func(all []block) []block { return append(all, b) })
}

// remove drops the allocation at base. Returns: whether it was recorded.
func (h *heap) remove(base uintptr) (found bool) {
	h.change(func(all []block) []block {
		return slices.DeleteFunc(all, func(b block) bool {
			found = found || b.base == base
			return b.base == base
		})
	})
	return found
}

// clear drops all.
func (h *heap) clear() { h.change(func([]block) []block { return nil }) }

func (h *heap) change(f func([]block) []block) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []block
	if old := h.blocks.Load(); old != nil {
		all = slices.Clone(*old)
	}
	all = f(all)
	slices.SortFunc(all, func(a, b block) int {
		if a.base < b.base {
			return -1
		}
		return 1
	})
	h.blocks.Store(&all)
}

// region is an allocation with the addresses of all ranks' parts.
type region struct {
	bytes int64
	base  []uintptr // by rank of the world; 0 if this GPU cannot address it
}

// allocRequest is the request of a rank for an allocation, with its free and its mapped bytes.
type allocRequest struct{ bytes, free, grown int64 }

const allocRequestBytes = 24

func (w allocRequest) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(w.bytes))
	b = binary.LittleEndian.AppendUint64(b, uint64(w.free))
	return binary.LittleEndian.AppendUint64(b, uint64(w.grown))
}

func decodeAllocRequest(b []byte) allocRequest {
	at := func(i int) int64 { return int64(binary.LittleEndian.Uint64(b[8*i:])) }
	return allocRequest{at(0), at(1), at(2)}
}

// grant returns nil if all ranks request the same size and every GPU has room for it. The library
// destroys its heap when an allocation fails (allocate_physical_memory_to_heap in mem_heap.cpp).
func grant(all [][]byte, c Config) error {
	first := decodeAllocRequest(all[0])
	for r, line := range all {
		if w := decodeAllocRequest(line); w.bytes != first.bytes {
			return refused("alloc", dist.ErrMismatch, "rank 0 asks for %d B, rank %d for %d B", first.bytes, r, w.bytes)
		}
	}
	if first.bytes <= 0 || first.bytes > c.HeapBytes {
		return refused("alloc", dist.ErrInvalid, "%d B, want 1 to %d", first.bytes, c.HeapBytes)
	}
	grow := roundUp(first.bytes+pageBytes, c.GranularityBytes)
	for r, line := range all {
		w := decodeAllocRequest(line)
		switch {
		case w.free < grow:
			return refused("alloc", symmetric.ErrNoSpace, "NVSHMEM's heap may grow by %d B for %d B, but the GPU of rank %d has %d B free",
				grow, first.bytes, r, w.free)
		case w.grown+grow >= c.HeapBytes:
			return refused("alloc", symmetric.ErrNoSpace, "no room for %d B: the heap of rank %d has grown to %d B of at most %d B: raise HeapBytes",
				first.bytes, r, w.grown, c.HeapBytes)
		}
	}
	return nil
}

// allocate returns a new zeroed region on every rank of the runtime.
//
// Collective: all ranks, same size; p is the runtime's group. Errors: the same on all ranks.
func (o *rma) allocate(p *gpu.Member, bytes int64) (region, error) {
	if err := p.Agree(o.healthy("alloc")); err != nil {
		return region{}, err
	}
	free, _, err := o.dev.Memory()
	if err := p.Agree(err); err != nil {
		return region{}, err
	}
	all, err := p.Exchange(allocRequest{bytes, free, o.heap.grown.Load()}.encode())
	if err != nil {
		return region{}, err
	}
	if err := grant(all, o.lib.cfg); err != nil {
		return region{}, err
	}
	r, err := o.allocAligned(bytes, free)
	if err := p.Agree(err); err != nil {
		return region{}, err
	}
	// Zeroed before a peer can write to it: the agreement is the barrier.
	if err := p.Agree(o.dev.Fill(r.base[p.Rank], 0, bytes)); err != nil {
		return region{}, err
	}
	return r, nil
}

// allocAligned calls the library for bytes bytes. free is the free device memory before the call.
func (o *rma) allocAligned(bytes, free int64) (region, error) {
	if err := o.dev.Enter(); err != nil {
		return region{}, err
	}
	defer o.dev.Leave()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.args[0], o.args[1] = pageBytes, uintptr(bytes)
	addr, err := o.lib.t.align.Call(o.args[:2]...)
	if err != nil {
		return region{}, unsupported("alloc", &o.lib.t.align)
	}
	now, _, err := o.dev.Memory()
	if err != nil {
		return region{}, err
	}
	o.heap.grown.Add(roundUp(max(free-now, 0), o.lib.cfg.GranularityBytes))
	if addr == 0 {
		return region{}, refused("alloc", symmetric.ErrNoSpace, "nvshmem_align returned no memory for %d B, with %d B free on the GPU", bytes, now)
	}
	r := region{bytes: bytes, base: make([]uintptr, o.member.Size)}
	for pe := range r.base {
		o.args[0], o.args[1] = addr, uintptr(pe)
		if r.base[pe], err = o.lib.t.pointer.Call(o.args[:2]...); err != nil {
			return region{}, unsupported("peer address", &o.lib.t.pointer)
		}
	}
	if r.base[o.member.Rank] != addr {
		return region{}, fmt.Errorf("nvshmem: alloc: the library gives %#x for the address of the memory at %#x: %s", r.base[o.member.Rank], addr, o.lib)
	}
	o.heap.add(block{addr, bytes})
	return r, nil
}

// freeRegion frees the allocation at base. If operations of an aborted group may never end, the
// memory is left to the end of the process without an error.
//
// Collective: all ranks, same order; p is the runtime's group.
func (o *rma) freeRegion(p *gpu.Member, base uintptr) error {
	if err := p.Agree(o.healthy("free")); errors.Is(err, dist.ErrAborted) {
		return nil
	} else if err != nil {
		return err
	}
	if err := o.dev.Enter(); err != nil {
		return err
	}
	defer o.dev.Leave()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.heap.remove(base) {
		return refused("free", symmetric.ErrNotAllocated, "no allocation begins at %#x", base)
	}
	o.args[0] = base
	if _, err := o.lib.t.free.Call(o.args[:1]...); err != nil {
		return unsupported("free", &o.lib.t.free)
	}
	return nil
}

// Name returns "nvshmem", the name of the allocator.
func (rt *Runtime) Name() string { return "nvshmem" }

// Alloc allocates bytes bytes of NVSHMEM's heap on every rank of p, zeroed and aligned to
// symmetric.MaxAlignment.
//
// Collective: all ranks of p, same size. Owns: the caller frees the slab before the runtime is
// closed. Errors, the same on all ranks: dist.ErrUnsupported if p is not the runtime's group,
// because every rank takes part in an allocation; symmetric.ErrNoSpace if a GPU has too little
// memory left; dist.ErrMismatch if sizes differ; dist.ErrInvalid for a size below 1.
func (rt *Runtime) Alloc(p *gpu.Member, bytes int64) (*gpu.Slab, error) {
	if !rt.isWorld(p) {
		return nil, refused("alloc", dist.ErrUnsupported, "NVSHMEM allocates on all %d ranks at once, and the group has %d", rt.member.Size, p.Size)
	}
	r, err := rt.allocate(p, bytes)
	if err != nil {
		return nil, err
	}
	var once sync.Once
	free := func() (err error) {
		once.Do(func() { err = rt.freeRegion(p, r.base[p.Rank]) })
		return err
	}
	return &gpu.Slab{Bytes: bytes, Base: r.base, Free: free}, nil
}

// isWorld reports whether p has all ranks of the runtime in their order.
func (rt *Runtime) isWorld(p *gpu.Member) bool {
	return p.Size == rt.member.Size && p.Rank == rt.member.Rank && slices.Equal(p.World, rt.member.World)
}
