package shm

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// TestStagedSumsPointIntoTheirBuffers: an address right behind a buffer of the Go heap belongs to another object, or to none, and
// the garbage collector ends the process when it finds it where a pointer is kept.
func TestStagedSumsPointIntoTheirBuffers(t *testing.T) {
	for _, ranks := range []int{1, 2, 4} {
		for _, bytes := range []int{touchPiece / 2, touchPiece, 3 * touchPiece, 3*touchPiece + 64} {
			t.Run(fmt.Sprintf("%d B/%d ranks", bytes, ranks), func(t *testing.T) { stagedPointers(t, ranks, bytes) })
		}
	}
}

func stagedPointers(t *testing.T, ranks, bytes int) {
	ts, err := Local(ranks, Mapped, Config{})
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range wrap(ts, func(w *dist.World) error {
		x := tensor.Of(make([]float32, bytes/4))
		if err := done(w.Blocking().AllReduce(x, x, dist.Sum)); err != nil {
			return err
		}
		tr := ts[w.Rank()].(*worldTransport).Transport
		for _, p := range append([]unsafe.Pointer{tr.srcs[w.Rank()]}, tr.dsts...) {
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
