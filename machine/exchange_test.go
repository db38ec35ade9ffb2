package machine_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// exactTraining trains a model whose gradients are its inputs, which have the same bits on the
// host and on GPUs. So the exchanged gradients must have them too.
type exactTraining struct {
	ddp    ddp.Config
	rule   optim.Config // without a name: SGD
	parts  int          // runs of a rank in a step
	broken int          // in this step an input of the last rank is infinite; 0: in none
	solver string       // "within" a run, "own" of the machine, or of the "host"; empty means within
}

const exactSteps = 4

// exactResult is the training of one rank.
type exactResult struct {
	grads   [][]float32 // of each step, without sharding
	weights [][]float32
	state   [][]float32 // of the hook
}

var buildingExact sync.Mutex

// exactGraph returns a graph, its cost and its parameters.
func exactGraph() (g *gorgonia.ExprGraph, cost *gorgonia.Node, params gorgonia.Nodes) {
	buildingExact.Lock()
	defer buildingExact.Unlock()
	g = gorgonia.NewGraph()
	for i, n := range []int{700, 70, 3} {
		node := func(name string) *gorgonia.Node {
			v := gtensor.New(gtensor.WithShape(n), gtensor.Of(gtensor.Float32))
			return gorgonia.NewVector(g, gtensor.Float32, gorgonia.WithName(fmt.Sprint(name, i)), gorgonia.WithShape(n), gorgonia.WithValue(v))
		}
		w := node("w")
		params = append(params, w)
		c := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.HadamardProd(w, node("x")))))
		if cost == nil {
			cost = c
		} else {
			cost = gorgonia.Must(gorgonia.Add(cost, c))
		}
	}
	return g, cost, params
}

// fill sets the inputs, and so the gradients, of a run.
func (c *exactTraining) fill(g *gorgonia.ExprGraph, rank, ranks, step, part int) {
	for i := range 3 {
		v := g.ByName(fmt.Sprint("x", i))[0].Value().Data().([]float32)
		for k := range v {
			virtual := rank*c.parts + part
			v[k] = float32(math.Sin(float64(1+k)*float64(1+3*virtual+11*step)) * math.Exp(float64(k%13-6)))
			if c.broken > 0 && step == c.broken && rank == ranks-1 && k == 2 {
				v[k] = float32(math.Inf(1))
			}
		}
	}
}

// run trains one rank.
func (c *exactTraining) run(w *dist.World) (res exactResult, err error) {
	g, cost, params := exactGraph()
	d, err := ddp.Attach(w, cost, params, c.ddp)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	rule, cfg := c.rule, machine.Config{}
	if rule.Name == "" {
		rule.Name = optim.SGD
	}
	rule.LearningRate, rule.KeepGradients = 0.125, true
	if c.solver == "" {
		cfg.Solver = &rule
	}
	vm, err := machine.New(g, cfg, append(gorgonia.Nodes{cost}, d.Grads()...)...)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(vm.Close(), err) }()
	var s optim.Solver
	if c.solver == "host" {
		s, err = d.NewSolver(rule)
	} else {
		s, err = vm.NewSolver(rule)
	}
	if err != nil {
		return res, err
	}
	for step := range exactSteps {
		if err := c.step(w, g, d, vm, step); err != nil {
			return res, fmt.Errorf("step %d: %w", step, err)
		}
		if err := errors.Join(s.Step(d.Model()), vm.Sync()); err != nil {
			return res, fmt.Errorf("step %d: %w", step, err)
		}
		for _, n := range d.Grads() {
			if c.ddp.Stage == 0 {
				res.grads = append(res.grads, slices.Clone(n.Value().Data().([]float32)))
			}
		}
	}
	if err := errors.Join(d.Consolidate(), d.AverageWeights(), vm.Sync()); err != nil {
		return res, err
	}
	for _, p := range params {
		res.weights = append(res.weights, slices.Clone(p.Value().Data().([]float32)))
	}
	if res.state, err = hookState(d); err != nil {
		return res, err
	}
	return res, d.SetHookState(d.HookState())
}

// hookState returns the elements of a hook's state.
func hookState(d *ddp.DDP) (all [][]float32, err error) {
	for _, st := range d.HookState() {
		x, err := tensor.Data[float32](st.Data)
		if err != nil {
			return nil, err
		}
		all = append(all, x)
	}
	return all, nil
}

// step makes the runs of a step.
func (c *exactTraining) step(w *dist.World, g *gorgonia.ExprGraph, d *ddp.DDP, vm *machine.Machine, step int) error {
	once := func(part int) error {
		c.fill(g, w.Rank(), w.Size(), step, part)
		return errors.Join(d.SetWeight(float64(1+(w.Rank()*c.parts+part+step)%3)), vm.RunAll())
	}
	if c.parts > 1 {
		err := d.NoSync(func() error {
			for part := range c.parts - 1 {
				if err := once(part); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return once(c.parts - 1)
}

// on runs body on so many ranks of the host, in this process.
func (c *exactTraining) on(ranks int, body func(w *dist.World) (exactResult, error)) ([]exactResult, error) {
	worlds, err := sim.New(ranks, sim.Config{})
	if err != nil {
		return nil, err
	}
	all, errs := make([]exactResult, ranks), make([]error, ranks)
	var wait sync.WaitGroup
	for r, w := range worlds {
		wait.Go(func() {
			if all[r], errs[r] = body(w); errs[r] != nil {
				_ = w.Abort(errs[r])
			}
			errs[r] = errors.Join(errs[r], w.Close())
		})
	}
	wait.Wait()
	return all, errors.Join(errs...)
}

// equal compares two results: gradients and states bit by bit.
func (r *exactResult) equal(want exactResult) error {
	for what, x := range map[string][2][][]float32{"gradient": {r.grads, want.grads}, "state": {r.state, want.state}} {
		if len(x[0]) != len(x[1]) {
			return fmt.Errorf("%d vectors of %s, want %d", len(x[0]), what, len(x[1]))
		}
		for i := range x[1] {
			for k, y := range x[1][i] {
				if g := x[0][i][k]; math.Float32bits(g) != math.Float32bits(y) && (g == g || y == y) {
					return fmt.Errorf("%s %d, element %d: %v, want %v", what, i, k, g, y)
				}
			}
		}
	}
	if off := gpuWorst(r.weights, want.weights); !(off <= 1e-5) {
		return fmt.Errorf("weights differ by %v", off)
	}
	return nil
}

// exactCase is a training with a name.
type exactCase struct {
	name string
	exactTraining
}

// exactCases has all exchanges of buckets.
func exactCases() []exactCase {
	small := func(c ddp.Config) ddp.Config {
		c.BucketMB, c.FirstBucketMB = 1.0/1024, 1.0/1024
		return c
	}
	bf16 := tensor.BF16
	feedback := ddp.Config{WireDType: bf16, ErrorFeedback: true}
	staged := func(stage int) ddp.Config {
		c := small(feedback)
		c.Stage = stage
		return c
	}
	skips := optim.Config{SkipNonFinite: true}
	return []exactCase{
		{"mean", exactTraining{ddp: small(ddp.Config{}), parts: 1}},
		{"sum", exactTraining{ddp: small(ddp.Config{Average: ddp.Sum}), parts: 1}},
		{"premulsum", exactTraining{ddp: small(ddp.Config{Average: ddp.PreMulSum, Factor: 0.3}), parts: 1}},
		{"predivide", exactTraining{ddp: small(ddp.Config{Average: ddp.PreDivide, Factor: 1.7}), parts: 1}},
		{"predivide, bf16", exactTraining{ddp: ddp.Config{Average: ddp.PreDivide, WireDType: bf16}, parts: 1}},
		{"a cast as a hook", exactTraining{ddp: ddp.Config{Hook: compress.Cast{DType: bf16}}, parts: 1}},
		{"bf16, feedback", exactTraining{ddp: small(feedback), parts: 1}},
		{"f16, feedback", exactTraining{ddp: ddp.Config{WireDType: tensor.F16, ErrorFeedback: true}, parts: 1}},
		{"bf16, feedback, broken", exactTraining{ddp: small(feedback), rule: skips, parts: 1, broken: 1}},
		{"bf16, feedback, stage 1", exactTraining{ddp: staged(1), rule: skips, parts: 1, broken: 1}},
		{"bf16, feedback, stage 2", exactTraining{ddp: staged(2), parts: 1}},
		{"bf16, feedback, stage 3", exactTraining{ddp: staged(3), parts: 1}},
		{"virtual ranks", exactTraining{ddp: small(ddp.Config{VirtualRanks: 6}), parts: 3}},
		{"virtual ranks, sum", exactTraining{ddp: ddp.Config{VirtualRanks: 2, Average: ddp.Sum}, parts: 1}},
		{"virtual ranks, stage 1", exactTraining{ddp: ddp.Config{VirtualRanks: 4, Stage: 1}, parts: 2}},
		{"local steps", exactTraining{ddp: small(ddp.Config{LocalSteps: 2}), parts: 1}},
		{"local steps, parts", exactTraining{ddp: ddp.Config{LocalSteps: 3}, parts: 3}},
		{"local steps, own solver", exactTraining{ddp: ddp.Config{LocalSteps: 3}, parts: 1, solver: "own"}},
		{"local steps, solver of the host", exactTraining{ddp: ddp.Config{LocalSteps: 3}, parts: 1, solver: "host"}},
		{"powersgd", exactTraining{ddp: small(ddp.Config{Hook: compress.PowerSGD{Rank: 2}}), rule: skips, parts: 1, broken: 1}},
		{"powersgd, parts", exactTraining{ddp: ddp.Config{Hook: compress.PowerSGD{Rank: 1}}, parts: 3}},
		{"a hook of one's own", exactTraining{ddp: small(ddp.Config{Hook: halfHook{}, Average: ddp.PreDivide, Factor: 1.7}), parts: 1}},
		{"a hook of one's own, stage 1", exactTraining{ddp: ddp.Config{Hook: halfHook{}, Stage: 1}, parts: 1}},
		{"a hook of one's own, stage 2", exactTraining{ddp: ddp.Config{Hook: halfHook{}, Stage: 2}, parts: 2}},
		{"local steps, skipped", exactTraining{ddp: ddp.Config{LocalSteps: 3}, rule: skips, parts: 1, broken: 1}},
	}
}
