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

// pageBytes is the alignment of what the allocator gives, and of the parts of the staging areas.
const pageBytes = symmetric.MaxAlignment

// heap is what this rank has allocated: where the library may be sent to, and how much of the
// device it has taken.
type heap struct {
	blocks atomic.Pointer[[]block] // in the order of their addresses

	grown atomic.Int64 // bytes by which the device's free memory shrank with allocations: what the library has mapped

	mu sync.Mutex // of those who change the blocks
}

// block is one allocation: the same on all ranks, each at its own address.
type block struct {
	base  uintptr
	bytes int64
}

// has reports whether the bytes bytes at addr lie in one allocation. It allocates nothing and may
// be asked by anyone.
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

// add notes an allocation.
func (h *heap) add(b block) {
	h.change(func(all []block) []block { return append(all, b) })
}

// remove forgets the allocation at base. Returns: whether there was one.
func (h *heap) remove(base uintptr) (found bool) {
	h.change(func(all []block) []block {
		return slices.DeleteFunc(all, func(b block) bool {
			found = found || b.base == base
			return b.base == base
		})
	})
	return found
}

// clear forgets all. Returns: how many there were.
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
	base  []uintptr // by rank of the world; 0 where this GPU cannot address it
}

// wish is what a rank says of an allocation before it is made.
type wish struct{ bytes, free, grown int64 }

const wishBytes = 24

func (w wish) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(w.bytes))
	b = binary.LittleEndian.AppendUint64(b, uint64(w.free))
	return binary.LittleEndian.AppendUint64(b, uint64(w.grown))
}

func decodeWish(b []byte) wish {
	at := func(i int) int64 { return int64(binary.LittleEndian.Uint64(b[8*i:])) }
	return wish{at(0), at(1), at(2)}
}

// grant is nil when all ranks ask for the same and the library will find it: it takes its heap down
// when it does not (allocate_physical_memory_to_heap in mem_heap.cpp).
func grant(all [][]byte, c Config) error {
	first := decodeWish(all[0])
	for r, line := range all {
		if w := decodeWish(line); w.bytes != first.bytes {
			return refused("alloc", dist.ErrMismatch, "rank 0 asks for %d B, rank %d for %d B", first.bytes, r, w.bytes)
		}
	}
	if first.bytes <= 0 || first.bytes > c.HeapBytes {
		return refused("alloc", dist.ErrInvalid, "%d B, want 1 to %d", first.bytes, c.HeapBytes)
	}
	grow := roundUp(first.bytes+pageBytes, c.GranularityBytes)
	for r, line := range all {
		w := decodeWish(line)
		switch {
		case w.free < grow:
			return refused("alloc", symmetric.ErrNoSpace, "%d B, for which NVSHMEM's heap may grow by %d B: the GPU of rank %d has %d B free",
				first.bytes, grow, r, w.free)
		case w.grown+grow >= c.HeapBytes:
			return refused("alloc", symmetric.ErrNoSpace, "%d B: the heap of rank %d has grown to %d B, and may not reach %d: raise HeapBytes",
				first.bytes, r, w.grown, c.HeapBytes)
		}
	}
	return nil
}

// allocate is a new zeroed region on every rank of the runtime.
//
// Collective: all ranks, same size; p is the runtime's group. Errors: on all ranks alike.
func (rt *Runtime) allocate(p *gpu.Member, bytes int64) (region, error) {
	if err := p.Agree(rt.healthy("alloc")); err != nil {
		return region{}, err
	}
	free, _, err := rt.dev.Memory()
	if err := p.Agree(err); err != nil {
		return region{}, err
	}
	all, err := p.Exchange(wish{bytes, free, rt.heap.grown.Load()}.encode())
	if err != nil {
		return region{}, err
	}
	if err := grant(all, rt.lib.cfg); err != nil {
		return region{}, err
	}
	r, err := rt.take(bytes, free)
	if err := p.Agree(err); err != nil {
		return region{}, err
	}
	// Zeroed before anyone can write to it: the agreement is the barrier.
	if err := p.Agree(rt.dev.Fill(r.base[p.Rank], 0, bytes)); err != nil {
		return region{}, err
	}
	return r, nil
}

// take calls the library for bytes bytes. Before, free bytes of the device were free.
func (rt *Runtime) take(bytes, free int64) (region, error) {
	if err := rt.dev.Enter(); err != nil {
		return region{}, err
	}
	defer rt.dev.Leave()
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.args[0], rt.args[1] = pageBytes, uintptr(bytes)
	addr, err := rt.lib.t.align.Call(rt.args[:2]...)
	if err != nil {
		return region{}, unsupported("alloc", &rt.lib.t.align)
	}
	now, _, err := rt.dev.Memory()
	if err != nil {
		return region{}, err
	}
	rt.heap.grown.Add(roundUp(max(free-now, 0), rt.lib.cfg.GranularityBytes))
	if addr == 0 {
		return region{}, refused("alloc", symmetric.ErrNoSpace, "nvshmem_align of %d B gives nothing, with %d B of the GPU free", bytes, now)
	}
	r := region{bytes: bytes, base: make([]uintptr, rt.member.Size)}
	for pe := range r.base {
		rt.args[0], rt.args[1] = addr, uintptr(pe)
		if r.base[pe], err = rt.lib.t.pointer.Call(rt.args[:2]...); err != nil {
			return region{}, unsupported("peer address", &rt.lib.t.pointer)
		}
	}
	if r.base[rt.member.Rank] != addr {
		return region{}, fmt.Errorf("nvshmem: alloc: the memory at %#x is said to be at %#x: %s", addr, r.base[rt.member.Rank], rt.lib)
	}
	rt.heap.add(block{addr, bytes})
	return r, nil
}

// give frees the allocation at base. Where operations of an aborted group may be on a GPU for good,
// it is left to the end of the process, which is no error.
//
// Collective: all ranks, same order; p is the runtime's group.
func (rt *Runtime) give(p *gpu.Member, base uintptr) error {
	if err := p.Agree(rt.healthy("free")); errors.Is(err, dist.ErrAborted) {
		return nil
	} else if err != nil {
		return err
	}
	if err := rt.dev.Enter(); err != nil {
		return err
	}
	defer rt.dev.Leave()
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if !rt.heap.remove(base) {
		return refused("free", symmetric.ErrNotAllocated, "nothing begins at %#x", base)
	}
	rt.args[0] = base
	if _, err := rt.lib.t.free.Call(rt.args[:1]...); err != nil {
		return unsupported("free", &rt.lib.t.free)
	}
	return nil
}

// Name is "nvshmem", the allocator's.
func (rt *Runtime) Name() string { return "nvshmem" }

// Alloc is bytes bytes of NVSHMEM's heap on every rank of p, zeroed, aligned to
// symmetric.MaxAlignment.
//
// Collective: all ranks of p, same size. Owns: the caller frees the slab before the runtime is
// closed. Errors, on all ranks alike: dist.ErrUnsupported where p is not the group that the runtime
// was started on, because every rank takes part in an allocation; symmetric.ErrNoSpace where a GPU
// has not enough memory left; dist.ErrMismatch where sizes differ; dist.ErrInvalid for a size
// below 1.
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
		once.Do(func() { err = rt.give(p, r.base[p.Rank]) })
		return err
	}
	return &gpu.Slab{Bytes: bytes, Base: r.base, Free: free}, nil
}

// isWorld reports whether p is all ranks of the runtime in their order.
func (rt *Runtime) isWorld(p *gpu.Member) bool {
	return p.Size == rt.member.Size && p.Rank == rt.member.Rank && slices.Equal(p.World, rt.member.World)
}
