package lower

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	G "gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/cudaexec"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
	"github.com/symgrad/symgrad/internal/compile/program/oracle"
	"github.com/symgrad/symgrad/internal/compile/values"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// lane is one rank of a training with the device programs, on memory of the host.
type lane struct {
	*rankGraph
	opt    Options
	g      *Parts
	solve  *Update // nil: nothing is updated
	steps  int     // of solve
	loaded map[Manner]*loadedLane
}

// loadedLane is one of its programs.
type loadedLane struct {
	*Lowered
	memory oracle.Rank
}

// newLane makes a rank with an optional update by rule.
func newLane(r *rankGraph, cfg Options, rule *optim.Config) (*lane, error) {
	n := &lane{rankGraph: r, g: Collect(r.g, nil), loaded: map[Manner]*loadedLane{}}
	n.opt = forDevice(cfg, n.g, r.d)
	if rule == nil {
		return n, nil
	}
	return n, n.update(*rule)
}

// update makes the memory of an update.
func (n *lane) update(rule optim.Config) error {
	n.solve = NewUpdate(n.g, rule, n.opt.DualValues, n.opt.Shapes, n.d)
	if err := n.solve.Allocate(n.g, values.New); err != nil {
		return err
	}
	for _, i := range []int{2, 3} { // no step yet
		program.SetElement(tensor.F64, n.solve.Words[i].Raw(), 0, 1)
	}
	n.opt.Update = n.solve
	return nil
}

// load makes the program for runs of a manner.
func (n *lane) load(as Manner) (*loadedLane, error) {
	if p, ok := n.loaded[as]; ok {
		return p, nil
	}
	n.opt.Manner = as
	l, err := Graph(n.g, n.opt)
	if err == nil {
		err = program.Validate(l.Program)
	}
	if err == nil { // that there are kernels
		_, _, _, _, err = cudaexec.Foresee(l.Program)
	}
	if err != nil {
		return nil, err
	}
	p := &loadedLane{l, oracle.Rank{Program: l.Program, Memory: map[program.ID][]byte{}}}
	for _, g := range l.Groups {
		p.memory.Groups = append(p.memory.Groups, g.Ranks())
	}
	for _, f := range l.Fixed {
		p.memory.Memory[f.ID] = f.At.Raw()
	}
	for _, b := range l.Inputs {
		if b.Slot {
			continue // a part of a bucket, which is fixed
		}
		at, err := values.Memory(b.Node.Value(), l.Program.Values[b.ID].DType)
		if err != nil {
			return nil, err
		}
		p.memory.Memory[b.ID] = at.Raw()
	}
	for _, b := range l.Outputs {
		if b.Slot {
			continue
		}
		at, err := values.New(l.Program.Values[b.ID].DType, l.Program.Values[b.ID].Len())
		if err != nil {
			return nil, err
		}
		p.memory.Memory[b.ID] = at.Raw()
	}
	n.loaded[as] = p
	return p, nil
}

// prepare returns the program of the next run, with the words that a machine sets on the device.
// Words that the run must not read are NaN.
func (n *lane) prepare() (*loadedLane, error) {
	run, err := n.d.Machine().Next()
	if err != nil {
		return nil, err
	}
	as := MannerOf(run)
	for i, at := range n.d.Machine().Layout().Weights {
		x := math.NaN()
		if as.Reads(i) {
			x = run.Weights[i]
		}
		program.SetElement(tensor.F64, at.Raw(), 0, x)
	}
	if s := n.solve; s != nil && !as.Local() {
		program.SetElement(tensor.F64, s.Words[0].Raw(), 0, s.Config.Schedule.Rate(s.Config.LearningRate, n.steps))
		program.SetElement(tensor.F64, s.Words[1].Raw(), 0, 1)
		n.steps++
	}
	return n.load(as)
}

// alone is a run inside NoSync.
func (n *lane) alone() error {
	p, err := n.prepare()
	if err != nil {
		return err
	}
	for i := range p.Program.Steps {
		if _, ok := p.Program.Steps[i].Op.(*program.Collective); ok {
			return fmt.Errorf("a run that accumulates communicates: %v", p.Program)
		}
	}
	err = oracle.RunRanks([]oracle.Rank{p.memory})
	n.d.Machine().Ran(err)
	return err
}

// together is a run of all ranks outside NoSync.
func together(lanes []*lane) error {
	ranks := make([]oracle.Rank, len(lanes))
	for i, n := range lanes {
		p, err := n.prepare()
		if err != nil {
			return err
		}
		ranks[i] = p.memory
	}
	err := oracle.RunRanks(ranks)
	for _, n := range lanes {
		n.d.Machine().Ran(err)
	}
	return err
}

// parts has the micro-batches of a step: the weights on each rank. With idle a weight of 0 has NaN
// as input.
type parts struct {
	weights func(rank, step int) []float64
	steps   int
	idle    bool
	width   int // of a row, whose ranks shard; columns replicate. 0: all ranks
}

// fill sets the inputs to the samples of a micro-batch.
func (r *rankGraph) fill(rank, step, part int, none bool) {
	for _, in := range r.g.Inputs() {
		if slices.Contains(r.params, in) || ddp.IsShard(in) {
			continue
		}
		v := in.Value().Data().([]float32)
		for i := range v {
			v[i] = float32(math.Sin(float64(1+i) * float64(1+rank+7*step+100*part)))
			if none {
				v[i] = float32(math.NaN())
			}
		}
	}
}

// values returns a copy of the parameters.
func (r *rankGraph) values() [][]float32 {
	var all [][]float32
	for _, p := range r.params {
		all = append(all, slices.Clone(p.Value().Data().([]float32)))
	}
	return all
}

// onHost trains with the tape machine. It returns the final weights of each rank, and the gradients
// of the last step.
func (c *parts) onHost(t *testing.T, ranks int, cfg ddp.Config, rule optim.Config) (weights, grads [][][]float32) {
	t.Helper()
	weights, grads = make([][][]float32, ranks), make([][][]float32, ranks)
	rule.KeepGradients = true
	inWorld(t, ranks, func(w *dist.World) error {
		r, err := newRankGraph(2+w.Rank(), 0)
		if err != nil {
			return err
		}
		if r.d, err = ddp.Attach(w, r.cost, r.params, cfg); err != nil {
			return err
		}
		vm := G.NewTapeMachine(r.g)
		defer vm.Close()
		s, err := r.d.NewSolver(rule)
		if err != nil {
			return err
		}
		for step := range c.steps {
			all := c.weights(w.Rank(), step)
			once := func(part int) error {
				r.fill(w.Rank(), step, part, all[part] == 0 && c.idle)
				if err := r.d.SetWeight(all[part]); err != nil {
					return err
				}
				defer vm.Reset()
				return vm.RunAll()
			}
			if err := accumulated(r.d, len(all), once, func() error { return once(len(all) - 1) }); err != nil {
				return err
			}
			if err := s.Step(r.d.Model()); err != nil {
				return err
			}
		}
		for _, p := range r.params {
			v, err := p.Grad()
			if err != nil {
				return err
			}
			grads[w.Rank()] = append(grads[w.Rank()], slices.Clone(v.Data().([]float32)))
		}
		weights[w.Rank()] = r.values()
		return r.d.Close()
	})
	return weights, grads
}

// accumulated makes all runs of a step except the last inside NoSync.
func accumulated(d *ddp.DDP, n int, once func(part int) error, end func() error) error {
	if n > 1 {
		err := d.NoSync(func() error {
			for part := range n - 1 {
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
	return end()
}

// bySteps trains with the device programs.
func (c *parts) bySteps(t *testing.T, ranks int, cfg ddp.Config, o Options, rule optim.Config) []*lane {
	t.Helper()
	lanes := make([]*lane, ranks)
	inWorld(t, ranks, func(w *dist.World) error {
		r, err := newRankGraph(2+w.Rank(), 0)
		if err != nil {
			return err
		}
		on, cfg := dist.Members(w), cfg
		if c.width > 0 {
			if on, cfg.Replicas, err = w.Split2D(c.width); err != nil {
				return err
			}
		}
		if r.d, err = ddp.Attach(on, r.cost, r.params, cfg); err != nil {
			return err
		}
		lanes[w.Rank()], err = newLane(r, o, &rule)
		return err
	})
	for step := range c.steps {
		var err error
		if cfg.Stage < 2 && !cfg.OverlapGather {
			err = c.apart(lanes, step)
		} else {
			err = c.inTurn(lanes, step)
		}
		if err == nil {
			err = together(lanes)
		}
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
	}
	if cfg.Stage == 3 || cfg.OverlapGather {
		consolidate(t, lanes)
	}
	return lanes
}

// set sets the samples of a part on a rank.
func (c *parts) set(n *lane, rank, step, part int) error {
	weight := c.weights(rank, step)[part]
	n.fill(rank, step, part, weight == 0 && c.idle)
	return n.d.SetWeight(weight)
}

// apart accumulates all parts of each rank except the last, for which it sets the samples.
func (c *parts) apart(lanes []*lane, step int) error {
	for rank, n := range lanes {
		parts := len(c.weights(rank, step))
		err := accumulated(n.d, parts, func(part int) error {
			if err := c.set(n, rank, step, part); err != nil {
				return err
			}
			return n.alone()
		}, func() error { return c.set(n, rank, step, parts-1) })
		if err != nil {
			return err
		}
	}
	return nil
}

// inTurn is apart for ranks that communicate in each part, or in the first. Shared buckets have NaN
// before a run.
func (c *parts) inTurn(lanes []*lane, step int) error {
	parts := len(c.weights(0, step))
	set := func(part int) error {
		for rank, n := range lanes {
			if err := c.set(n, rank, step, part); err != nil {
				return err
			}
			l := n.d.Machine().Layout()
			if len(l.Shards) == 0 {
				continue
			}
			for _, b := range append(l.Buckets, l.Wires...) {
				for i := range b.Len() {
					program.SetElement(b.DType(), b.Raw(), i, math.NaN())
				}
			}
		}
		return nil
	}
	if parts > 1 {
		err := inNoSync(lanes, func() error {
			for part := range parts - 1 {
				if err := set(part); err != nil {
					return err
				}
				if err := together(lanes); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return set(parts - 1)
}

// inNoSync runs fn inside NoSync of all ranks.
func inNoSync(lanes []*lane, fn func() error) error {
	if len(lanes) == 0 {
		return fn()
	}
	return lanes[0].d.NoSync(func() error { return inNoSync(lanes[1:], fn) })
}

// consolidate sets whole weights in the ranks' nodes.
func consolidate(t *testing.T, lanes []*lane) {
	t.Helper()
	errs := make([]error, len(lanes))
	var ranks sync.WaitGroup
	for i, n := range lanes {
		ranks.Go(func() { errs[i] = n.d.Consolidate() })
	}
	ranks.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// gradients returns the contents of the slots.
func (n *lane) gradients(as Manner) [][]float32 {
	p := n.loaded[as]
	var all [][]float32
	for _, param := range n.params {
		for _, b := range p.Outputs {
			if b.Node != param.Deriv() || !b.Slot {
				continue
			}
			g := make([]float32, draft.SizeOf(b.Shape))
			for i := range g {
				g[i] = float32(program.Element(tensor.F32, p.memory.Memory[b.ID], b.Offset+i))
			}
			all = append(all, g)
		}
	}
	return all
}

// worst returns the largest difference, relative to want or 1; NaN for missing elements and NaN.
func worst(got, want [][]float32) float64 {
	off := 0.0
	if len(got) != len(want) {
		return math.NaN()
	}
	for i := range want {
		if len(got[i]) != len(want[i]) {
			return math.NaN()
		}
		for k := range want[i] {
			off = math.Max(off, math.Abs(float64(got[i][k])-float64(want[i][k]))/math.Max(1, math.Abs(float64(want[i][k]))))
		}
	}
	return off
}
