package hostheap

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Host is a backend's part of a heap: agreement, memory, and sleep.
type Host interface {
	// Alloc allocates at least bytes bytes at a multiple of alignment on every rank, zeroed
	// everywhere when it returns. Different arguments are an error on all ranks; invalid ones are
	// passed on so that all ranks compare them. Collective: all ranks, same order. Returns: the
	// offset from the base of a part.
	Alloc(alignment, bytes int64) (int64, error)
	// Free frees the range of n bytes at off. Collective: all ranks, same order.
	Free(off, n int64) error
	// Stats returns the present use.
	Stats() symmetric.Stats
	// Alive returns why the group is broken, or nil. It is called before every access.
	Alive() error
	// Ring wakes sleepers on bytes off to off+n of rank's part, after a write to them.
	Ring(rank int, off, n int64)
	// Await returns when done returns true. It calls done whenever bytes off to off+n of the own
	// part may have changed. It ends early with the error of ctx, of the group, of a step timeout,
	// or when leave returns true.
	Await(ctx context.Context, off, n int64, done, leave func() bool) error
	// Unmap frees the memory. No access follows.
	Unmap() error
}

// Config has the parameters of a heap.
type Config struct {
	Rank  int      // this rank in the group
	Parts [][]byte // by rank: its part, directly addressable
	Spins int      // checks of a word before a wait sleeps
}

// Heap is one rank's end of a symmetric heap in host memory. It implements symmetric.Heap.
type Heap struct {
	host  Host
	rank  int
	parts [][]byte
	spins int
	gate  Gate
	fence atomic.Uint64
	gone  chan struct{} // closed when the memory is unmapped
}

// New returns a heap over parts of equal size.
func New(host Host, cfg Config) *Heap {
	return &Heap{
		host: host, rank: cfg.Rank, parts: cfg.Parts, spins: max(cfg.Spins, 1), gate: NewGate(), gone: make(chan struct{}),
	}
}

// Alloc implements symmetric.Heap.
func (h *Heap) Alloc(bytes int64) (symmetric.Region, error) {
	return h.alloc("alloc", symmetric.Alignment, bytes)
}

// Calloc implements symmetric.Heap.
func (h *Heap) Calloc(count, bytes int64) (symmetric.Region, error) {
	r, err := h.alloc("calloc", symmetric.Alignment, Product(count, bytes))
	if err != nil {
		return nil, fmt.Errorf("%d elements of %d B: %w", count, bytes, err)
	}
	return r, nil
}

// Aligned implements symmetric.Heap.
func (h *Heap) Aligned(alignment, bytes int64) (symmetric.Region, error) {
	r, err := h.alloc("aligned alloc", alignment, bytes)
	if err != nil {
		return nil, fmt.Errorf("alignment %d: %w", alignment, err)
	}
	return r, nil
}

// alloc lets the ranks agree before it checks the arguments, so that invalid ones are an error on
// every rank.
func (h *Heap) alloc(call string, alignment, bytes int64) (symmetric.Region, error) {
	off, err := int64(0), ErrClosed
	if h.gate.Enter() {
		off, err = h.host.Alloc(alignment, bytes)
		h.gate.Leave()
	}
	if err != nil {
		return nil, fmt.Errorf("%s %d B rank %d/%d: %w", call, bytes, h.rank, len(h.parts), err)
	}
	return &Region{heap: h, of: &allocation{}, off: off, n: bytes}, nil
}

// Free implements symmetric.Heap.
func (h *Heap) Free(r symmetric.Region) error {
	own, ok := r.(*Region)
	switch {
	case !ok || own == nil || own.heap != h:
		return fmt.Errorf("free rank %d/%d: %w", h.rank, len(h.parts), symmetric.ErrNotAllocated)
	case own.slice:
		return fmt.Errorf("free rank %d/%d: a slice of a region at offset %d; free the whole: %w",
			h.rank, len(h.parts), own.off, symmetric.ErrNotAllocated)
	}
	err := ErrClosed
	if h.gate.Enter() {
		err = h.free(own)
		h.gate.Leave()
	}
	if err != nil {
		return fmt.Errorf("free of %d B at offset %d rank %d/%d: %w", own.n, own.off, h.rank, len(h.parts), err)
	}
	return nil
}

func (h *Heap) free(r *Region) error {
	if !r.of.freed.CompareAndSwap(false, true) {
		return fmt.Errorf("freed before: %w", symmetric.ErrNotAllocated)
	}
	if err := h.host.Free(r.off, r.n); err != nil {
		r.of.freed.Store(false)
		return err
	}
	return nil
}

// Fence implements symmetric.Heap: a full memory barrier.
func (h *Heap) Fence() error { return h.order("fence") }

// Quiet implements symmetric.Heap. Every transfer is a copy by this CPU and complete when its call
// returns. Quiet therefore only makes the stores visible before later loads.
func (h *Heap) Quiet() error { return h.order("quiet") }

func (h *Heap) order(call string) error {
	h.fence.Add(1) // a locked instruction orders all stores before it
	err := ErrClosed
	if h.gate.Enter() {
		err = h.host.Alive()
		h.gate.Leave()
	}
	if err != nil {
		return fmt.Errorf("%s rank %d/%d: %w", call, h.rank, len(h.parts), err)
	}
	return nil
}

// Stats implements symmetric.Heap.
func (h *Heap) Stats() symmetric.Stats { return h.host.Stats() }

// Close implements symmetric.Heap. A second call waits too: a closing group next unmaps the state
// that running accesses read through Alive.
func (h *Heap) Close() error {
	if !h.gate.Close(func() { h.host.Ring(h.rank, 0, int64(len(h.parts[h.rank]))) }) {
		<-h.gone
		return nil
	}
	defer close(h.gone)
	return h.host.Unmap()
}

// Closed reports whether Close is done.
func (h *Heap) Closed() bool {
	select {
	case <-h.gone:
		return true
	default:
		return false
	}
}

// none returns an empty buffer.
func none() tensor.Buffer { return tensor.Of([]byte(nil)).Untyped() }
