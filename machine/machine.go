package machine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/blas"
	"github.com/symgrad/symgrad/internal/cudaexec"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// Machine is a compiled graph. It is a gorgonia.VM, for one goroutine at a time.
type Machine struct {
	cfg     Config
	g       *graph
	whole   *gorgonia.ExprGraph         // that g is of
	middle  map[*gorgonia.Node]*Machine // that compute the nodes of Value
	blas    *blas.Implementation
	shapes  map[*gorgonia.Node][]int // of inputs, as the graph was built
	now     *compiled
	all     []*compiled // for the shapes that inputs have had and the manners of runs; the first is for those of the graph
	as      manner      // of the run that comes
	memory  map[place]tensor.Buffer
	clock   []uint64 // number of the step, and of this rank's first sample
	first   bool     // SetFirstSample has been called
	closed  bool
	reading []gorgonia.Value // the machine's Read values, by graph.reads
	device  *device          // nil on the CPU
	solve   *solver          // of a device; may be nil
	host    optim.Solver     // of Config.Solver on the CPU
	sharded *ddp.DDP         // of a graph on the CPU whose solver is sharded
	laps    []lap            // since Intervals
	stuck   bool             // the GPU does not come to an end
	alone   func()           // has the DDP wait for runs no more; may be nil
}

var _ gorgonia.VM = (*Machine)(nil)

// place is the use of memory of a machine: the value of a node, or the dual value of a parameter.
type place struct {
	node *gorgonia.Node
	dual bool
}

// maxCompiled is how many programs for other shapes are kept, of each manner.
const maxCompiled = 8

// New compiles a graph, which is complete: with gradients if it is to have any, and with its
// learnables' values. Outputs are the nodes whose values are wanted; without any they are those
// that the package comment names. With outputs, gradients are computed only if they are among them,
// or Config.Solver needs them, or ddp.Attach exchanges them and Config.Eval is not set. A graph of
// gorgonia.SubgraphRoots has the gradients that are in it.
//
// Returns: a machine, which the caller closes. Owns: the memory of values that the nodes have from
// then on is the machine's. Errors: ErrUnknownOp, naming op and node; ErrDevice;
// optim.ErrNoGradient for Config.Solver where there are no gradients; those of Config.Validate.
func New(g *gorgonia.ExprGraph, cfg Config, outputs ...*gorgonia.Node) (m *Machine, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Name == "" {
		cfg.Name = "program"
	}
	if g == nil {
		return nil, errors.New("machine: no graph")
	}
	all := gorgonia.NewNodeSet(g.AllNodes()...)
	for what, nodes := range map[string]gorgonia.Nodes{"output": outputs, "Config.Keep, node": cfg.Keep} {
		if i := slices.IndexFunc(nodes, func(n *gorgonia.Node) bool { return n == nil || !all.Contains(n) }); i >= 0 {
			return nil, fmt.Errorf("machine: %s %d is no node of the graph", what, i)
		}
	}
	outputs = withGradients(g, &cfg, outputs)
	m = newMachine(cfg)
	if p := try(func() { err = m.compile(g, outputs) }); p != nil {
		err = p
	}
	if err != nil {
		m.stuck = errors.Is(err, cudaexec.ErrStuck)
		return nil, errors.Join(fmt.Errorf("machine %s: %w", cfg.Name, err), m.Close())
	}
	return m, nil
}

// newMachine is a machine that has compiled nothing yet.
func newMachine(cfg Config) *Machine {
	return &Machine{cfg: cfg, clock: make([]uint64, 2), memory: map[place]tensor.Buffer{}, shapes: map[*gorgonia.Node][]int{}}
}

// compile makes the first program.
func (m *Machine) compile(g *gorgonia.ExprGraph, outputs gorgonia.Nodes) error {
	if err := m.prepare(g, outputs); err != nil {
		return err
	}
	return m.compileFirst()
}

func (m *Machine) compileFirst() error {
	c, err := m.build(m.shapes, false)
	if err != nil {
		return err
	}
	m.all = []*compiled{c}
	return m.use(c)
}

// prepare finds the nodes to compile, and the device.
func (m *Machine) prepare(g *gorgonia.ExprGraph, outputs gorgonia.Nodes) error {
	if err := m.open(g); err != nil {
		return err
	}
	for _, n := range g.AllNodes() {
		if op, ok := n.Op().(gorgonia.TrainModeOp); ok {
			if err := op.SetTraining(!m.cfg.Eval); err != nil {
				return fmt.Errorf("node %q: %w", called(n), err)
			}
		}
	}
	m.whole, m.g = g, collect(g, outputs, m.cfg.Keep...)
	m.g.onGPU = m.device != nil
	if err := m.g.check(); err != nil {
		return err
	}
	m.reading = make([]gorgonia.Value, len(m.g.reads))
	m.takeShapes()
	if err := m.duals(); err != nil {
		return err
	}
	return m.makeSolver(g)
}

// takeShapes notes the shapes that the graph's inputs have been built with.
func (m *Machine) takeShapes() {
	for _, n := range m.g.nodes {
		if !n.IsVar() {
			continue
		}
		if shape, known := m.g.built[n]; known {
			m.shapes[n] = shape
			continue
		}
		m.shapes[n] = nil
		if !n.IsScalar() {
			m.shapes[n] = slices.Clone([]int(n.Shape()))
		}
		m.g.built[n] = m.shapes[n]
	}
}

// open opens the device and its libraries.
func (m *Machine) open(g *gorgonia.ExprGraph) error {
	var err error
	if m.device, err = newDevice(&m.cfg, g); err != nil || m.device != nil {
		return err
	}
	c := blas.Config{Threads: m.cfg.Threads, Path: m.cfg.BLAS}
	if m.cfg.BLAS == "none" {
		c = blas.Config{Disable: true}
	}
	m.blas, err = blas.Open(c)
	return err
}

// duals finds the parameters whose gradient is apart from the node that it is the value of: because
// Config says so, or the program has given them a place of their own, or another parameter has the
// same gradient node, or the gradient is a constant: solvers set gradients to 0, and the constant 1
// is one node in all graphs of a process. Or the value is a tensor without dimensions: solvers want
// the same of its gradient, and nodes that are scalars have numbers.
func (m *Machine) duals() error {
	seen := gorgonia.NewNodeSet()
	for i := range m.g.params {
		p := &m.g.params[i]
		first := seen.Add(p.grad)
		own, err := p.node.Grad()
		has := err == nil && own != nil && own != p.grad.Value()
		constant := isConstant(p.grad) && p.node.Value() != nil
		flat := p.node.IsScalar() && isTensor(p.node.Value())
		p.dual = has || m.cfg.DualValues || !first || constant || flat
		if !p.dual || has {
			continue
		}
		if err := m.makeDual(p); err != nil {
			return fmt.Errorf("gradient of %q: %w", called(p.node), err)
		}
	}
	return nil
}

func isTensor(v gorgonia.Value) bool {
	_, ok := v.(gtensor.Tensor)
	return ok
}

// makeDual gives a parameter a gradient of its own, which is 0.
func (m *Machine) makeDual(p *param) error {
	v := p.node.Value()
	if v == nil {
		return fmt.Errorf("the parameter has %w; give it one with gorgonia.WithValue, WithInit or Let before New", ErrNoValue)
	}
	dt, err := dtypeOf(v.Dtype())
	if err != nil {
		return err
	}
	b, err := newMemory(dt, max(v.Shape().TotalSize(), 1))
	if err != nil {
		return err
	}
	d, err := valueOver(b, v.Dtype(), slices.Clone([]int(v.Shape())), p.node.IsScalar() && !isTensor(v))
	if err != nil {
		return err
	}
	return try(func() { gorgonia.WithGrad(d)(p.node) })
}

// RunAll runs one step: it looks the inputs up, runs the program, and returns when outputs and
// gradients have their values. On a GPU whose parameters the machine updates it returns when the
// run is queued, see the package comment.
//
// Errors: ErrNoValue and ErrShape, naming the input; ErrNaN; ErrClosed; those of a step, naming it
// and its node. The values of outputs are then undefined, and the next run is a whole one.
func (m *Machine) RunAll() error {
	if m.closed {
		return fmt.Errorf("machine %s: %w", m.cfg.Name, ErrClosed)
	}
	if err := m.runAll(); err != nil {
		return fmt.Errorf("machine %s: %w", m.cfg.Name, err)
	}
	return nil
}

func (m *Machine) runAll() error {
	if err := m.choose(); err != nil {
		return err
	}
	if m.now.changed() {
		if err := m.renew(); err != nil {
			return err
		}
	}
	resized, err := m.now.bind()
	if err != nil {
		return err
	}
	if resized {
		if err := m.resize(); err != nil {
			return err
		}
		if _, err := m.now.bind(); err != nil {
			return err
		}
	}
	if m.device != nil {
		if err := m.runOnDevice(); err != nil {
			return err
		}
		return m.finish()
	}
	err = m.now.runner.Run()
	if err == nil {
		err = m.now.runner.Wait()
	}
	m.clock[0]++
	if err == nil {
		err = m.finish()
	}
	if err != nil {
		return err
	}
	return m.updateOnHost()
}

// finish gives nodes their values, if they have others, and executes the statements.
func (m *Machine) finish() error {
	if err := m.now.let(); err != nil {
		return err
	}
	for i, r := range m.g.reads {
		v := r.node.Value()
		if v == nil {
			return fmt.Errorf("read of %q: %w", called(r.node), ErrNoValue)
		}
		if err := m.read(i, r, v); err != nil {
			return fmt.Errorf("read of %q: %w", called(r.node), err)
		}
	}
	return m.executeSets()
}

// read puts v where a gorgonia.Read wants it: a copy the first time, the same memory later, as the
// tape machine does. A value of another shape is a copy again.
func (m *Machine) read(i int, r read, v gorgonia.Value) error {
	if *r.into != nil && *r.into == m.reading[i] && slices.Equal((*r.into).Shape(), v.Shape()) {
		dt, err := dtypeOf(v.Dtype())
		if err != nil {
			return err
		}
		to, err := memoryOf(*r.into, dt)
		if err != nil {
			return err
		}
		if to.Len() == max(v.Shape().TotalSize(), 1) {
			return copyValue(to, v)
		}
	}
	own, err := packed(v)
	if err != nil {
		return err
	}
	*r.into, m.reading[i] = own, own
	return nil
}

// Reset does nothing: every run starts from the first step. It makes a Machine a gorgonia.VM.
func (m *Machine) Reset() {}

// SetClock sets the number of the step that runs next, for a training that is taken up again:
// random numbers depend on it.
func (m *Machine) SetClock(step uint64) { m.clock[0] = step }

// SetFirstSample sets the number, in the whole batch, of the first sample of this rank: random
// numbers depend on it. Without a call it is the rank times the samples of a batch, if the graph
// has been attached to ranks, else 0.
func (m *Machine) SetFirstSample(sample uint64) { m.clock[1], m.first = sample, true }

// Explain is the program that runs now: each step with its buffers, bytes and stream.
func (m *Machine) Explain() string {
	if m.now == nil {
		return ""
	}
	var s strings.Builder
	s.WriteString(m.now.p.String())
	if len(m.g.params) == 0 && !m.cfg.Eval {
		s.WriteString("\nno gradients: for a training, call gorgonia.Grad(cost, learnables...) before New")
	}
	for _, f := range m.now.calls {
		if f.op != nil {
			fmt.Fprintf(&s, "\n%s runs by its Do on the host, with copies and allocations", f.op)
		}
	}
	return s.String()
}

// Close frees the machine. Values of nodes stay readable. It may be called twice. If a rank has
// died and the GPU's work does not end, its memory stays until the process ends.
func (m *Machine) Close() error {
	if m.closed {
		return nil
	}
	m.closed = true
	if m.alone != nil {
		m.alone()
	}
	if m.stuck {
		return nil // freeing memory would hang
	}
	var errs []error
	for _, communicates := range [...]bool{true, false} { // those that know when a rank has died come first
		for _, c := range m.all {
			if len(c.groups) > 0 == communicates {
				errs = append(errs, c.runner.Close())
			}
		}
		if err := errors.Join(errs...); errors.Is(err, cudaexec.ErrStuck) {
			return err // freeing more would hang
		}
		if m.device != nil {
			m.device.used = nil
		}
	}
	errs = append(errs, m.solve.close(), m.forgetLaps(), m.forgetMiddle())
	if m.device != nil {
		errs = append(errs, m.device.close())
	}
	return errors.Join(errs...)
}
