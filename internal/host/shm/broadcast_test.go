package shm

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// A root in place that has a core of its own stores a part of a large broadcast to the others:
// every element arrives, none beside them changes, and what follows is in order. One rank takes it
// into private memory, and so all of it by itself.
func TestTheRootOfALargeBroadcastDoesItsShare(t *testing.T) {
	for n := 2; n <= 4; n++ {
		for _, count := range []int{helpBroadcast / 4, helpBroadcast/4 + 1, helpBroadcast/2 + 1029} {
			for root := range n {
				t.Run(fmt.Sprintf("%d ranks, %d elements, root %d", n, count, root), func(t *testing.T) {
					ts, err := Local(n, memoryOfTests(), Config{})
					if err != nil {
						t.Fatal(err)
					}
					for _, end := range ts {
						end.(*worldTransport).spins = spinsAlone
					}
					for r, err := range wrap(ts, func(w *dist.World) error { return largeBroadcasts(w, count, root) }) {
						if err != nil {
							t.Errorf("rank %d: %v", r, err)
						}
					}
				})
			}
		}
	}
}

// Among many ranks a root has less than a page for each of the others: they pull all of it, and
// nothing beside it.
func TestTheShareOfTheRootMayBeNothing(t *testing.T) {
	const n, count = 70, 66558 // 266232 B: without a seventieth, rounded up to pages, more than all of it
	ts, err := Local(n, memoryOfTests(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range ts {
		end.(*worldTransport).spins = spinsAlone
	}
	for r, err := range wrap(ts, func(w *dist.World) error { return largeBroadcasts(w, count, 0) }) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// memoryOfTests is the kind of memory that works under the race detector too.
func memoryOfTests() Memory {
	if raceEnabled {
		return GoMemory
	}
	return Mapped
}

func largeBroadcasts(w *dist.World, count, root int) error {
	h, err := w.Heap(int64(4*count) + 4096)
	if err != nil {
		return err
	}
	r, err := h.Alloc(int64(4*count) + 64)
	if err != nil {
		return err
	}
	all := unsafe.Slice((*float32)(r.Local().Pointer()), count+16)
	if w.Rank() == (root+1)%w.Size() && w.Size() > 2 {
		all = make([]float32, count+16)
	}
	buf, beside := tensor.Of(all[:count]), float32(-1-w.Rank()) // what no other rank has
	for _, g := range []*dist.Group{w.Blocking(), w.Group} {
		for turn := range 5 {
			for i := range all {
				all[i] = beside
			}
			for i := range all[:count] {
				if w.Rank() == root {
					all[i] = float32(i%1000 + turn)
				}
			}
			if err := done(g.Broadcast(buf, buf, root)); err != nil {
				return err
			}
			for i, v := range all[:count] {
				if v != float32(i%1000+turn) {
					return fmt.Errorf("turn %d: element %d is %v, want %v", turn, i, v, i%1000+turn)
				}
			}
			for i, v := range all[count:] {
				if v != beside {
					return fmt.Errorf("turn %d: element %d, after the last, became %v", turn, count+i, v)
				}
			}
			if err := done(g.Barrier()); err != nil {
				return err
			}
		}
	}
	return nil
}
