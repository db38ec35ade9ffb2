package ddp_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/optim"
)

// machines are the methods by which users make the stock tape machine. grads is the result of
// gorgonia.Grad or DDP.Grads.
var machines = []struct {
	name string
	make func(m *model, grads G.Nodes) (G.VM, error)
}{
	{"plain", func(m *model, _ G.Nodes) (G.VM, error) {
		return G.NewTapeMachine(m.cost.Graph()), nil
	}},
	{"bind dual values", func(m *model, _ G.Nodes) (G.VM, error) {
		return G.NewTapeMachine(m.cost.Graph(), G.BindDualValues(m.params...)), nil
	}},
	{"compile function", func(m *model, grads G.Nodes) (G.VM, error) {
		prog, locs, err := G.CompileFunction(m.cost.Graph(), append(G.Nodes{m.x, m.y}, m.params...), append(G.Nodes{m.cost}, grads...))
		if err != nil {
			return nil, err
		}
		return G.NewTapeMachine(m.cost.Graph(), G.WithPrecompiled(prog, locs)), nil
	}},
}

// solvers are gorgonia's and ours.
var solvers = []struct {
	name string
	make func() (G.Solver, error)
}{
	{"none", func() (G.Solver, error) { return nil, nil }},
	{"vanilla", func() (G.Solver, error) { return G.NewVanillaSolver(G.WithLearnRate(0.1)), nil }},
	{"momentum", func() (G.Solver, error) { return G.NewMomentum(G.WithLearnRate(0.05)), nil }},
	{"adam", func() (G.Solver, error) { return G.NewAdamSolver(G.WithLearnRate(0.01)), nil }},
	{"rmsprop", func() (G.Solver, error) { return G.NewRMSPropSolver(G.WithLearnRate(0.01)), nil }},
	{"symgrad adam", func() (G.Solver, error) { return optim.New(optim.Config{Name: optim.Adam, LearningRate: 0.01}) }},
}

// trial is one training run.
type trial struct {
	family  family
	dt      gtensor.Dtype
	cfg     ddp.Config
	machine int // index in machines
	solver  int // index in solvers
	steps   int
	// parts is, for a step, the samples of each rank. An empty part gets weight 0 and the model
	// some other input.
	parts func(step, ranks int) [][]int
	// rows is the rows of the graph of a rank.
	rows func(rank, ranks int) int
}

// result is the result of a rank: the gradients of the last step before the solver saw them, and
// the weights.
type result struct{ grads, weights []float64 }

// evenly deals 12 samples a step.
func evenly(step, ranks int) [][]int {
	parts := make([][]int, ranks)
	for r := range parts {
		parts[r] = indices(12*step+12*r/ranks, 12*step+12*(r+1)/ranks)
	}
	return parts
}

// alone runs the trial as a plain gorgonia program on all samples of each step.
func (c trial) alone() (result, error) {
	m := c.family.make(c.dt, len(slices.Concat(c.parts(0, 1)...)), 1)
	grads, err := G.Grad(m.cost, m.params...)
	if err != nil {
		return result{}, err
	}
	return c.loop(m, grads, G.NodesToValueGrads(m.params), func(step int) ([]int, error) {
		return slices.Concat(c.parts(step, 1)...), nil
	})
}

// on runs the trial on one rank of a world.
func (c trial) on(w *dist.World) (result, error) {
	rows := len(c.parts(0, w.Size())[w.Rank()])
	if c.rows != nil {
		rows = c.rows(w.Rank(), w.Size())
	}
	m := c.family.make(c.dt, rows, uint64(1+w.Rank())) // only rank 0 starts where alone does
	d, err := ddp.Attach(w, m.cost, m.params, c.cfg)
	if err != nil {
		return result{}, err
	}
	res, err := c.loop(m, d.Grads(), d.Model(), func(step int) ([]int, error) {
		part := c.parts(step, w.Size())[w.Rank()]
		if err := d.SetWeight(float64(len(part))); err != nil || len(part) > 0 {
			return part, err
		}
		return indices(1000, 1000+rows), nil
	})
	if err != nil {
		return result{}, err
	}
	return res, d.Close()
}

func (c trial) loop(m *model, grads G.Nodes, params []G.ValueGrad, next func(step int) ([]int, error)) (result, error) {
	vm, err := machines[c.machine].make(m, grads)
	if err != nil {
		return result{}, err
	}
	defer vm.Close()
	solver, err := solvers[c.solver].make()
	if err != nil {
		return result{}, err
	}
	var res result
	for step := range c.steps {
		part, err := next(step)
		if err != nil {
			return result{}, err
		}
		if err := m.let(c.family, part); err != nil {
			return result{}, err
		}
		if err := vm.RunAll(); err != nil {
			return result{}, fmt.Errorf("step %d: %w", step, err)
		}
		if res.grads, err = gradients(params); err != nil {
			return result{}, err
		}
		if solver != nil {
			if err := solver.Step(params); err != nil {
				return result{}, err
			}
		}
		vm.Reset()
	}
	res.weights, err = weights(m.params)
	return res, err
}

// everywhere runs the trial on n ranks.
func (c trial) everywhere(t *testing.T, n int) []result {
	t.Helper()
	results := make([]result, n)
	onRanks(t, n, func(w *dist.World) error {
		var err error
		results[w.Rank()], err = c.on(w)
		return err
	})
	return results
}

// relative is the largest difference between a and b, relative to the largest element of b.
func relative(a, b []float64) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	diff, size := 0.0, 0.0
	for i := range a {
		diff, size = max(diff, math.Abs(a[i]-b[i])), max(size, math.Abs(b[i]))
	}
	return diff / size
}

// same reports whether a and b are the same bits, -0 and 0 apart.
func same(a, b result) bool {
	return slices.Equal(a.grads, b.grads) && slices.Equal(a.weights, b.weights)
}

func TestGradientOfManyRanksIsThatOfOne(t *testing.T) {
	for _, f := range families {
		for _, dt := range []gtensor.Dtype{gtensor.Float32, gtensor.Float64} {
			for machine := range machines {
				c := trial{family: f, dt: dt, machine: machine, steps: 1, parts: evenly}
				want, err := c.alone()
				if err != nil {
					t.Fatal(err)
				}
				bound := 1e-6
				if dt == gtensor.Float64 {
					bound = 1e-14
				}
				for _, n := range someRanks() {
					t.Run(fmt.Sprintf("%s/%v/%s/%d ranks", f.name, dt, machines[machine].name, n), func(t *testing.T) {
						for r, got := range c.everywhere(t, n) {
							if n == 1 && !same(got, want) {
								t.Errorf("one rank does not give gorgonia's bits: off by %g", relative(got.grads, want.grads))
							}
							if e := relative(got.grads, want.grads); !(e <= bound) {
								t.Errorf("rank %d: gradient off by %g, want at most %g", r, e, bound)
							}
						}
					})
				}
			}
		}
	}
}

func TestTrainingOnManyRanksIsTrainingOnOne(t *testing.T) {
	for s := range solvers {
		if solvers[s].name == "none" {
			continue
		}
		for machine := range machines {
			c := trial{
				family: mlp, dt: gtensor.Float64, machine: machine, solver: s,
				steps: stepsOf(50), parts: evenly,
			}
			t.Run(fmt.Sprintf("%s/%s", solvers[s].name, machines[machine].name), func(t *testing.T) {
				want, err := c.alone()
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range someRanks() {
					all := c.everywhere(t, n)
					for r, got := range all {
						if n == 1 && !same(got, want) {
							t.Errorf("one rank does not give gorgonia's bits")
						}
						// RMSProp and Adam divide by the root of squared gradients, which magnifies
						// the last bit of small ones.
						if e := relative(got.weights, want.weights); !(e <= 1e-9) {
							t.Errorf("rank %d/%d: weights off by %g after %d steps", r, n, e, c.steps)
						}
						if !same(got, all[0]) {
							t.Errorf("rank %d/%d has other bits than rank 0", r, n)
						}
					}
				}
			})
		}
	}
}

// TestBitsDoNotDependOnBucketsOrOverlap also runs everything twice.
func TestBitsDoNotDependOnBucketsOrOverlap(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			c := trial{family: f, dt: gtensor.Float32, solver: 3, steps: 5, parts: evenly}
			want := c.everywhere(t, 3)[0]
			for _, mb := range []float64{1.0 / 1024, 0.004, 0, 25} {
				for _, serial := range []bool{false, true} {
					c.cfg = ddp.Config{BucketMB: mb, FirstBucketMB: min(mb, 0.002), NoOverlap: serial}
					for r, got := range c.everywhere(t, 3) {
						if !same(got, want) {
							t.Errorf("buckets of %v MiB, NoOverlap %v, rank %d: other bits, off by %g", mb, serial, r, relative(got.weights, want.weights))
						}
					}
				}
			}
		})
	}
}

func TestUnequalAndEmptyPartsAreWeightedExactly(t *testing.T) {
	for _, c := range []struct {
		name  string
		sizes []int
	}{
		{"unequal", []int{5, 3, 4}},
		{"one sample", []int{1, 11}},
		{"empty last", []int{6, 6, 0}},
		{"empty first", []int{0, 12}},
		{"all but one empty", []int{0, 0, 12, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := trial{
				family: mlp, dt: gtensor.Float64, solver: 3, steps: 10,
				parts: func(step, ranks int) [][]int {
					if ranks == 1 {
						return [][]int{indices(12*step, 12*step+12)}
					}
					parts := make([][]int, len(c.sizes))
					lo := 12 * step
					for r, n := range c.sizes {
						parts[r] = indices(lo, lo+n)
						lo += n
					}
					return parts
				},
				rows: func(rank, _ int) int { return max(c.sizes[rank], 2) },
			}
			if slices.Min(c.sizes) == 1 {
				tr.rows = func(rank, _ int) int { return c.sizes[rank] }
			}
			want, err := tr.alone()
			if err != nil {
				t.Fatal(err)
			}
			for r, got := range tr.everywhere(t, len(c.sizes)) {
				if e := relative(got.weights, want.weights); !(e <= 1e-12) {
					t.Errorf("rank %d: weights off by %g", r, e)
				}
			}
		})
	}
}
