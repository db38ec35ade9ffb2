package gpu

import (
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/hostheap"
	"github.com/symgrad/symgrad/symmetric"
)

// Alloc implements symmetric.Heap.
func (h *Heap) Alloc(bytes int64) (symmetric.Region, error) {
	return h.alloc("alloc", symmetric.Alignment, bytes)
}

// Calloc implements symmetric.Heap.
func (h *Heap) Calloc(count, bytes int64) (symmetric.Region, error) {
	r, err := h.alloc("calloc", symmetric.Alignment, hostheap.Product(count, bytes))
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

// alloc checks the arguments after the ranks have agreed, so that wrong ones are an error on every
// rank.
func (h *Heap) alloc(call string, alignment, bytes int64) (symmetric.Region, error) {
	off, err := int64(0), hostheap.ErrClosed
	if h.gate.Enter() {
		c := opEntry{sig: dist.Signature{Kind: dist.KindAlloc, Count: bytes}, extra: alignment}
		err = h.t.exclusive(&c, nil, func([][]byte) (err error) {
			off, err = h.take(alignment, bytes)
			return err
		})
		h.gate.Leave()
	}
	if err != nil {
		return nil, fmt.Errorf("%s %d B rank %d/%d: %w", call, bytes, h.t.member.Rank, h.t.member.Size, err)
	}
	return &Region{heap: h, of: &allocation{}, off: off, n: bytes}, nil
}

// take allocates a range and zeroes it. No rank writes to it before all have zeroed theirs.
func (h *Heap) take(alignment, bytes int64) (int64, error) {
	if err := hostheap.CheckSize(alignment, bytes); err != nil {
		return 0, err
	}
	h.book.Lock()
	off, err := h.arena.Aligned(alignment, bytes)
	h.book.Unlock()
	if err != nil {
		return 0, err
	}
	p := &h.t.member
	if err = p.Agree(h.zero(off, bytes)); err != nil {
		h.book.Lock()
		defer h.book.Unlock()
		return 0, errors.Join(err, h.arena.Free(off))
	}
	return off, nil
}

func (h *Heap) zero(off, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	return h.transfer(true, func() error { return h.rma.Fill(h.slab.Base[h.t.member.Rank]+uintptr(off), 0, bytes) })
}

// Free implements symmetric.Heap.
func (h *Heap) Free(r symmetric.Region) error {
	p := &h.t.member
	own, ok := r.(*Region)
	switch {
	case !ok || own == nil || own.heap != h:
		return fmt.Errorf("free rank %d/%d: %w", p.Rank, p.Size, symmetric.ErrNotAllocated)
	case own.slice:
		return fmt.Errorf("free rank %d/%d: a slice of a region at offset %d; free the whole: %w",
			p.Rank, p.Size, own.off, symmetric.ErrNotAllocated)
	}
	err := hostheap.ErrClosed
	if h.gate.Enter() {
		err = h.free(own)
		h.gate.Leave()
	}
	if err != nil {
		return fmt.Errorf("free of %d B at offset %d rank %d/%d: %w", own.n, own.off, p.Rank, p.Size, err)
	}
	return nil
}

// free returns the range after the transfers of all ranks have ended. A pending transfer would
// otherwise write into the next region there.
func (h *Heap) free(r *Region) error {
	if !r.of.freed.CompareAndSwap(false, true) {
		return fmt.Errorf("freed before: %w", symmetric.ErrNotAllocated)
	}
	c := opEntry{sig: dist.Signature{Kind: dist.KindFree, Count: r.off}}
	err := h.t.exclusive(&c, nil, func([][]byte) error {
		if err := h.t.member.Agree(h.quiesce()); err != nil {
			return err
		}
		h.book.Lock()
		defer h.book.Unlock()
		return h.arena.Free(r.off)
	})
	if err != nil {
		r.of.freed.Store(false)
	}
	return err
}
