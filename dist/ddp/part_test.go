package ddp_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/sim"
)

// heard is a log that several ranks write to.
type heard struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.Write(p)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.String()
}

// line is cost = mean over rows of x*w, of so many rows of a graph.
type line struct {
	x, w *G.Node
	d    *ddp.DDP
	vm   G.VM
}

func newLine(world *dist.World, rows int, cfg ddp.Config) (*line, error) {
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(rows, 1))
	w := G.NewMatrix(g, G.Float64, G.WithName("w"), G.WithShape(1, 1), G.WithInit(G.Ones()))
	d, err := ddp.Attach(world, G.Must(G.Mean(G.Must(G.Mul(x, w)))), G.Nodes{w}, cfg)
	return &line{x: x, w: w, d: d, vm: G.NewTapeMachine(g)}, err
}

// gradient is d cost/d w after a run.
func (l *line) gradient() float64 {
	v, err := l.w.Grad()
	if err != nil {
		return math.NaN()
	}
	switch x := v.Data().(type) {
	case []float64:
		return x[0]
	case float64:
		return x
	}
	return math.NaN()
}

func rowsOf(v ...float64) G.Value {
	if len(v) == 0 {
		return nil
	}
	return gtensor.New(gtensor.WithShape(len(v), 1), gtensor.WithBacking(v))
}

// Whatever the rows of the parts and those of the graph, the gradient is the mean over the rows of
// all ranks.
func TestRunPartIsTheMeanOverAllRows(t *testing.T) {
	for _, stage := range []int{0, 1} {
		for _, lengths := range [][]int{{4, 4}, {3, 4}, {1, 2}, {0, 4}, {5, 3}, {0, 1}, {4, 6}, {9, 0}} {
			t.Run(fmt.Sprint(stage, lengths), func(t *testing.T) {
				sum, n := 0.0, 0
				for r, rows := range lengths {
					for i := range rows {
						sum, n = sum+float64(1+10*r+i), n+1
					}
				}
				onRanks(t, 2, func(w *dist.World) error {
					l, err := newLine(w, 4, ddp.Config{Stage: stage})
					if err != nil {
						return err
					}
					defer l.vm.Close()
					var mine []float64
					for i := range lengths[w.Rank()] {
						mine = append(mine, float64(1+10*w.Rank()+i))
					}
					for range 2 { // nothing is left over from the first
						if err := l.d.RunPart(l.vm, len(mine), ddp.Input{Node: l.x, Value: rowsOf(mine...)}); err != nil {
							return err
						}
						if stage > 0 && w.Rank() > 0 {
							l.vm.Reset() // the only piece is rank 0's
							continue
						}
						if got, want := l.gradient(), sum/float64(n); math.Abs(got-want) > 16*0x1p-52*want { // of at most 16 roundings
							return fmt.Errorf("gradient %v, want %v", got, want)
						}
						l.vm.Reset()
					}
					return nil
				})
			})
		}
	}
}

func TestRunPartRefuses(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		l, err := newLine(w, 2, ddp.Config{Stage: 2})
		if err != nil {
			return err
		}
		defer l.vm.Close()
		x := func(v G.Value) ddp.Input { return ddp.Input{Node: l.x, Value: v} }
		wide := gtensor.New(gtensor.WithShape(2, 2), gtensor.WithBacking(make([]float64, 4)))
		single := gtensor.New(gtensor.WithShape(2, 1), gtensor.WithBacking(make([]float32, 2)))
		for _, c := range []struct {
			says string
			err  error
			want error
		}{
			{"no machine", l.d.RunPart(nil, 1, x(rowsOf(1))), dist.ErrInvalid},
			{"no inputs", l.d.RunPart(l.vm, 1), dist.ErrInvalid},
			{"a negative number of rows", l.d.RunPart(l.vm, -1, x(nil)), dist.ErrInvalid},
			{"input 0 has no rows", l.d.RunPart(l.vm, 1, ddp.Input{}), dist.ErrInvalid},
			{"want 2 rows of float64 (1)", l.d.RunPart(l.vm, 2, x(rowsOf(1, 2, 3))), dist.ErrInvalid},
			{"want 2 rows of float64 (1)", l.d.RunPart(l.vm, 2, x(wide)), dist.ErrInvalid},
			{"want 2 rows of float64 (1)", l.d.RunPart(l.vm, 2, x(single)), dist.ErrInvalid},
			{"want a *tensor.Dense", l.d.RunPart(l.vm, 2, x(nil)), dist.ErrInvalid},
			{"with Stage 2 the ranks must have equal numbers of runs: use package machine", l.d.RunPart(l.vm, 3, x(rowsOf(1, 2, 3))), dist.ErrUnsupported},
		} {
			if !errors.Is(c.err, c.want) || !strings.Contains(c.err.Error(), c.says) {
				t.Errorf("error %v, want %v with %q", c.err, c.want, c.says)
			}
		}
		return nil
	})
}

// Ranks of 1 and 3 rows with equal weights are named, once, on rank 0; with SetWeight, or equal
// parts, nothing is logged.
func TestUnevenRowsWithoutAWeightAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		rows   [2]int
		weight bool
		cfg    ddp.Config
		want   int
	}{
		"uneven":         {[2]int{1, 3}, false, ddp.Config{}, 1},
		"with weights":   {[2]int{1, 3}, true, ddp.Config{}, 0},
		"even":           {[2]int{2, 2}, false, ddp.Config{}, 0},
		"sums, no means": {[2]int{1, 3}, false, ddp.Config{Average: ddp.Sum}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var said heard
			c.cfg.Log = slog.New(slog.NewTextHandler(&said, nil))
			errs := runRanks(t, 2, sim.Config{}, func(w *dist.World) error {
				l, err := newLine(w, c.rows[w.Rank()], c.cfg)
				if err != nil {
					return err
				}
				defer l.vm.Close()
				if c.weight {
					if err := l.d.SetWeight(float64(c.rows[w.Rank()])); err != nil {
						return err
					}
				}
				for range 3 {
					if err := errors.Join(G.Let(l.x, rowsOf(make([]float64, c.rows[w.Rank()])...)), l.vm.RunAll()); err != nil {
						return err
					}
					l.vm.Reset()
				}
				return nil
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			text := said.String()
			if n := strings.Count(text, "different lengths"); n != c.want || strings.Count(text, "\n") != c.want {
				t.Errorf("said %d times, want %d: %s", n, c.want, text)
			}
			if c.want > 0 && (!strings.Contains(text, `rows="x: 1 on rank 0, 3 on rank 1"`) || !strings.Contains(text, "SetWeight")) {
				t.Errorf("the ranks or the remedy are missing: %s", text)
			}
		})
	}
}
