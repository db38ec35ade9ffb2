package shm

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/hostheap"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/symmetric"
)

// Heap is one rank's view of a symmetric heap: a segment with a page of bells for each rank,
// followed by the parts of all ranks. It implements symmetric.Heap.
type Heap struct {
	*hostheap.Heap
	t     *Transport // of the ranks that share it
	id    uint64
	part  int64 // bytes per rank
	seg   segment
	own   uintptr  // address of the own part, for locate
	parts [][]byte // by rank
	bells []bells  // by rank

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
	if err := hostheap.CheckHeap(bytes, t.size); err != nil {
		return nil, err
	}
	part := max(bytes+pageBytes-1, pageBytes) &^ (pageBytes - 1)
	id := t.headers[0].id
	arena, err := symmetric.NewArena(part)
	if err != nil {
		return nil, err
	}
	seg, err := t.share("a symmetric heap", t.ranks, id, (pageBytes+part)*int64(t.size))
	if seg, err = t.haveAll(dist.KindHeap, seg, err); err != nil {
		return nil, err
	}
	h := &Heap{t: t, id: id, part: part, seg: seg, arena: arena}
	mem := seg.bytes()
	for r := range int64(t.size) {
		h.bells = append(h.bells, bells{pointer(mem[r*pageBytes:])})
		lo := int64(t.size)*pageBytes + r*part
		h.parts = append(h.parts, mem[lo:lo+part:lo+part])
	}
	h.own = uintptr(pointer(h.parts[t.rank]))
	h.Heap = hostheap.New(&host{h}, hostheap.Config{Rank: t.rank, Parts: h.parts, Spins: t.spins})
	t.node.addHeap(h)
	return h, nil
}

// host implements the needs of internal/host/hostheap for a Heap.
type host struct{ h *Heap }

// Alloc implements hostheap.Host.
func (o *host) Alloc(alignment, bytes int64) (off int64, err error) {
	h := o.h
	err = h.collective(&header{sig: dist.Signature{Kind: dist.KindAlloc, Count: bytes}, a: alignment}, func() error {
		if err := h.sameAlignment(); err != nil {
			return err
		}
		if err := hostheap.CheckSize(alignment, bytes); err != nil {
			return err
		}
		if off, err = h.arena.Aligned(alignment, bytes); err != nil {
			return err
		}
		clear(h.parts[h.t.rank][off : off+bytes])
		return h.t.barrier() // no rank may write before it is cleared
	})
	return off, err
}

// sameAlignment compares the alignments of an Alloc. All ranks get the same result.
func (h *Heap) sameAlignment() error {
	t := h.t
	for r := range t.headers {
		if a, b := t.headers[0].a, t.headers[r].a; a != b {
			err := fmt.Errorf("%w on the alignment: rank 0 wants %d, rank %d wants %d", dist.ErrMismatch, a, r, b)
			t.ctl.fail(abortMismatch, t.rank, err.Error())
			return err
		}
	}
	return nil
}

// Free implements hostheap.Host.
func (o *host) Free(off, n int64) error {
	h := o.h
	return h.collective(&header{sig: dist.Signature{Kind: dist.KindFree, Count: off}}, func() error {
		if err := h.arena.Free(off); err != nil {
			return err
		}
		invariants.Mangle(h.parts[h.t.rank][off : off+n]) // all ranks have called: a late reader gets garbage
		return nil
	})
}

// collective agrees on an arena call among the ranks and runs it on all of them.
func (h *Heap) collective(own *header, do func() error) error {
	own.sig.Root = -1
	own.b = int64(h.id)
	return h.t.exclusive(own.sig.Kind, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.closed {
			return dist.ErrClosed
		}
		if err := h.t.agree(own); err != nil {
			return err
		}
		if err := h.sameHeap(own.sig.Kind); err != nil {
			return err
		}
		return do()
	})
}

// sameHeap returns an error if ranks have called on different heaps. All ranks get the same result.
func (h *Heap) sameHeap(k dist.Kind) error {
	const number = 1<<40 - 1 // of the segments of rank 0
	t := h.t
	for r := range t.headers {
		if a, b := t.headers[0].b, t.headers[r].b; a != b {
			err := fmt.Errorf("%w on the heap: rank 0 has %v in heap %d, rank %d in heap %d", dist.ErrMismatch, k, a&number, r, b&number)
			t.ctl.fail(abortMismatch, t.rank, err.Error())
			return err
		}
	}
	return nil
}

// Alive implements hostheap.Host.
func (o *host) Alive() error { return o.h.t.ctl.aborted() }

// Stats implements hostheap.Host.
func (o *host) Stats() symmetric.Stats {
	o.h.mu.Lock()
	defer o.h.mu.Unlock()
	return o.h.arena.Stats()
}

// Unmap implements hostheap.Host.
func (o *host) Unmap() error {
	h := o.h
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.t.node.dropHeap(h)
	return h.seg.close()
}

// errNoHeap is returned by resolve if this rank cannot access a peer's buffer.
var errNoHeap = errors.New("lies in a symmetric heap that is closed here, or not shared with this rank")

// resolve returns n bytes at off of the part of world rank peer in heap id.
func (nd *node) resolve(id uint64, peer int, off, n int64) ([]byte, error) {
	for _, h := range *nd.heaps.Load() {
		if h.id != id {
			continue
		}
		r := slices.Index(h.t.ranks, peer)
		if r < 0 || off < 0 || n > h.part-off {
			break
		}
		return h.parts[r][off : off+n : off+n], nil
	}
	return nil, errNoHeap
}
