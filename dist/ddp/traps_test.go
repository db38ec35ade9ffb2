package ddp_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/optim"
)

// Traps for a gradient on its path to the solver, each with the reason why it is harmless. Traps of
// the graph itself are tested in package ops, those of weights, memory and errors next to the tests
// of these.

// TestWeightsAreOnlyChangedBySolvers has a model whose every use of a parameter tempts the machine
// to write into it: w+x, Reshape(w)+x, Square(w), and two uses.
func TestWeightsAreOnlyChangedBySolvers(t *testing.T) {
	f := family{in: []int{4}, out: 4}
	for machine := range machines {
		onRanks(t, 2, func(w *dist.World) error {
			b := &build{g: G.NewGraph(), dt: gtensor.Float64, rng: newRand(1)}
			x := G.NewMatrix(b.g, b.dt, G.WithName("x"), G.WithShape(2, 4))
			y := G.NewMatrix(b.g, b.dt, G.WithName("y"), G.WithShape(2, 4))
			add, shape, square := b.param("add", 2, 4), b.param("shape", 8), b.param("square", 2, 4)
			h := G.Must(G.Add(add, x))
			h = G.Must(G.Add(G.Must(G.Reshape(shape, gtensor.Shape{2, 4})), h))
			h = G.Must(G.Sub(G.Must(G.HadamardProd(G.Must(G.Square(square)), h)), square))
			m := &model{x: x, y: y, cost: G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(h, y)))))), params: b.params}
			d, err := ddp.Attach(w, m.cost, m.params, ddp.Config{})
			if err != nil {
				return err
			}
			vm, err := machines[machine].make(m, d.Grads())
			if err != nil {
				return err
			}
			a := &attached{w, m, d, vm, f}
			before, err := weights(m.params)
			if err != nil {
				return err
			}
			for range 3 {
				if err := a.run(indices(0, 2)); err != nil {
					return err
				}
				if after, err := weights(m.params); err != nil || !slices.Equal(after, before) {
					return fmt.Errorf("%s: a run changed the weights (%v)", machines[machine].name, err)
				}
			}
			return a.close()
		})
	}
}

// TestGradientsAreCountedOnce runs without a solver: BindDualValues adds every run's gradient,
// once.
func TestGradientsAreCountedOnce(t *testing.T) {
	want := plainGradient(t, mlp, indices(0, 6))
	onRanks(t, 2, func(w *dist.World) error {
		a, err := attach(w, mlp, 3, ddp.Config{}, 1)
		if err != nil {
			return err
		}
		for n := 1; n <= 3; n++ {
			if err := a.run(indices(3*w.Rank(), 3*w.Rank()+3)); err != nil {
				return err
			}
			sum := slices.Clone(want)
			for i := range sum {
				sum[i] *= float64(n)
			}
			if e := relative(a.grads(), sum); !(e <= 1e-14) {
				return fmt.Errorf("after %d runs the gradient is off by %g", n, e)
			}
		}
		return a.close()
	})
}

// TestAdamW is about gorgonia's, which never updates weights (v0.9.18), and ours, which does.
func TestAdamW(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		a, err := attach(w, mlp, 3, ddp.Config{}, 0)
		if err != nil {
			return err
		}
		ours, err := optim.New(optim.Config{Name: optim.AdamW, LearningRate: 0.01, WeightDecay: 0.01})
		if err != nil {
			return err
		}
		for _, s := range []struct {
			solver G.Solver
			moves  bool
		}{{G.NewAdamW(G.WithLearnRate(0.01)), false}, {ours, true}} {
			before, err := weights(a.m.params)
			if err != nil {
				return err
			}
			if err := a.run(indices(0, 3)); err != nil {
				return err
			}
			if err := s.solver.Step(a.d.Model()); err != nil {
				return err
			}
			after, err := weights(a.m.params)
			if err != nil {
				return err
			}
			if moved := !slices.Equal(after, before); moved != s.moves {
				return fmt.Errorf("%T moves the weights: %v, want %v", s.solver, moved, s.moves)
			}
		}
		return a.close()
	})
}

// TestDropoutOfGorgonia is a warning: its backward pass divides by p instead of 1-p (v0.9.18).
func TestDropoutOfGorgonia(t *testing.T) {
	g := G.NewGraph()
	w := G.NewVector(g, G.Float64, G.WithName("w"), G.WithShape(64), G.WithInit(G.Ones()))
	cost := G.Must(G.Sum(G.Must(G.Dropout(w, 0.2))))
	if _, err := G.Grad(cost, w); err != nil {
		t.Fatal(err)
	}
	vm := G.NewTapeMachine(g)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	grad, err := w.Grad()
	if err != nil {
		t.Fatal(err)
	}
	if m := slices.Max(grad.Data().([]float64)); m != 5 {
		t.Errorf("the gradient of a kept element is %v, and 1/p is 5: gorgonia has repaired Dropout", m)
	}
}

// TestReadsStayWhereTheyAre has statements in the graph that read nodes which Attach replaces.
func TestReadsStayWhereTheyAre(t *testing.T) {
	want := plainGradient(t, mlp, indices(0, 6))
	onRanks(t, 2, func(w *dist.World) error {
		m := mlp.make(gtensor.Float64, 3, uint64(1+w.Rank()))
		var cost, weight G.Value
		G.Read(m.cost, &cost)
		G.Read(m.params[0], &weight)
		d, err := ddp.Attach(w, m.cost, m.params, ddp.Config{})
		if err != nil {
			return err
		}
		a := &attached{w, m, d, G.NewTapeMachine(m.cost.Graph()), mlp}
		if err := a.run(indices(3*w.Rank(), 3*w.Rank()+3)); err != nil {
			return err
		}
		if e := relative(a.grads(), want); !(e <= 1e-14) {
			return fmt.Errorf("gradient off by %g", e)
		}
		if cost.Data() != m.cost.Value().Data() || !slices.Equal(weight.Data().([]float64), m.params[0].Value().Data().([]float64)) {
			return fmt.Errorf("read cost %v and weight %v, which are %v and %v", cost, weight, m.cost.Value(), m.params[0].Value())
		}
		return a.close()
	})
}

// TestTracedRunsGiveTheSameGradients copies every value to its node, so that none points into a
// bucket.
func TestTracedRunsGiveTheSameGradients(t *testing.T) {
	want := plainGradient(t, mlp, indices(0, 6))
	onRanks(t, 2, func(w *dist.World) error {
		a, err := attach(w, mlp, 3, ddp.Config{}, 0)
		if err != nil {
			return err
		}
		a.vm = G.NewTapeMachine(a.m.cost.Graph(), G.TraceExec(), G.WithNaNWatch())
		for range 2 {
			if err := a.run(indices(3*w.Rank(), 3*w.Rank()+3)); err != nil {
				return err
			}
			if e := relative(a.grads(), want); !(e <= 1e-14) {
				return fmt.Errorf("gradient off by %g", e)
			}
		}
		return a.close()
	})
}

// TestBatchNormKeepsItsStatisticsPerRank trains gorgonia's BatchNorm: on one rank it gives
// gorgonia's bits, and on more all ranks hold the same weights.
func TestBatchNormKeepsItsStatisticsPerRank(t *testing.T) {
	f := family{name: "batch norm", in: []int{2, 4, 4}, out: 3, layers: func(b *build, x *G.Node) *G.Node {
		h, _, _, _, err := G.BatchNorm(x, b.param("gain", 1, 2, 4, 4), b.param("offset", 1, 2, 4, 4), 0.9, 1e-5)
		if err != nil {
			panic(err)
		}
		return affine(b, G.Must(G.Reshape(h, gtensor.Shape{x.Shape()[0], 32})), "", 32, 3)
	}}
	c := trial{family: f, dt: gtensor.Float32, solver: 1, steps: 5, parts: evenly}
	want, err := c.alone()
	if err != nil {
		t.Fatal(err)
	}
	if got := c.everywhere(t, 1)[0]; !same(got, want) {
		t.Errorf("one rank does not give gorgonia's bits: off by %g", relative(got.weights, want.weights))
	}
	all := c.everywhere(t, 3)
	for r := range all {
		if !same(all[r], all[0]) {
			t.Errorf("rank %d has other weights than rank 0", r)
		}
	}
}

// TestParametersWithoutNamesGetThem has parameters for which gorgonia prints a nil operation, one
// like the other.
func TestParametersWithoutNamesGetThem(t *testing.T) {
	for machine := range machines {
		for stage := range 4 {
			onRanks(t, 2, func(w *dist.World) error {
				g := G.NewGraph()
				x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(2, 4), G.WithInit(G.Ones()))
				first := G.NewMatrix(g, G.Float64, G.WithShape(4, 3), G.WithInit(G.Ones()))
				second := G.NewMatrix(g, G.Float64, G.WithShape(3, 2), G.WithInit(G.Ones()))
				m := &model{x: x, y: x, params: G.Nodes{first, second}}
				m.cost = G.Must(G.Mean(G.Must(G.Mul(G.Must(G.Mul(x, first)), second))))
				d, err := ddp.Attach(w, m.cost, m.params, ddp.Config{Stage: stage})
				if err != nil {
					return err
				}
				for i, p := range d.Plan().Params {
					if want := fmt.Sprint("learnable ", i); p.Name != want || m.params[i].Name() != want {
						return fmt.Errorf("the plan has %q and the node %q, want %q", p.Name, m.params[i].Name(), want)
					}
				}
				solver, err := d.NewSolver(optim.Config{Name: optim.SGD, LearningRate: 1})
				if err != nil {
					return err
				}
				vm, err := machines[machine].make(m, d.Grads())
				if err != nil {
					return err
				}
				defer vm.Close()
				if err := errors.Join(vm.RunAll(), solver.Step(d.Model()), d.Consolidate()); err != nil {
					return err
				}
				// The mean over 2x2 products: each weight of first has a gradient of 1, each of
				// second one of 2.
				for i, want := range []float64{0, -1} {
					if got := m.params[i].Value().Data().([]float64)[0]; got != want {
						return fmt.Errorf("stage %d: a weight of parameter %d is %v, want %v", stage, i, got, want)
					}
				}
				return d.Close()
			})
		}
	}
}
