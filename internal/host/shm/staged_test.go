package shm

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// TestStagedSumsPointIntoTheirBuffers: an address right after a buffer of the Go heap belongs to
// another object, or to none, and the garbage collector ends the process when it finds it where a
// pointer is kept.
func TestStagedSumsPointIntoTheirBuffers(t *testing.T) {
	for _, ranks := range []int{1, 2, 4} {
		for _, bytes := range []int{touchPiece / 2, touchPiece, 3 * touchPiece, 3*touchPiece + 64} {
			t.Run(fmt.Sprintf("%d B/%d ranks", bytes, ranks), func(t *testing.T) { stagedPointers(t, ranks, bytes) })
		}
	}
}

func stagedPointers(t *testing.T, ranks, bytes int) {
	ts, err := Local(ranks, Mapped, Config{touch: 1})
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range wrap(ts, func(w *dist.World) error {
		x := tensor.Of(make([]float32, bytes/4))
		if err := done(w.Blocking().AllReduce(x, x, dist.Sum)); err != nil {
			return err
		}
		tr := ts[w.Rank()].(*worldTransport).Transport
		for _, p := range append([]unsafe.Pointer{tr.reducer.srcs[w.Rank()]}, tr.reducer.dsts...) {
			if uintptr(p) == uintptr(x.Pointer())+uintptr(x.Bytes()) {
				return fmt.Errorf("keeps %p, behind %d B at %p", p, x.Bytes(), x.Pointer())
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// A slot holds an element for every rank, also the smallest slot of many ranks.
func TestSmallestChunksOfManyRanks(t *testing.T) {
	const n = 9
	onEach(t, n, Config{ChunkBytes: 64}, func(w *dist.World) error {
		src, dst := make([]float64, 3*n), make([]float64, 3)
		for i := range src {
			src[i] = float64(i)
		}
		if err := done(w.ReduceScatter(tensor.Of(dst), tensor.Of(src), dist.Sum)); err != nil {
			return err
		}
		for i, got := range dst {
			if want := float64(n * (3*w.Rank() + i)); got != want {
				return fmt.Errorf("element %d is %v, want %v", i, got, want)
			}
		}
		return nil
	})
}
