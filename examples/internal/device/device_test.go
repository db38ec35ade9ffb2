package device

import (
	"errors"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/symmetric"
)

func TestBoardTakesWhatItSays(t *testing.T) {
	for n := 1; n <= 200; n += 33 {
		worlds, err := sim.New(1, sim.Config{})
		if err != nil {
			t.Fatal(err)
		}
		h, err := worlds[0].Heap(BoardBytes(n))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Alloc(int64(n+1) * wordBytes); err != nil {
			t.Errorf("%d ranks: %v", n, err)
		}
		if _, err := h.Alloc(1); !errors.Is(err, symmetric.ErrNoSpace) {
			t.Errorf("%d ranks: there is room left: %v", n, err)
		}
		if err := worlds[0].Close(); err != nil {
			t.Error(err)
		}
	}
}

// Ranks on the host do not need a Board, and get an error that says so.
func TestBoardIsForGPUs(t *testing.T) {
	worlds, err := sim.New(1, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w := worlds[0]
	h, err := w.Heap(BoardBytes(1))
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBoard(w, h)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Verdict("things", 1); !errors.Is(err, dist.ErrUnsupported) {
		t.Errorf("error %v", err)
	}
	late := errors.New("late")
	if err := Late(w, late); !errors.Is(err, late) {
		t.Errorf("error %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Late(w, late); !errors.Is(err, late) || !errors.Is(err, dist.ErrClosed) {
		t.Errorf("in a closed world: error %v", err)
	}
}
