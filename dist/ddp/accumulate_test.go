package ddp_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/ops"
)

// attached is one rank's model on a machine.
type attached struct {
	w  *dist.World
	m  *model
	d  *ddp.DDP
	vm G.VM
	f  family
}

// attach makes the model of a rank and attaches it.
func attach(w *dist.World, f family, rows int, cfg ddp.Config, machine int) (*attached, error) {
	m := f.make(gtensor.Float64, rows, uint64(1+w.Rank()))
	d, err := ddp.Attach(w, m.cost, m.params, cfg)
	if err != nil {
		return nil, err
	}
	vm, err := machines[machine].make(m, d.Grads())
	if err != nil {
		return nil, err
	}
	return &attached{w, m, d, vm, f}, nil
}

// run is one run of the graph over samples, with their number as weight.
func (a *attached) run(samples []int) error {
	if err := a.d.SetWeight(float64(len(samples))); err != nil {
		return err
	}
	return a.runAs(samples)
}

// runAs is run with the weight as it is.
func (a *attached) runAs(samples []int) error {
	a.vm.Reset()
	if err := a.m.let(a.f, samples); err != nil {
		return err
	}
	return a.vm.RunAll()
}

func (a *attached) grads() []float64 {
	g, err := gradients(a.d.Model())
	if err != nil {
		return nil
	}
	return g
}

func (a *attached) close() error {
	return errors.Join(a.vm.Close(), a.d.Close())
}

// plainGradient is gorgonia's gradient over samples, from the weights that rank 0 starts with.
func plainGradient(t *testing.T, f family, samples []int) []float64 {
	t.Helper()
	c := trial{family: f, dt: gtensor.Float64, steps: 1, parts: func(int, int) [][]int { return [][]int{samples} }}
	res, err := c.alone()
	if err != nil {
		t.Fatal(err)
	}
	return res.grads
}

func TestAccumulationIsOneBigBatch(t *testing.T) {
	const rows, micro, ranks = 3, 4, 2
	want := plainGradient(t, mlp, indices(0, rows*micro*ranks))
	for machine := range machines {
		t.Run(machines[machine].name, func(t *testing.T) {
			onRanks(t, ranks, func(w *dist.World) error {
				a, err := attach(w, mlp, rows, ddp.Config{BucketMB: 1.0 / 1024}, machine)
				if err != nil {
					return err
				}
				part := func(i int) []int { lo := (w.Rank()*micro + i) * rows; return indices(lo, lo+rows) }
				for round := range 2 {
					before := len(w.Recorder().Records())
					err := a.d.NoSync(func() error {
						for i := range micro - 1 {
							if err := a.run(part(i)); err != nil {
								return err
							}
							if g := a.grads(); slices.ContainsFunc(g, func(x float64) bool { return x != 0 }) {
								return fmt.Errorf("a gradient inside NoSync is %v, want zeros", g)
							}
						}
						return nil
					})
					if err != nil {
						return err
					}
					if n := len(w.Recorder().Records()) - before; n != 0 {
						return fmt.Errorf("%d operations inside NoSync", n)
					}
					if err := a.run(part(micro - 1)); err != nil {
						return err
					}
					if e := relative(a.grads(), want); !(e <= 1e-14) {
						return fmt.Errorf("round %d: gradient off by %g", round, e)
					}
					zeroGrads(a.m.params)
				}
				return a.close()
			})
		})
	}
}

// zeroGrads zeroes gradients, as a solver does after a step.
func zeroGrads(params G.Nodes) {
	for _, p := range params {
		if v, err := p.Grad(); err == nil {
			v.(*gtensor.Dense).Zero()
		}
	}
}

// TestMicroBatchesAreWeighted has different numbers of micro-batches of different weights on the
// ranks, weight 0 among them, on input that makes the gradient NaN.
func TestMicroBatchesAreWeighted(t *testing.T) {
	const rows = 2
	type micro struct {
		samples []int
		weight  float64
	}
	nan := []int{-1}
	plan := [][]micro{
		{{indices(0, 2), 2}, {nan, 0}, {indices(2, 4), 2}},
		{{nan, 0}, {indices(4, 6), 2}},
		{{indices(6, 8), 2}},
		{{nan, 0}},
	}
	want := plainGradient(t, mlp, indices(0, 8))
	onRanks(t, len(plan), func(w *dist.World) error {
		a, err := attach(w, mlp, rows, ddp.Config{}, 0)
		if err != nil {
			return err
		}
		mine := plan[w.Rank()]
		step := func(b micro) error {
			a.vm.Reset()
			if err := a.d.SetWeight(b.weight); err != nil {
				return err
			}
			if slices.Equal(b.samples, nan) {
				x, y := mlp.samples(gtensor.Float64, indices(0, rows))
				x.Memset(math.NaN())
				if err := errors.Join(G.Let(a.m.x, x), G.Let(a.m.y, y)); err != nil {
					return err
				}
			} else if err := a.m.let(mlp, b.samples); err != nil {
				return err
			}
			return a.vm.RunAll()
		}
		err = a.d.NoSync(func() error {
			for _, b := range mine[:len(mine)-1] {
				if err := step(b); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := step(mine[len(mine)-1]); err != nil {
			return err
		}
		if e := relative(a.grads(), want); !(e <= 1e-14) {
			return fmt.Errorf("gradient off by %g", e)
		}
		return a.close()
	})
}

func TestAnErrorInNoSyncDropsWhatWasAccumulated(t *testing.T) {
	want := plainGradient(t, mlp, indices(0, 6))
	boom := errors.New("boom")
	onRanks(t, 2, func(w *dist.World) error {
		a, err := attach(w, mlp, 3, ddp.Config{}, 0)
		if err != nil {
			return err
		}
		err = a.d.NoSync(func() error { return errors.Join(a.run(indices(100, 103)), boom) })
		if !errors.Is(err, boom) {
			return fmt.Errorf("NoSync is %v, want boom", err)
		}
		if err := a.d.NoSync(func() error { return a.d.NoSync(func() error { return nil }) }); !errors.Is(err, dist.ErrInvalid) {
			return fmt.Errorf("NoSync in NoSync is %v", err)
		}
		if err := a.d.NoSync(nil); !errors.Is(err, dist.ErrInvalid) {
			return fmt.Errorf("NoSync of nothing is %w", err)
		}
		func() {
			defer func() { err = fmt.Errorf("%v", recover()) }()
			_ = a.d.NoSync(func() error { panic(errors.Join(a.run(indices(100, 103)), boom)) })
		}()
		if err.Error() != "boom" {
			return fmt.Errorf("the panic is %w, want boom", err)
		}
		if err := a.run(indices(3*w.Rank(), 3*w.Rank()+3)); err != nil {
			return err
		}
		if e := relative(a.grads(), want); !(e <= 1e-14) {
			return fmt.Errorf("gradient off by %g", e)
		}
		return a.close()
	})
}

// frontGate is a gate of the forward pass.
type frontGate struct{ gate }

func (o *frontGate) Do(in ...G.Value) (G.Value, error) { return (&gateBack{o.gate}).Do(in...) }

// TestAFailedForwardPassKeepsWhatIsAccumulated fails a run before any gradient: the same batch may
// be repeated, and NoSync drops the accumulated gradients for another one.
func TestAFailedForwardPassKeepsWhatIsAccumulated(t *testing.T) {
	want := plainGradient(t, mlp, indices(0, 6))
	for _, again := range []bool{false, true} {
		onRanks(t, 2, func(w *dist.World) error {
			var fail error
			f := mlp
			f.layers = func(b *build, x *G.Node) *G.Node {
				return mlp.layers(b, G.Must(G.ApplyOp(&frontGate{gate{"x", func() error { return fail }}}, x)))
			}
			a, err := attach(w, f, 3, ddp.Config{VirtualRanks: 4}, 0)
			if err != nil {
				return err
			}
			part := indices(3*w.Rank(), 3*w.Rank()+3)
			micro := func() error { return a.run(part) }
			if err := a.d.NoSync(micro); err != nil {
				return err
			}
			fail = errors.New("boom")
			if err := a.run(part); !errors.Is(ops.Cause(err), fail) {
				return fmt.Errorf("the run is %v, want boom", err)
			}
			failed := fail
			fail = nil
			if !again {
				if err := a.d.NoSync(func() error { return failed }); err != failed {
					return fmt.Errorf("NoSync is %v, want boom", err)
				}
				if err := a.d.NoSync(micro); err != nil {
					return err
				}
			}
			if err := a.run(part); err != nil {
				return err
			}
			if e := relative(a.grads(), want); !(e <= 1e-14) {
				return fmt.Errorf("again %v: gradient off by %g", again, e)
			}
			return a.close()
		})
	}
}

func TestARankWithoutSamplesAddsExactZeros(t *testing.T) {
	want := plainGradient(t, mlp, indices(0, 3))
	onRanks(t, 2, func(w *dist.World) error {
		a, err := attach(w, mlp, 3, ddp.Config{}, 0)
		if err != nil {
			return err
		}
		if w.Rank() == 1 {
			x, y := mlp.samples(gtensor.Float64, indices(0, 3))
			x.Memset(math.Inf(1))
			err = errors.Join(a.d.SetWeight(0), G.Let(a.m.x, x), G.Let(a.m.y, y), a.vm.RunAll())
		} else {
			err = a.run(indices(0, 3))
		}
		if err != nil {
			return err
		}
		if g := a.grads(); !slices.Equal(g, want) { // 1 g + 0, to the bit
			return fmt.Errorf("gradient off by %g", relative(g, want))
		}
		return a.close()
	})
}

func TestWeightsThatSumToZeroAreAnErrorOnAllRanks(t *testing.T) {
	onRanks(t, 3, func(w *dist.World) error {
		a, err := attach(w, mlp, 3, ddp.Config{}, 0)
		if err != nil {
			return err
		}
		if err := a.d.SetWeight(0); err != nil {
			return err
		}
		if err := a.runAs(indices(0, 3)); !errors.Is(ops.Cause(err), ddp.ErrNoWeight) {
			return fmt.Errorf("RunAll is %v, want ErrNoWeight", err)
		}
		if err := a.run(indices(0, 3)); err != nil {
			return fmt.Errorf("the next step: %w", err)
		}
		return a.close()
	})
}

func TestSetWeightRefusesWhatIsNoCount(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		a, err := attach(w, mlp, 3, ddp.Config{}, 0)
		if err != nil {
			return err
		}
		if got := a.d.Weight(); got != 1 {
			return fmt.Errorf("the weight is %v at the start, want 1", got)
		}
		for _, weight := range []float64{-1, math.NaN(), math.Inf(1)} {
			if err := a.d.SetWeight(weight); !errors.Is(err, dist.ErrInvalid) {
				return fmt.Errorf("SetWeight(%v) is %v", weight, err)
			}
		}
		if got := a.d.Weight(); got != 1 {
			return fmt.Errorf("a refused weight was kept: %v", got)
		}
		return a.close()
	})
}

func TestWeightsThatOverflowAreAnError(t *testing.T) {
	for r, err := range runRanks(t, 2, sim.Config{}, func(w *dist.World) error {
		a, err := attach(w, mlp, 3, ddp.Config{}, 0)
		if err != nil {
			return err
		}
		if err := a.d.SetWeight(math.MaxFloat64); err != nil {
			return err
		}
		if err := a.runAs(indices(0, 3)); !errors.Is(ops.Cause(err), dist.ErrInvalid) {
			return fmt.Errorf("RunAll is %v, want ErrInvalid", err)
		}
		return a.close()
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
