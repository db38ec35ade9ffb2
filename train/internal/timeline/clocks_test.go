package timeline

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/train/internal/exchange"
)

// The clock of a second host is 5 s ahead. On the timeline its spans begin when those of rank 0 do,
// within the bound that the timeline has.
func TestTimelineOfTwoHostsHasOneClock(t *testing.T) {
	const ahead = 5 * time.Second
	path := filepath.Join(t.TempDir(), "t.json")
	start := time.Now()
	err := backend.Simulate(4, backend.Config{}, func(w *dist.World) error {
		local := w.Local()
		local.Node, local.Nodes = w.Rank()/2, 2
		s := New(w)
		s.on = true
		if local.Node == 1 {
			s.wall = s.wall.Add(ahead)
		}
		k := exchange.New(w)
		if err := s.CompareClocks(k, local); err != nil {
			return err
		}
		s.Add("compute", "forward", start, start.Add(time.Second))
		for r, c := range s.clocks {
			if want := ahead * time.Duration(r/2); c.Rank != r || c.Node != r/2 || (c.Offset-want).Abs() > c.Bound || c.Bound >= ahead {
				return fmt.Errorf("rank %d: clock %+v, want an offset of %v", w.Rank(), c, want)
			}
		}
		return s.Write(k, path)
	})
	if err != nil {
		t.Fatal(err)
	}
	checkOneClock(t, path)
}

// checkOneClock compares the starts of all spans with the first.
func checkOneClock(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Events []struct {
			Phase string  `json:"ph"`
			Start float64 `json:"ts"`
		} `json:"traceEvents"`
		Other struct {
			Clocks []struct {
				Offset int64 `json:"offset_ns"`
				Bound  int64 `json:"bound_ns"`
			}
		} `json:"otherData"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Other.Clocks) != 4 {
		t.Fatalf("clocks %+v, want those of 4 ranks", file.Other.Clocks)
	}
	bound := float64(file.Other.Clocks[3].Bound) / 1e3
	for _, e := range file.Events {
		if e.Phase == "X" && e.Start > bound+1 {
			t.Errorf("a span starts %.1f us after the first, with a bound of %.1f us", e.Start, bound)
		}
	}
}

func TestOneHostComparesNoClocks(t *testing.T) {
	err := backend.Simulate(2, backend.Config{}, func(w *dist.World) error {
		s := New(w)
		s.on = true
		if err := s.CompareClocks(exchange.New(w), w.Local()); err != nil || s.clocks != nil {
			return fmt.Errorf("clocks %v, %w", s.clocks, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
