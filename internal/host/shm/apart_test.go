package shm

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// The faster route is found, kept, and left when the other one becomes faster.
func TestHabitsFollowWhatIsFaster(t *testing.T) {
	var h habit
	run := func(n int, push, pull int64) (pulled int) {
		for range n {
			d := push
			if h.nextPulls() {
				d = pull
				pulled++
			}
			h.took(d)
		}
		return pulled
	}
	const cycle = between + settling + measured
	for i, c := range []struct {
		push, pull int64
		pulls      bool
	}{{10, 20, false}, {10, 20, false}, {30, 20, true}, {30, 20, true}, {30, 30, true}, {10, 30, false}, {5, 4, true}} {
		run(cycle, c.push, c.pull)
		if h.pulls != c.pulls || h.n != 0 {
			t.Fatalf("case %d: pulls %t, at %d; want %t", i, h.pulls, h.n, c.pulls)
		}
	}
	if pulled := run(cycle, 5, 4); pulled != between {
		t.Errorf("%d of %d operations take the faster route, want %d", pulled, cycle, between)
	}
}

// Sums apart are right by both ways, while ranks go from one to the other: also where rank 1 may
// run on one core only, and rank 0, which decides, on more.
func TestSumsApartByBothWays(t *testing.T) {
	t.Run("alone", func(t *testing.T) { sumsByBothWays(t, spinsAlone) })
	t.Run("rank 1 shares its core", func(t *testing.T) { sumsByBothWays(t, spinsShared) })
}

func sumsByBothWays(t *testing.T, spins int) {
	ts, err := Local(2, Mapped, Config{StepTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for rank, err := range wrap(ts, func(w *dist.World) error {
		x := ts[w.Rank()].(*worldTransport).Transport
		x.spins = spinsAlone // also on a machine with one core
		if w.Rank() == 1 {
			x.spins = spins
		}
		ways := map[bool]int{}
		for _, count := range []int{1025, 2048, 30011} {
			if err := sumsApart(w, x, count, ways); err != nil {
				return err
			}
		}
		if least := settling + measured; w.Rank() == 0 && (ways[false] < least || ways[true] < least) {
			return fmt.Errorf("operations by each route: %v", ways)
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// sumsApart makes sums of count elements, and records their routes.
func sumsApart(w *dist.World, x *Transport, count int, ways map[bool]int) error {
	h, err := w.Heap(int64(8*count) + 2*symmetric.Alignment)
	if err != nil {
		return err
	}
	var in [2][]float32
	for i := range in {
		r, err := h.Alloc(int64(4 * count))
		if err != nil {
			return err
		}
		in[i] = unsafe.Slice((*float32)(r.Local().Pointer()), count)
	}
	src, dst := in[0], in[1]
	for i := range 3 * (settling + measured) {
		for k := range src {
			src[k] = float32((k + 7*i + 3*w.Rank()) % 1000)
		}
		if err := done(w.Blocking().AllReduce(tensor.Of(dst), tensor.Of(src), dist.Sum)); err != nil {
			return err
		}
		ways[x.direct.sides[0].pulls]++
		for k, got := range dst {
			if want := float32((k+7*i)%1000 + (k+7*i+3)%1000); got != want {
				return fmt.Errorf("%d elements, operation %d: element %d is %v, want %v", count, i, k, got, want)
			}
		}
	}
	return nil
}
