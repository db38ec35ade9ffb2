package shm

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// No rank leaves a barrier before all have arrived: after a broadcast, a sum or another barrier,
// with ranks that share cores, ranks that do not, and both in one group.
func TestNobodyLeavesABarrierBeforeAllHaveCome(t *testing.T) {
	for n := 2; n <= 4; n++ {
		for what, spins := range map[string][2]int{
			"alone": {spinsAlone, spinsAlone}, "crowded": {spinsShared, spinsShared}, "rank 0 alone": {spinsAlone, spinsShared},
		} {
			t.Run(fmt.Sprintf("%d ranks, %s", n, what), func(t *testing.T) {
				ts, err := Local(n, memoryOfTests(), Config{})
				if err != nil {
					t.Fatal(err)
				}
				for r, end := range ts {
					end.(*worldTransport).spins = spins[min(r, 1)]
				}
				come := make([]atomic.Int64, n)
				for r, err := range wrap(ts, func(w *dist.World) error { return barriers(w, come) }) {
					if err != nil {
						t.Errorf("rank %d: %v", r, err)
					}
				}
			})
		}
	}
}

// barriers runs up to four of them in a row, each kind of row many times, with a broadcast of one
// root after the other after each row, or a sum; come counts the barriers that each rank has begun.
func barriers(w *dist.World, come []atomic.Int64) error {
	given := make([]int64, 1)
	x := tensor.Of(given)
	for turn := range int64(80) {
		for range turn%4 + 1 {
			mine := come[w.Rank()].Add(1)
			if err := done(w.Blocking().Barrier()); err != nil {
				return err
			}
			for r := range come {
				if theirs := come[r].Load(); theirs < mine {
					return fmt.Errorf("turn %d: it left barrier %d, and rank %d has begun %d", turn, mine, r, theirs)
				}
			}
		}
		root := int(turn/5) % w.Size()
		given[0] = 0
		if w.Rank() == root {
			given[0] = turn
		}
		next := func() (dist.Work, error) { return w.Blocking().Broadcast(x, x, root) }
		if turn%5 == 4 {
			next = func() (dist.Work, error) { return w.Blocking().AllReduce(x, x, dist.Sum) }
		}
		if err := done(next()); err != nil {
			return err
		}
		if given[0] != turn {
			return fmt.Errorf("turn %d: got %d", turn, given[0])
		}
	}
	return nil
}
