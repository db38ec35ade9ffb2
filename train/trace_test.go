package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/machine"
)

// A profile of a GPU becomes spans on streams of their own; outside of steps nothing is recorded.
func TestTraceHasTheStepsOfAProfile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "trace.json")
	err := backend.Simulate(2, backend.Config{}, func(w *dist.World) error {
		g := gorgonia.NewGraph()
		weight := gorgonia.NewVector(g, gorgonia.Float32, gorgonia.WithName("w"), gorgonia.WithShape(4), gorgonia.WithInit(gorgonia.Ones()))
		d, err := ddp.Attach(w, gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Square(weight)))), gorgonia.Nodes{weight}, ddp.Config{})
		if err != nil {
			return err
		}
		trace, err := NewTrace(w, d)
		if err != nil {
			return err
		}
		trace.Span("outside of a step", time.Now())
		trace.End()
		trace.Begin(3)
		trace.Span("batch", time.Now())
		trace.End()
		line := machine.Timeline{}
		line.Steps = slices.Grow(line.Steps, 2)[:2]
		product, sum := &line.Steps[0], &line.Steps[1]
		product.Name, product.Start, product.End = "x×w", time.Millisecond, 3*time.Millisecond
		sum.Op, sum.Stream, sum.Start, sum.End = "allreduce", 1, 2*time.Millisecond, 5*time.Millisecond
		trace.Profile(line)
		return errors.Join(trace.Write(path), d.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	want := "rank 1, compute, batch, gpu compute, x×w 2000 of step 3, gpu comm, allreduce 3000 of step 3"
	if got := strings.Join(spansOfRank1(t, path), ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if _, err := NewTrace(nil, nil); !errors.Is(err, dist.ErrInvalid) {
		t.Error(err)
	}
}

// spansOfRank1 returns the names and spans of rank 1, with their times in microseconds.
func spansOfRank1(t *testing.T, path string) (got []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		TraceEvents []struct {
			Name, Ph string
			PID      int
			Dur      float64
			Args     map[string]any
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, e := range file.TraceEvents {
		switch {
		case e.PID == 0:
		case e.Ph == "M":
			got = append(got, fmt.Sprint(e.Args["name"]))
		case e.Name == "batch":
			got = append(got, e.Name)
		default:
			got = append(got, fmt.Sprintf("%s %v of step %v", e.Name, e.Dur, e.Args["step"]))
		}
	}
	return got
}
