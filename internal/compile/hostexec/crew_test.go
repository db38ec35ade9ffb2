package hostexec

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
)

// counts is a task that counts how often each piece is done.
type counts []atomic.Int32

func (c counts) piece(_ *worker, i int) { c[i].Add(1) }

func TestCrewDoesEachPieceOnce(t *testing.T) {
	for _, threads := range []int{1, 2, 5} {
		c := newCrew(threads, 0, 0, nil)
		for round := range 3000 {
			task := make(counts, round%40)
			if err := c.run(task, len(task)); err != nil {
				t.Fatal(err)
			}
			for i := range task {
				if n := task[i].Load(); n != 1 {
					t.Fatalf("%d threads, round %d: piece %d was done %d times", threads, round, i, n)
				}
			}
		}
		c.close()
		c.close()
	}
}

// firsts is a task whose first pieces of all workers are in work at the same time.
type firsts struct {
	piece0 []atomic.Int64 // 1 + the first piece, by worker
	there  atomic.Int32
}

func (f *firsts) piece(w *worker, i int) {
	if f.piece0[w.id].CompareAndSwap(0, int64(i)+1) {
		f.there.Add(1)
	}
	for int(f.there.Load()) < len(f.piece0) {
		runtime.Gosched()
	}
}

// Each goroutine has the same part of every task, whose data are in its caches.
func TestWorkersBeginWithTheirOwnPieces(t *testing.T) {
	for _, threads := range []int{2, 5} {
		c := newCrew(threads, 0, 0, nil)
		for _, pieces := range []int{threads, threads + 1, 7 * threads} {
			for range 20 {
				f := &firsts{piece0: make([]atomic.Int64, threads)}
				if err := c.run(f, pieces); err != nil {
					t.Fatal(err)
				}
				for id := range threads {
					if first := int(f.piece0[id].Load()) - 1; first != id*pieces/threads {
						t.Errorf("%d threads, %d pieces: worker %d began with piece %d", threads, pieces, id, first)
					}
				}
			}
		}
		c.close()
	}
}

func TestWorkIsCutForAllGoroutines(t *testing.T) {
	for _, c := range []struct {
		threads, units, cost int
		per                  int
	}{
		{1, 1000, 1_000_000, 12},
		{16, 1000, 1_000_000, 12}, // enough for all
		{16, 32, 1_000_000, 2},
		{16, 8, 1_000_000, 1},
		{16, 2048, 12_800, 128},   // where there would be 3 pieces
		{16, 2048, 100, 10_000},   // too little for sixteen
		{16, 3, 1_000_000_000, 1}, // units are not cut
		{2, 0, 0, leastCost},      // nothing to do
	} {
		if per := (&maker{threads: c.threads}).perPiece(c.units, c.cost); per != c.per {
			t.Errorf("%d units of %d ps for %d goroutines: %d in a piece, want %d", c.units, c.cost, c.threads, per, c.per)
		}
	}
}

// BenchmarkCrew measures the hand-over of a task whose pieces do nothing.
func BenchmarkCrew(b *testing.B) {
	for threads := 2; threads <= runtime.NumCPU(); threads *= 2 {
		for _, each := range []int{1, 4} {
			b.Run(fmt.Sprintf("threads=%d,pieces=%d", threads, each*threads), func(b *testing.B) {
				c := newCrew(threads, 0, 0, nil)
				defer c.close()
				for b.Loop() {
					if err := c.run(falls(-1), each*threads); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// falls panics in one piece.
type falls int

func (f falls) piece(_ *worker, i int) {
	if i == int(f) {
		var none []int
		none[i] = 1
	}
}

func TestPanicOfAPieceIsAnError(t *testing.T) {
	c := newCrew(3, 0, 0, nil)
	defer c.close()
	for round := range 200 {
		if err := c.run(falls(round%20), 20); err == nil || !strings.Contains(err.Error(), "BUG: panic") || !strings.Contains(err.Error(), "index out of range") {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := c.run(falls(-1), 20); err != nil {
			t.Fatalf("round %d, after it: %v", round, err)
		}
	}
}
