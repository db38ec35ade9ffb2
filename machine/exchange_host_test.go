package machine_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/internal/compile/hostexec"
	"github.com/symgrad/symgrad/internal/compile/lower"
	steps "github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/values"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// exactLane is one rank that runs the programs for GPUs in memory of the host.
type exactLane struct {
	c      *exactTraining
	d      *ddp.DDP
	g      *lower.Parts
	o      lower.Options
	params gorgonia.Nodes
	loaded map[lower.Manner]steps.Runner
}

func (c *exactTraining) newLane(w *dist.World) (*exactLane, *gorgonia.ExprGraph, error) {
	g, cost, params := exactGraph()
	d, err := ddp.Attach(w, cost, params, c.ddp)
	if err != nil {
		return nil, nil, err
	}
	rule := c.rule
	rule.Name, rule.LearningRate, rule.KeepGradients = optim.SGD, 0.125, true
	l := &exactLane{c: c, d: d, g: lower.Collect(g, nil), params: params, loaded: map[lower.Manner]steps.Runner{}}
	l.o = lower.Options{Name: "lane", OnGPU: true, DDP: d, Shapes: map[*gorgonia.Node][]int{}}
	for _, n := range l.g.Nodes {
		if n.IsVar() {
			l.o.Shapes[n] = n.Shape()
		}
	}
	l.o.Update = lower.NewUpdate(l.g, rule, false, l.o.Shapes, d)
	if err := l.o.Update.Allocate(l.g, values.New); err != nil {
		return nil, nil, err
	}
	for i, x := range []float64{0.125, 1, 1, 1} { // rate, scale, and powers before the first step
		steps.SetElement(tensor.F64, l.o.Update.Words[i].Raw(), 0, x)
	}
	return l, g, nil
}

// load returns the program for runs of a manner.
func (l *exactLane) load(as lower.Manner) (steps.Runner, error) {
	if r, ok := l.loaded[as]; ok {
		return r, nil
	}
	o := l.o
	o.Manner = as
	p, err := lower.Graph(l.g, o)
	if err == nil {
		err = steps.Validate(p.Program)
	}
	if err != nil {
		return nil, err
	}
	env := steps.Env{Groups: p.Groups}
	for _, f := range p.Calls {
		env.Calls = append(env.Calls, f.Run)
	}
	r, err := hostexec.New(p.Program, hostexec.Config{Threads: 1}, env)
	if err != nil {
		return nil, err
	}
	l.loaded[as] = r
	for _, f := range p.Fixed {
		err = errors.Join(err, r.Bind(f.ID, f.At))
	}
	for _, b := range p.Inputs {
		if b.Slot {
			continue // a part of a bucket
		}
		at, bad := values.Memory(b.Node.Value(), tensor.F32)
		err = errors.Join(err, bad, r.Bind(b.ID, at))
	}
	for _, b := range p.Outputs {
		if b.Slot {
			continue
		}
		at, bad := values.New(tensor.F32, p.Program.Values[b.ID].Len())
		err = errors.Join(err, bad, r.Bind(b.ID, at))
	}
	return r, err
}

// run makes one run.
func (l *exactLane) run() error {
	run, err := l.d.Machine().Next()
	if err != nil {
		return err
	}
	for i, at := range l.d.Machine().Layout().Weights {
		steps.SetElement(tensor.F64, at.Raw(), 0, run.Weights[i])
	}
	r, err := l.load(lower.MannerOf(run))
	if err == nil {
		err = errors.Join(r.Run(), r.Wait())
	}
	l.d.Machine().Ran(err)
	if err == nil && !run.Local {
		err = l.d.Machine().Stepped(false)
	}
	return err
}

// bySteps trains one rank.
func (c *exactTraining) bySteps(w *dist.World) (res exactResult, err error) {
	l, g, err := c.newLane(w)
	if err != nil {
		return res, err
	}
	defer func() {
		for _, r := range l.loaded {
			err = errors.Join(err, r.Close())
		}
		err = errors.Join(err, l.d.Close())
	}()
	once := func(step, part int) error {
		c.fill(g, w.Rank(), w.Size(), step, part)
		return errors.Join(l.d.SetWeight(float64(1+(w.Rank()*c.parts+part+step)%3)), l.run())
	}
	for step := range exactSteps {
		if c.parts > 1 {
			err := l.d.NoSync(func() error {
				for part := range c.parts - 1 {
					if err := once(step, part); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return res, err
			}
		}
		if err := once(step, c.parts-1); err != nil {
			return res, fmt.Errorf("step %d: %w", step, err)
		}
		plan, buckets := l.d.Plan(), l.d.Machine().Layout().Buckets
		for _, q := range plan.Params {
			if plan.Stage > 0 {
				continue
			}
			x, err := tensor.Data[float32](buckets[q.Bucket])
			if err != nil {
				return res, err
			}
			res.grads = append(res.grads, slices.Clone(x[q.Offset:q.Offset+q.Len()]))
		}
	}
	if err := errors.Join(l.d.Consolidate(), l.d.AverageWeights()); err != nil {
		return res, err
	}
	for _, p := range l.params {
		res.weights = append(res.weights, slices.Clone(p.Value().Data().([]float32)))
	}
	if l.d.Machine().Layout().Hosted {
		res.state, err = hookState(l.d)
	}
	return res, err
}

// TestProgramsForGPUsHaveTheBitsOfTheHost runs the programs for GPUs by the back half of the CPU,
// on ranks of the simulation, and compares them with machines of the host.
func TestProgramsForGPUsHaveTheBitsOfTheHost(t *testing.T) {
	for _, c := range exactCases() {
		if invariants.Enabled && c.parts > 1 || c.solver != "" || c.broken > 0 && c.ddp.LocalSteps > 0 {
			continue // solvers outside of programs, and skipped local steps, need a machine
		}
		t.Run(c.name, func(t *testing.T) {
			want, err := c.on(2, c.run)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.on(2, c.bySteps)
			if err != nil {
				t.Fatal(err)
			}
			for rank := range want {
				if got[rank].state == nil {
					want[rank].state = nil // residuals of programs are in memory that only they read
				}
				if err := got[rank].equal(want[rank]); err != nil {
					t.Errorf("rank %d: %v", rank, err)
				}
			}
		})
	}
}

// TestHookThatFailsBreaksItsGroup has a hook of one rank that returns an error: every rank gets an
// error, which names it.
func TestHookThatFailsBreaksItsGroup(t *testing.T) {
	worlds, err := sim.New(2, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, 2)
	var wait sync.WaitGroup
	for r, w := range worlds {
		wait.Go(func() {
			c := exactTraining{ddp: ddp.Config{Hook: halfHook{fails: r == 1}, BucketMB: 1.0 / 1024}, parts: 1}
			_, errs[r] = c.bySteps(w)
		})
	}
	wait.Wait()
	for r, w := range worlds {
		if err := w.Close(); err != nil && !errors.Is(err, dist.ErrAborted) {
			t.Error(err)
		}
		if !errors.Is(errs[r], errHalf) && !errors.Is(errs[r], dist.ErrAborted) {
			t.Errorf("rank %d: %v", r, errs[r])
		}
	}
}

var errHalf = errors.New("the hook of a test fails")

// halfHook is a hook of a program's own: messages are half of a rank's share.
type halfHook struct{ fails bool }

func (halfHook) String() string    { return "half" }
func (halfHook) Elementwise() bool { return true }

func (h halfHook) Codec(b compress.Bucket) (compress.Codec, error) {
	return &halfCodec{h.fails, b}, nil
}

type halfCodec struct {
	fails bool
	b     compress.Bucket
}

func (h *halfCodec) Messages() []compress.Message {
	return []compress.Message{{DType: h.b.DType, Elements: h.b.Elements}}
}

func (h *halfCodec) Compress(_ int, factor float64, bucket tensor.Buffer, messages []tensor.Buffer) error {
	if h.fails {
		return errHalf
	}
	return scaleBy(messages[0], bucket, factor/2)
}

func (h *halfCodec) Decompress(bucket tensor.Buffer, messages []tensor.Buffer) error {
	return scaleBy(bucket, messages[0], 2)
}

func scaleBy(to, from tensor.Buffer, by float64) error {
	x, err := tensor.Data[float32](to)
	if err != nil {
		return err
	}
	y, err := tensor.Data[float32](from)
	for i := range y {
		x[i] = float32(by) * y[i]
	}
	return err
}
