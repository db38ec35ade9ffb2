package ddp_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/ops"
)

func TestPlansThatDifferAreAnErrorOnAllRanks(t *testing.T) {
	wide := mlp
	wide.layers = func(b *build, x *G.Node) *G.Node {
		return affine(b, G.Must(G.Tanh(affine(b, x, "0", 6, 11))), "1", 11, 3)
	}
	narrow := mlp
	narrow.layers = func(b *build, x *G.Node) *G.Node {
		return affine(b, G.Must(G.Tanh(affine(b, x, "0", 6, 10))), "1", 10, 3)
	}
	sigmoid := mlp
	sigmoid.layers = func(b *build, x *G.Node) *G.Node {
		return affine(b, G.Must(G.Sigmoid(affine(b, x, "0", 6, 10))), "1", 10, 3)
	}
	type setup struct {
		f       family
		dt      gtensor.Dtype
		cfg     ddp.Config
		reverse bool
		drop    bool
	}
	base := setup{f: narrow, dt: gtensor.Float64}
	for _, c := range []struct {
		name   string
		change func(*setup)
		words  []string
	}{
		{"hidden size", func(s *setup) { s.f = wide }, []string{"parameter 0: w0 f64(6, 10)", "parameter 0: w0 f64(6, 11)"}},
		{"dtype", func(s *setup) { s.dt = gtensor.Float32 }, []string{"w0 f64(6, 10)", "w0 f32(6, 10)"}},
		{"order", func(s *setup) { s.reverse = true }, []string{"parameter 0: w0", "parameter 0: b1"}},
		{"number", func(s *setup) { s.drop = true }, []string{"parameter 3: b1", "bucket 0"}},
		{"bucket size", func(s *setup) { s.cfg.BucketMB = 2 }, []string{"BucketMB: 25", "BucketMB: 2"}},
		{"overlap", func(s *setup) { s.cfg.NoOverlap = true }, []string{"NoOverlap: false", "NoOverlap: true"}},
		{"activation", func(s *setup) { s.f = sigmoid }, []string{"tanh", "sigmoid"}},
	} {
		for _, odd := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s on rank %d", c.name, odd), func(t *testing.T) {
				onRanks(t, 3, func(w *dist.World) error {
					s := base
					if w.Rank() == odd {
						c.change(&s)
					}
					m := s.f.make(s.dt, 3, 1)
					if s.reverse {
						slices.Reverse(m.params)
					}
					if s.drop {
						m.params = m.params[:len(m.params)-1]
					}
					_, err := ddp.Attach(w, m.cost, m.params, s.cfg)
					if !errors.Is(err, ddp.ErrPlan) || !errors.Is(err, dist.ErrMismatch) {
						return fmt.Errorf("Attach is %v, want ErrPlan", err)
					}
					for _, word := range append(c.words, "rank 0 has", fmt.Sprintf("rank %d has", max(odd, 1))) {
						if !strings.Contains(err.Error(), word) {
							return fmt.Errorf("Attach is %q, want an error with %q", err, word)
						}
					}
					return nil
				})
			})
		}
	}
}

// TestPlansCompareTheSettingsOfBatchNorms over ranks whose batches have other lengths, which alone
// is no difference.
func TestPlansCompareTheSettingsOfBatchNorms(t *testing.T) {
	for _, c := range []struct {
		own   ops.BatchNormConfig // rank 1's
		words []string
	}{
		{ops.BatchNormConfig{}, nil},
		{ops.BatchNormConfig{Momentum: 0.1, Epsilon: 1e-5}, nil}, // the defaults
		{ops.BatchNormConfig{Epsilon: 1e-3}, []string{"rank 0 has", "epsilon 1e-05", "rank 1 has", "epsilon 0.001"}},
		{ops.BatchNormConfig{Momentum: 0.5}, []string{"momentum 0.1", "momentum 0.5"}},
		{ops.BatchNormConfig{SumOfCosts: true}, []string{"sum of costs false", "sum of costs true"}},
	} {
		onRanks(t, 2, func(w *dist.World) error {
			var cfg ops.BatchNormConfig
			if w.Rank() == 1 {
				cfg = c.own
			}
			f := mlp
			f.layers = func(b *build, x *G.Node) *G.Node {
				y, _, err := ops.SyncBatchNorm(w.Group, affine(b, x, "0", 6, 10), nil, nil, cfg)
				return affine(b, G.Must(y, err), "1", 10, 3)
			}
			m := f.make(gtensor.Float64, 2+w.Rank(), 1)
			d, err := ddp.Attach(w, m.cost, m.params, ddp.Config{})
			if c.words == nil && err == nil {
				return d.Close()
			}
			if (c.words != nil) != errors.Is(err, ddp.ErrPlan) {
				return fmt.Errorf("%+v: Attach is %v", c.own, err)
			}
			for _, word := range c.words {
				if !strings.Contains(err.Error(), word) {
					return fmt.Errorf("Attach is %w, want an error with %q", err, word)
				}
			}
			return nil
		})
	}
}

// TestPlansAllowBatchesOfDifferentLength attaches graphs for parts of different lengths.
func TestPlansAllowBatchesOfDifferentLength(t *testing.T) {
	for _, f := range families {
		onRanks(t, 2, func(w *dist.World) error {
			m := f.make(gtensor.Float64, 2+w.Rank(), 1)
			d, err := ddp.Attach(w, m.cost, m.params, ddp.Config{})
			if err != nil {
				return err
			}
			return d.Close()
		})
	}
}

// TestThePlanIsTheSameEveryTime is against an order that comes from a Go map.
func TestThePlanIsTheSameEveryTime(t *testing.T) {
	var first string
	for range 30 {
		onRanks(t, 1, func(w *dist.World) error {
			m := cnn.make(gtensor.Float32, 3, 1)
			d, err := ddp.Attach(w, m.cost, m.params, ddp.Config{BucketMB: 1.0 / 1024})
			if err != nil {
				return err
			}
			if first == "" {
				first = d.String()
			}
			if s := d.String(); s != first {
				return fmt.Errorf("the plan is\n%s, before it was\n%s", s, first)
			}
			return d.Close()
		})
	}
	for _, want := range []string{"3 parameters, 231 elements, 924 B in 1 buckets in symmetric heap (sim)", "0       f32    231       924    b w filter"} {
		if !strings.Contains(first, want) {
			t.Errorf("the plan is\n%s, want it to contain %q", first, want)
		}
	}
}

func TestTwoModelsTrainInOneWorld(t *testing.T) {
	want := [2][]float64{plainGradient(t, mlp, indices(0, 6)), plainGradient(t, tied, indices(0, 6))}
	for r, err := range runRanks(t, 2, sim.Config{}, func(w *dist.World) error {
		for round := range 2 {
			for i, f := range []family{mlp, tied} {
				a, err := attach(w, f, 3, ddp.Config{}, round)
				if err != nil {
					return err
				}
				if err := a.run(indices(3*w.Rank(), 3*w.Rank()+3)); err != nil {
					return err
				}
				if e := relative(a.grads(), want[i]); !(e <= 1e-14) {
					return fmt.Errorf("%s: gradient off by %g", f.name, e)
				}
				if err := a.close(); err != nil {
					return err
				}
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
