package machine

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/cudaexec"
	"github.com/symgrad/symgrad/internal/compile/hostexec"
	"github.com/symgrad/symgrad/internal/compile/lower"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/values"
	"github.com/symgrad/symgrad/tensor"
)

// Footprint is the bytes that a compiled graph uses on its device, without parameters, buckets of
// gradients and states of solvers.
type Footprint struct {
	Arena     int64 // results of steps, often called activations
	Constants int64
	Scratch   int64 // workspace of steps
	Inputs    int64 // on a GPU, where an input has two buffers; on the host the program has the inputs
	Outputs   int64 // values of outputs except gradients in buckets
	Gradients int64 // on the host: gradients whose reducers give no memory

	Moments   []Moment // of one run, in order
	Precision Precision
}

// Moment is a collective of a run or, on the host, a call of ddp: "begin", "start w0" with the
// gradient of w0, and "join".
type Moment struct {
	Name  string // of the tensor
	Kind  dist.Kind
	DType tensor.DType
	Count int // elements of one rank's block
}

// Total returns the sum.
func (f Footprint) Total() int64 {
	return f.Arena + f.Constants + f.Scratch + f.Inputs + f.Outputs + f.Gradients
}

// moments returns the communication of the steps of p.
func moments(p *program.Program) []Moment {
	var all []Moment
	for i := range p.Steps {
		s := &p.Steps[i]
		switch o := s.Op.(type) {
		case *program.Call:
			if !o.Copies {
				all = append(all, Moment{Name: o.Label})
			}
		case *program.Collective:
			m := Moment{Name: s.Name, Kind: o.Kind}
			if len(s.In) > 0 && len(s.Out) > 0 {
				in, out := &p.Values[s.In[0].Value], &p.Values[s.Out[0].Value]
				m.DType, m.Count = in.DType, in.Len()
				if o.Kind == dist.KindReduceScatter || o.Kind == dist.KindScatter {
					m.Count = out.Len()
				}
				if o.Part > 0 {
					m.Count = o.Part
				}
			}
			all = append(all, m)
		}
	}
	return all
}

// Foresee returns the Footprint that New would give the graph, without loading it. With Device CUDA
// it compiles for a GPU, which may be missing, with the exchange of gradients and the update of
// cfg.Solver. With Device CPU it uses memory only for the program. Without a Device it makes a
// machine and closes it. Nodes need no values, except with DualValues. A graph that ddp has seen
// may be attached to a world of the host, since a Footprint has no sizes of buckets.
// As New, it sets ops such as dropout to training, or to evaluation with Config.Eval.
//
// With RecomputeAuto and without MemoryBytes there is no limit, as the GPU may be missing.
//
// Errors: those of New.
func Foresee(g *gorgonia.ExprGraph, cfg Config, outputs ...*gorgonia.Node) (f Footprint, err error) {
	if cfg.Device != CPU && cfg.Device != CUDA { // Auto depends on the devices that exist
		m, err := New(g, cfg, outputs...)
		if err != nil {
			return f, err
		}
		return m.Footprint(), m.Close()
	}
	if err := cfg.Validate(); err != nil {
		return f, err
	}
	if g == nil {
		return f, errors.New("machine: no graph")
	}
	if cfg.Name == "" {
		cfg.Name = "program"
	}
	outputs = cfg.withGradients(g, outputs)
	on := foreseeOnHost
	if cfg.Device == CUDA {
		on = foreseeOnGPU
	}
	if p := values.Try(func() { f, err = on(g, cfg, outputs) }); p != nil {
		err = p
	}
	if err != nil {
		return f, fmt.Errorf("machine %s: %w", cfg.Name, err)
	}
	return f, nil
}

// Model is a newly built graph to train.
type Model struct {
	Cost   *gorgonia.Node
	Params gorgonia.Nodes
}

// Foresight is the memory and the plan of a Model as one rank of data-parallel training.
type Foresight struct {
	Plan      ddp.Plan
	Footprint Footprint
	Inputs    int64 // inputs, except parameters, that the program allocates
}

// Foresee attaches m to w and compiles it as a training would, without memory for tensors, and runs
// nothing. m cannot be used afterwards. Its parameters need no values. w is one rank of a world on
// the host, whatever cfg.Device is; "" means CPU.
//
// Collective: all ranks of w. Errors: those of ddp.Attach and Foresee.
func (m Model) Foresee(w *dist.World, exchange ddp.Config, cfg Config) (f Foresight, err error) {
	for _, n := range m.Cost.Graph().AllNodes() {
		if n.IsVar() && n.Value() != nil && !m.Params.Contains(n) {
			f.Inputs += int64(n.Value().MemSize())
		}
	}
	if cfg.Device != CUDA {
		cfg.Device = CPU
	}
	d, err := ddp.Imagine(w, m.Cost, m.Params, exchange)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	f.Plan = d.Plan()
	f.Footprint, err = Foresee(m.Cost.Graph(), cfg, append(gorgonia.Nodes{m.Cost}, d.Grads()...)...)
	return f, err
}

// foreseeOnHost returns the footprint of a machine of the host without making it. The update of a
// solver is not in the program.
func foreseeOnHost(g *gorgonia.ExprGraph, cfg Config, outputs gorgonia.Nodes) (f Footprint, err error) {
	updates := cfg.Solver != nil
	cfg.Solver = nil // the DDP updates
	m := newMachine(cfg)
	if err := m.prepare(g, outputs); err != nil {
		return f, err
	}
	if updates {
		if err := m.g.CheckGradients(); err != nil {
			return f, fmt.Errorf("solver: %w", err)
		}
	}
	c, err := m.program(m.shapes, false)
	if err != nil {
		return f, err
	}
	if f.Arena, f.Constants, f.Scratch, err = hostexec.Foresee(c.Program, m.onHost(), c.env()); err != nil {
		return f, err
	}
	f.Moments, f.Precision = moments(c.Program), precisionOf(c.Program)
	for _, o := range c.Outputs {
		if c.hookOf(o.ID) < 0 {
			f.Outputs += int64(max(values.Size(o.Shape), 1)) * int64(c.Program.Values[o.ID].DType.Size())
		}
	}
	for _, h := range c.Hooks {
		f.Gradients += c.hooks.spareBytes(h)
	}
	return f, nil
}

// foreseeOnGPU lowers a graph as build does, for a GPU.
func foreseeOnGPU(g *gorgonia.ExprGraph, cfg Config, outputs gorgonia.Nodes) (Footprint, error) {
	var f Footprint
	if err := setTraining(g, !cfg.Eval); err != nil {
		return f, err
	}
	all := lower.Collect(g, outputs, cfg.Keep...)
	if err := all.Check(); err != nil {
		return f, err
	}
	shapes := shapesOf(all)
	o := cfg.lowering(true)
	o.Shapes, o.DDP = shapes, ownerOf(g)
	if cfg.Solver != nil {
		o.Update = lower.NewUpdate(all, *cfg.Solver, cfg.DualValues, shapes, o.DDP)
		if err := o.Update.Allocate(all, imagined); err != nil {
			return f, fmt.Errorf("solver: %w", err)
		}
	}
	l, err := lower.Graph(all, o)
	if err != nil {
		return f, err
	}
	if f.Arena, f.Constants, f.Scratch, f.Inputs, err = cudaexec.Foresee(l.Program); err != nil {
		return f, err
	}
	f.Moments, f.Precision = moments(l.Program), precisionOf(l.Program)
	for _, o := range l.Outputs {
		if !o.Slot {
			f.Outputs += l.Program.Values[o.ID].Bytes()
		}
	}
	return f, nil
}

// imagined returns memory for states from which a program can be made, but which holds none.
func imagined(dt tensor.DType, n int) (tensor.Buffer, error) { return values.New(dt, min(n, 64)) }
