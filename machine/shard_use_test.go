package machine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	G "gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/optim"
)

// TestStage3HoldsItsShareAndTheLargestGroups measures a rank's memory for a network of equal
// layers, with Adam. P is the bytes of all parameters, G those of a layer:
//
//	16 P/N           weights, gradients and two moments of its share, in float32
//	2 G + 2 G + G    weights of 2 layers, gradients of 2 in flight and of 1 being computed
//	activations      for the backward pass
func TestStage3HoldsItsShareAndTheLargestGroups(t *testing.T) {
	const layers, width, ranks, rows = 12, 256, 4, 3
	const group = 4 * width * (width + 1)
	want := float64(4*layers*group/ranks + 5*group + (layers+3)*4*rows*width)
	onRanks(t, ranks, func(w *dist.World) error {
		n, from, to := share(deep(layers, width), ranks*rows, w.Rank(), ranks)
		d, err := ddp.Attach(w, n.cost, n.params, ddp.Config{Stage: 3, BucketMB: group * 1.01 / (1 << 20), FirstBucketMB: group * 1.01 / (1 << 20)})
		if err != nil {
			return err
		}
		m, err := machine.New(n.g, plain)
		if err != nil {
			return err
		}
		s, err := m.NewSolver(optim.Config{Name: optim.Adam})
		if err != nil {
			return err
		}
		for step := range 2 {
			if err := n.feed(step, from, to); err != nil {
				return err
			}
			if err := m.RunAll(); err != nil {
				return err
			}
			if err := s.Step(d.Model()); err != nil {
				return err
			}
		}
		has, runs := d.Memory(), m.Footprint()
		got := float64(has.Total() + runs.Arena + runs.Outputs + runs.Gradients)
		if off := got/want - 1; off < -0.05 || off > 0.05 {
			return fmt.Errorf("%v and %+v are %.0f bytes, %+.1f%% of the formula's %.0f", has, runs, got, 100*off, want)
		}
		return errors.Join(m.Close(), d.Close())
	})
}

// TestExplainStage3 has the program of a rank of two: it fetches one ahead of the use, and again in
// the backward pass.
func TestExplainStage3(t *testing.T) {
	text := make([]string, 2)
	onRanks(t, 2, func(w *dist.World) error {
		n, _, _ := share(deep(4, 16), 4, w.Rank(), 2)
		d, err := ddp.Attach(w, n.cost, n.params, ddp.Config{Stage: 3, BucketMB: 1.5 / 1024, FirstBucketMB: 1.5 / 1024})
		if err != nil {
			return err
		}
		m, err := machine.New(n.g, plain)
		if err != nil {
			return err
		}
		text[w.Rank()] = m.Explain()
		return errors.Join(m.Close(), d.Close())
	})
	golden(t, "gathered", text[0])
	if text[1] != text[0] {
		t.Errorf("rank 1 has another program:\n%s", text[1])
	}
}

func TestStage3RefusesDualValues(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		n, _, _ := share(bare, 4, 0, 1)
		d, err := ddp.Attach(w, n.cost, n.params, ddp.Config{Stage: 3})
		if err != nil {
			return err
		}
		cfg := plain
		cfg.DualValues = true
		if _, err := machine.New(n.g, cfg); !errors.Is(err, dist.ErrUnsupported) || !strings.Contains(err.Error(), "w0") {
			return fmt.Errorf("DualValues: %w, want ErrUnsupported", err)
		}
		return d.Close()
	})
}

// TestADeadRankInAFetchIsNamed has a rank that dies in the first fetch of a run, and in one of the
// backward pass.
func TestADeadRankInAFetchIsNamed(t *testing.T) {
	const attached = 1 + 10 + 1 // the plan, 10 parameters, and the optimizer
	for _, c := range []struct {
		op   int
		name string
	}{{attached + 1, "weights 4"}, {attached + 5 + 1 + 2, "weights 2 again"}} {
		worlds, err := sim.New(3, sim.Config{Script: fmt.Sprintf("die rank=1 op=%d", c.op)})
		if err != nil {
			t.Fatal(err)
		}
		errs := make([]error, 3)
		var ranks sync.WaitGroup
		for r, w := range worlds {
			ranks.Go(func() {
				_, _, errs[r] = sharded{build: deep(5, 16), make: machined, cfg: ddp.Config{Stage: 3, BucketMB: 1.5 / 1024, FirstBucketMB: 1.5 / 1024}, steps: 1, solver: optim.Config{Name: optim.SGD}}.on(w)
				_ = w.Close()
			})
		}
		ranks.Wait()
		for _, r := range []int{0, 2} {
			if !errors.Is(errs[r], dist.ErrAborted) {
				t.Errorf("rank %d: %v, want ErrAborted", r, errs[r])
				continue
			}
			for _, word := range []string{"rank 1 died", fmt.Sprintf("rank %d/3", r), "allgather", c.name} {
				if !strings.Contains(errs[r].Error(), word) {
					t.Errorf("rank %d: %v, want %q in it", r, errs[r], word)
				}
			}
		}
	}
}

// TestARunOfStage3AllocatesNothing counts allocations of a rank's step beyond one of Stage 0.
func TestARunOfStage3AllocatesNothing(t *testing.T) {
	var allocs [2]float64
	for k, stage := range []int{0, 3} {
		onRanks(t, 1, func(w *dist.World) error {
			n, from, to := share(deep(5, 9), 8, 0, 1)
			cfg := layerwise
			cfg.Stage = stage
			d, err := ddp.Attach(w, n.cost, n.params, cfg)
			if err != nil {
				return err
			}
			m, err := machine.New(n.g, plain)
			if err != nil {
				return err
			}
			defer m.Close()
			err = n.feed(0, from, to)
			allocs[k] = testing.AllocsPerRun(20, func() { err = errors.Join(err, m.RunAll()) })
			return errors.Join(err, d.Close())
		})
	}
	if allocs[1] > allocs[0] {
		t.Errorf("a run allocates %v times, one of Stage 0 %v", allocs[1], allocs[0])
	}
}

// TestGatheredParametersCanBeRead has gorgonia.Read of a parameter that fills its bucket, and of
// one that does not.
func TestGatheredParametersCanBeRead(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		n, from, to := share(deep(3, 16), 4, 0, 1)
		want := n.weights()[:16*16+16] // w0 and b0
		var weight, offset G.Value
		G.Read(n.params[0], &weight)
		G.Read(n.params[1], &offset)
		d, err := ddp.Attach(w, n.cost, n.params, ddp.Config{Stage: 3, BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024})
		if err != nil {
			return err
		}
		m, err := machine.New(n.g, plain)
		if err != nil {
			return err
		}
		for range 2 {
			if err := errors.Join(n.feed(0, from, to), m.RunAll()); err != nil {
				return err
			}
			got := append(slices.Clone(weight.Data().([]float32)), offset.Data().([]float32)...)
			if !slices.Equal(got, want) {
				return fmt.Errorf("read %v, want %v", got, want)
			}
		}
		return errors.Join(m.Close(), d.Close())
	})
}

// TestTheSolverOfALocalStepAverages has ranks that train separately. The machine's solver averages
// their weights at every second step.
func TestTheSolverOfALocalStepAverages(t *testing.T) {
	var seen [2][2][]float32 // by step and rank
	onRanks(t, 2, func(w *dist.World) error {
		n, from, to := share(deep(2, 8), 4, w.Rank(), 2)
		d, err := ddp.Attach(w, n.cost, n.params, ddp.Config{LocalSteps: 2})
		if err != nil {
			return err
		}
		m, err := machine.New(n.g, plain)
		if err != nil {
			return err
		}
		s, err := m.NewSolver(optim.Config{Name: optim.SGD, LearningRate: 0.1})
		if err != nil {
			return err
		}
		for step := range 2 {
			if err := errors.Join(n.feed(step, from, to), m.RunAll()); err != nil {
				return err
			}
			if err := s.Step(d.Model()); err != nil {
				return err
			}
			seen[step][w.Rank()] = n.weights()
		}
		return errors.Join(m.Close(), d.Close())
	})
	for step, both := range seen {
		if alike := slices.Equal(both[0], both[1]); alike != (step == 1) {
			t.Errorf("after step %d weights are alike: %v", step+1, alike)
		}
	}
}

// TestRunsInsideNoSyncUpdateNothing has machines that update by themselves, and others with a
// solver.
func TestRunsInsideNoSyncUpdateNothing(t *testing.T) {
	rule := optim.Config{Name: optim.Adam, LearningRate: 0.01}
	for stage := range 2 {
		onRanks(t, 2, func(w *dist.World) error {
			var ends [2][]float32
			for k, own := range []*optim.Config{nil, &rule} {
				n, from, to := share(deep(2, 8), 4, w.Rank(), 2)
				d, err := ddp.Attach(w, n.cost, n.params, ddp.Config{Stage: stage})
				if err != nil {
					return err
				}
				cfg := plain
				cfg.Solver = own
				m, err := machine.New(n.g, cfg)
				if err != nil {
					return err
				}
				s, err := m.NewSolver(rule)
				if err != nil {
					return err
				}
				run := func(step int) error { return errors.Join(n.feed(step, from, to), m.RunAll()) }
				for step := range 3 {
					err := errors.Join(d.NoSync(func() error { return run(10 + step) }), run(step), s.Step(d.Model()))
					if err != nil {
						return err
					}
				}
				ends[k] = n.weights()
				if s.Steps() != 3 {
					return fmt.Errorf("%d steps", s.Steps())
				}
				if err := errors.Join(m.Close(), d.Close()); err != nil {
					return err
				}
			}
			if !slices.Equal(ends[0], ends[1]) {
				return fmt.Errorf("stage %d: weights are %v and %v", stage, ends[0][:4], ends[1][:4])
			}
			return nil
		})
	}
}
