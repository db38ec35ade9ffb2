package symmetric_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// A region is bytes until a view gives it an element type.
func ExampleView() {
	onEach(1, func(_ int, h symmetric.Heap) error {
		r, err := h.Alloc(32)
		if err != nil {
			return err
		}
		all, err := symmetric.View[int64](r)
		if err != nil {
			return err
		}
		all[3] = 7
		last, err := symmetric.G[int64](r, 0, 24)
		fmt.Println(len(all), last, err)
		return nil
	})
	// Output:
	// 4 7 <nil>
}

func TestViewsOfARegion(t *testing.T) {
	worlds, err := sim.New(1, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w := worlds[0]
	defer w.Close()
	h, err := w.Heap(1 << 12)
	if err != nil {
		t.Fatal(err)
	}
	r, err := h.Alloc(12)
	if err != nil {
		t.Fatal(err)
	}
	own, err := symmetric.View[float32](r)
	if err != nil || len(own) != 3 {
		t.Fatalf("%v, %v", own, err)
	}
	own[2] = 2.5
	peer, err := symmetric.PeerView[float32](r, 0)
	if err != nil || !slices.Equal(peer, []float32{0, 0, 2.5}) {
		t.Errorf("the part of rank 0 is %v, %v", peer, err)
	}
	var access *symmetric.AccessError
	if _, err := symmetric.PeerView[float32](r, 1); !errors.As(err, &access) || access.Peer != 1 {
		t.Errorf("the part of rank 1 of 1: %v", err)
	}
	if v, err := symmetric.View[int64](r); err == nil {
		t.Errorf("12 B as int64: %v", v)
	}
	for at, fits := range map[int64]bool{0: true, 4: false} { // 4 is not aligned to 8
		s, err := r.Slice(at, 8)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := symmetric.View[int64](s); (err == nil) != fits || len(v) != 0 && !fits {
			t.Errorf("8 B at %d as int64: %v, %v", at, v, err)
		}
	}
	if _, err := symmetric.View[int64](nil); err == nil {
		t.Error("a view of no region")
	}
	if err := h.Free(r); err != nil {
		t.Fatal(err)
	}
	if v, err := symmetric.View[float32](r); err != nil || len(v) != 0 {
		t.Errorf("a view of a freed region: %v, %v", v, err)
	}
	if b := r.Local(); !b.IsUntyped() || b.DType() != tensor.U8 {
		t.Errorf("a freed region is %v", b)
	}
}
