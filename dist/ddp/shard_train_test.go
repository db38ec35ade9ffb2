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
	"github.com/symgrad/symgrad/tensor"
)

// odd is a perceptron whose counts of elements nothing divides: 5 to 1147 of them, some of less
// than a block.
var odd = family{name: "odd", in: []int{31}, out: 5, layers: func(b *build, x *G.Node) *G.Node {
	h := G.Must(G.Tanh(affine(b, x, "0", 31, 37)))
	h = G.Must(G.Tanh(affine(b, h, "1", 37, 29)))
	return affine(b, h, "2", 29, 5)
}}

// optimizers are the solvers whose results sharding must not change.
var optimizers = []struct {
	name string
	optim.Config
}{
	{"sgd", optim.Config{Name: optim.SGD, LearningRate: 0.05, WeightDecay: 0.01}},
	{"momentum", optim.Config{Name: optim.Momentum, LearningRate: 0.02, Nesterov: true}},
	{"adam", optim.Config{Name: optim.Adam, LearningRate: 0.01}},
	{"adam clipped", optim.Config{Name: optim.Adam, LearningRate: 0.01, ClipNorm: 0.5}},
	{"lamb", optim.Config{Name: optim.LAMB, LearningRate: 0.01, WeightDecay: 0.01}},
	{"averaged", optim.Config{Name: optim.AdamW, LearningRate: 0.01, WeightDecay: 0.01, EMADecay: 0.9, SkipNonFinite: true}},
}

// regime is a way of training, of which the weights are compared.
type regime struct {
	family    family
	model     func(rows int, seed uint64) *model // nil means the family's
	dt        gtensor.Dtype
	cfg       ddp.Config
	machine   int // index in machines
	optimizer optim.Config
	steps     int
	micro     int                           // more runs of a step, inside NoSync
	parts     func(step, ranks int) [][]int // as in trial
	rows      func(rank, ranks int) int     // as in trial
}

// outcome is the result of a rank.
type outcome struct {
	weights []float64
	norms   []float64
}

// on runs the regime on one rank.
func (c regime) on(w *dist.World) (outcome, error) {
	rows := len(c.parts(0, w.Size())[w.Rank()])
	if c.rows != nil {
		rows = c.rows(w.Rank(), w.Size())
	}
	if c.model == nil {
		c.model = func(rows int, seed uint64) *model { return c.family.make(c.dt, rows, seed) }
	}
	m := c.model(rows, uint64(1+w.Rank()))
	d, err := ddp.Attach(w, m.cost, m.params, c.cfg)
	if err != nil {
		return outcome{}, err
	}
	used := *m // CompileFunction refuses inputs that are not
	used.params = slices.DeleteFunc(slices.Clone(m.params), func(p *G.Node) bool { return slices.Contains(d.Unused(), p.Name()) })
	vm, err := machines[c.machine].make(&used, d.Grads())
	if err != nil {
		return outcome{}, err
	}
	a := &attached{w, m, d, vm, c.family}
	out, err := c.loop(a, rows)
	if err == nil {
		err = d.Consolidate() // with Stage 3
	}
	if err != nil {
		return outcome{}, err
	}
	if err := a.close(); err != nil {
		return outcome{}, err
	}
	out.weights, err = weights(m.params) // which Close has left there
	return out, err
}

func (c regime) loop(a *attached, rows int) (outcome, error) {
	var out outcome
	solver, err := a.d.NewSolver(c.optimizer)
	if err != nil {
		return out, err
	}
	for step := range c.steps {
		err := a.d.NoSync(func() error {
			for i := range c.micro {
				if err := c.run(a, 1000*(i+1)+step, rows); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			err = c.run(a, step, rows)
		}
		if err == nil {
			err = solver.Step(a.d.Model())
		}
		if err != nil {
			return out, fmt.Errorf("step %d: %w", step, err)
		}
		out.norms = append(out.norms, solver.GradNorm())
	}
	if c.optimizer.EMADecay > 0 {
		return out, solver.SwapAverages(a.d.Model())
	}
	return out, nil
}

// run is one run of the graph. An empty part has weight 0, and the model some other input.
func (c regime) run(a *attached, step, rows int) error {
	part := c.parts(step, a.w.Size())[a.w.Rank()]
	if len(part) == 0 {
		return errors.Join(a.d.SetWeight(0), a.runAs(indices(1000, 1000+rows)))
	}
	return a.run(part)
}

// everywhere runs the regime on n ranks.
func (c regime) everywhere(t *testing.T, n int) []outcome {
	t.Helper()
	all := make([]outcome, n)
	onRanks(t, n, func(w *dist.World) error {
		var err error
		all[w.Rank()], err = c.on(w)
		return err
	})
	return all
}

// compare runs the regime with Stage 0, 1 and 2, and wants the same bits.
func (c regime) compare(t *testing.T, n int) {
	t.Helper()
	c.cfg.Stage = 0
	want := c.everywhere(t, n)[0]
	for _, c.cfg.Stage = range []int{1, 2} {
		for r, got := range c.everywhere(t, n) {
			if !slices.Equal(got.weights, want.weights) {
				t.Errorf("stage %d, rank %d/%d: weights are off by %g", c.cfg.Stage, r, n, relative(got.weights, want.weights))
			}
			if !slices.EqualFunc(got.norms, want.norms, func(a, b float64) bool { return a == b || a != a && b != b }) {
				t.Errorf("stage %d, rank %d/%d: norms are %v, want %v", c.cfg.Stage, r, n, got.norms, want.norms)
			}
		}
	}
}

// small has several buckets of the odd perceptron.
var small = ddp.Config{BucketMB: 4.0 / 1024, FirstBucketMB: 2.0 / 1024}

func TestShardedTrainingHasTheBitsOfPlainTraining(t *testing.T) {
	for _, o := range optimizers {
		steps := stepsOf(100)
		if o.Name == optim.Momentum || o.EMADecay > 0 {
			steps = stepsOf(25)
		}
		for _, n := range someRanks() {
			t.Run(fmt.Sprintf("%s/%d ranks", o.name, n), func(t *testing.T) {
				regime{family: odd, dt: gtensor.Float32, cfg: small, machine: n % len(machines), optimizer: o.Config, steps: steps, parts: evenly}.compare(t, n)
			})
		}
	}
}

// TestShardedTrainingIsPlainUnderEveryMachine has every way of making a tape machine, in float64,
// with and without overlap.
func TestShardedTrainingIsPlainUnderEveryMachine(t *testing.T) {
	for machine := range machines {
		for _, serial := range []bool{false, true} {
			cfg := small
			cfg.NoOverlap = serial
			t.Run(fmt.Sprintf("%s/%v", machines[machine].name, serial), func(t *testing.T) {
				regime{family: odd, dt: gtensor.Float64, cfg: cfg, machine: machine, optimizer: optimizers[3].Config, steps: 20, parts: evenly}.compare(t, 3)
			})
		}
	}
}

// TestShardedTrainingWeighsRanks has parts of different length, none among them: a rank without
// samples still updates and gathers.
func TestShardedTrainingWeighsRanks(t *testing.T) {
	for _, sizes := range [][]int{{5, 3, 4}, {0, 12}, {7, 0, 5, 0}} {
		regime{
			family: odd, dt: gtensor.Float32, cfg: small, optimizer: optimizers[4].Config, steps: 30,
			parts: func(step, _ int) [][]int { return dealt(12*step, sizes) },
			rows:  func(rank, _ int) int { return max(sizes[rank], 2) },
		}.compare(t, len(sizes))
	}
}

// dealt is samples from a number on, in parts of the given sizes.
func dealt(from int, sizes []int) [][]int {
	parts := make([][]int, len(sizes))
	for r, n := range sizes {
		parts[r] = indices(from, from+n)
		from += n
	}
	return parts
}

// TestShardedTrainingHasEmptyShards has ranks that own nothing: two parameters of a block each, on
// four ranks.
func TestShardedTrainingHasEmptyShards(t *testing.T) {
	f := family{in: []int{6}, out: 3, layers: func(b *build, x *G.Node) *G.Node { return affine(b, x, "0", 6, 3) }}
	for _, o := range optimizers {
		regime{family: f, dt: gtensor.Float64, optimizer: o.Config, steps: 10, parts: evenly}.compare(t, 4)
	}
	onRanks(t, 4, func(w *dist.World) error {
		a, err := attach(w, f, 3, ddp.Config{Stage: 1}, 0)
		if err != nil {
			return err
		}
		if n, want := len(a.d.Pieces()), []int{1, 1, 0, 0}[w.Rank()]; n != want {
			return fmt.Errorf("%d pieces, want %d", n, want)
		}
		return a.close()
	})
}

// TestShardedAccumulation has three runs a step, of different weights. With Stage 1 they are added
// up as without sharding; with Stage 2 in another order.
func TestShardedAccumulation(t *testing.T) {
	sizes := []int{4, 2, 5}
	c := regime{
		family: odd, dt: gtensor.Float64, cfg: small, optimizer: optimizers[3].Config, steps: 20, micro: 2,
		parts: func(step, _ int) [][]int {
			parts := dealt(15*step, sizes)
			parts[step%3] = nil
			return parts
		},
		rows: func(rank, _ int) int { return sizes[rank] },
	}
	for machine := range machines {
		c.machine = machine
		var all [3][]outcome
		for c.cfg.Stage = range all {
			all[c.cfg.Stage] = c.everywhere(t, 3)
		}
		for r := range 3 {
			want := all[0][0].weights
			if got := all[1][r].weights; !slices.Equal(got, want) {
				t.Errorf("%s: stage 1, rank %d: weights are off by %g", machines[machine].name, r, relative(got, want))
			}
			got := all[2][r].weights
			if e := relative(got, want); !(e <= 1e-9) {
				t.Errorf("%s: stage 2, rank %d: weights are off by %g", machines[machine].name, r, e)
			}
			if !slices.Equal(got, all[2][0].weights) {
				t.Errorf("%s: stage 2, rank %d has other bits than rank 0", machines[machine].name, r)
			}
		}
	}
}

// TestShardedTrainingTakesOtherAverages has averages that scale buckets before and after the sum.
func TestShardedTrainingTakesOtherAverages(t *testing.T) {
	for _, average := range []ddp.Average{ddp.Sum, ddp.PreMulSum, ddp.PreDivide} {
		cfg := small
		cfg.Average = average
		if average != ddp.Sum {
			cfg.Factor = 0.5
		}
		c := regime{family: odd, dt: gtensor.Float64, cfg: cfg, optimizer: optimizers[2].Config, steps: 10, parts: evenly}
		c.compare(t, 3)
		c.micro = 1
		var all [3]outcome
		for c.cfg.Stage = range all {
			all[c.cfg.Stage] = c.everywhere(t, 3)[2]
		}
		if !slices.Equal(all[1].weights, all[0].weights) {
			t.Errorf("%v, accumulated, stage 1: other bits", average)
		}
		if e := relative(all[2].weights, all[0].weights); !(e <= 1e-9) {
			t.Errorf("%v, accumulated, stage 2: weights are off by %g", average, e)
		}
	}
}

// TestShardedTrainingTakesNarrowWires sends gradients as bf16, with error feedback.
func TestShardedTrainingTakesNarrowWires(t *testing.T) {
	cfg := small
	cfg.WireDType, cfg.ErrorFeedback = tensor.BF16, true
	for _, n := range []int{1, 3} {
		regime{family: odd, dt: gtensor.Float32, cfg: cfg, optimizer: optimizers[2].Config, steps: 30, parts: evenly}.compare(t, n)
	}
}

// TestShardedTrainingOnEveryBackendOfTheHost has both dtypes and numbers, whose values are then in
// memory of the backend.
func TestShardedTrainingOnEveryBackendOfTheHost(t *testing.T) {
	onWorlds(t, []int{1, 3}, func(_ *testing.T, w *dist.World) error {
		var all [3]outcome
		for stage := range all {
			c := regime{
				family: odd, model: motley, dt: gtensor.Float64, cfg: quiet(small), machine: 1,
				optimizer: optimizers[3].Config, steps: 10, parts: evenly,
			}
			c.cfg.Stage = stage
			var err error
			if all[stage], err = c.on(w); err != nil {
				return fmt.Errorf("stage %d: %w", stage, err)
			}
			if !slices.Equal(all[stage].weights, all[0].weights) {
				return fmt.Errorf("stage %d: weights are off by %g", stage, relative(all[stage].weights, all[0].weights))
			}
		}
		return nil
	})
}
