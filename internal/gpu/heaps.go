package gpu

import (
	"encoding/binary"
	"errors"
	"slices"
)

// heapSet is the symmetric heaps of a group, and those of the group that it was split from.
type heapSet struct {
	*core
	engines  *engineSet
	heaps    []*Heap // not yet freed, in the order of creation, which all ranks share
	borrowed []*Slab // slabs of the parent group, registered here
	releases []*Heap // heaps of the borrowed slabs
}

// Each rank closes a heap on its own. All ranks together free its memory and its registrations, at
// the next collective call that is not an operation, or at the group's end. Until then the ranks
// exchange which of their first 64 heaps they have closed.
const closingsBytes = 8

func (k *heapSet) closings() []byte {
	var mask uint64
	for i, h := range k.heaps[:min(len(k.heaps), 64)] {
		if h.left.Load() && h.borrows.Load() == 0 {
			mask |= 1 << i
		}
	}
	return binary.LittleEndian.AppendUint64(make([]byte, 0, 64), mask)
}

// reap frees the heaps that all ranks have closed. all begins with the closings of each rank.
// Errors: on all ranks.
func (k *heapSet) reap(all [][]byte) error {
	mask := ^uint64(0)
	for _, b := range all {
		mask &= binary.LittleEndian.Uint64(b[:closingsBytes])
	}
	if mask == 0 || len(k.heaps) == 0 {
		return nil
	}
	var gone, kept []*Heap
	for i, h := range k.heaps {
		if i < 64 && mask>>i&1 != 0 {
			gone = append(gone, h)
		} else {
			kept = append(kept, h)
		}
	}
	k.heaps = kept
	if len(gone) == 0 {
		return nil
	}
	return k.member.Agree(k.freeHeaps(gone)) // otherwise ranks that freed would go on to a collective call that others have left
}

// freeHeaps frees the memory of heaps. Collective.
func (k *heapSet) freeHeaps(heaps []*Heap) error {
	var errs []error
	for i := len(heaps) - 1; i >= 0; i-- {
		h := heaps[i]
		errs = append(errs, h.Close(), unregister(k.engines.list, h.slab))
		k.member.Memory.Remove(h.slab)
		if h.slab.Free != nil {
			errs = append(errs, h.slab.Free())
		}
	}
	return errors.Join(errs...)
}

// borrow registers the parent's heaps here, and keeps their memory until this transport is closed.
//
// Collective: all ranks of the group, which are in a collective call of the parent.
func (k *heapSet) borrow(parent *Transport) error {
	ranks := make([]int, k.member.Size) // in the parent
	for i, w := range k.member.World {
		ranks[i] = slices.Index(parent.member.World, w)
	}
	for _, h := range parent.heaps.heaps {
		if closed, err := k.anyClosed(h); err != nil {
			return err
		} else if closed {
			continue
		}
		view := &Slab{Bytes: h.slab.Bytes, Base: make([]uintptr, len(ranks))}
		for i, r := range ranks {
			view.Base[i] = h.slab.Base[r]
		}
		if err := k.engines.register(view); err != nil {
			return err
		}
		h.borrows.Add(1)
		k.member.Memory.Add(view, k.member.Rank)
		k.borrowed = append(k.borrowed, view)
		k.releases = append(k.releases, h)
	}
	return nil
}

// anyClosed reports whether a rank of the group has closed h.
func (k *heapSet) anyClosed(h *Heap) (bool, error) {
	own := []byte{0}
	if h.gate.Closed() {
		own[0] = 1
	}
	all, err := k.member.Exchange(own)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(all, func(b []byte) bool { return b[0] != 0 }), nil
}

// unborrow unregisters the parent's heaps. Collective.
func (k *heapSet) unborrow() error {
	var errs []error
	for i := len(k.borrowed) - 1; i >= 0; i-- {
		errs = append(errs, unregister(k.engines.list, k.borrowed[i]))
		k.member.Memory.Remove(k.borrowed[i])
	}
	return errors.Join(errs...)
}
