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
	"github.com/symgrad/symgrad/internal/lower"
	"github.com/symgrad/symgrad/internal/values"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// Machine is a compiled graph. It is a gorgonia.VM, for one goroutine at a time.
type Machine struct {
	cfg     Config
	g       *lower.Parts
	whole   *gorgonia.ExprGraph         // the graph of g
	middle  map[*gorgonia.Node]*Machine // machines that compute values for Value
	blas    *blas.Implementation
	shapes  map[*gorgonia.Node][]int // shapes of inputs when the graph was built
	now     *compiled
	all     []*compiled  // by shapes of inputs and manner of run; the first has the graph's own shapes
	as      lower.Manner // of the next run
	memory  map[place]tensor.Buffer
	clock   []uint64 // number of the step, and of this rank's first sample
	first   bool     // SetFirstSample has been called
	closed  bool
	reading []gorgonia.Value // by graph.reads, values of gorgonia.Read that the machine owns
	device  *device          // nil on the CPU
	solve   *solver          // of a device; may be nil
	drops   map[uintptr]int  // numbers of dropouts that are given; may be nil
	host    optim.Solver     // Config.Solver on the CPU
	ddp     *ddp.DDP         // whose buckets on the device get the gradients; may be nil
	sharded *ddp.DDP         // of a graph on the CPU whose solver is sharded
	runEnds []runEnd         // since the last Intervals
	stuck   bool             // work on the GPU may never end
	alone   func()           // makes the DDP stop waiting for runs; may be nil
}

var _ gorgonia.VM = (*Machine)(nil)

// place is the use of a block of memory: the value of a node, or the dual value of a parameter.
type place struct {
	node *gorgonia.Node
	dual bool
}

// maxCompiled is the most programs for other shapes that are kept for each manner.
const maxCompiled = 8

// New compiles a complete graph: gradients are differentiated, and learnables have values. The
// machine sets the values of outputs; without outputs, of those that the package comment names.
// With outputs, gradients are computed only if they are among them, if Config.Solver needs them, or
// if ddp.Attach exchanges them and Config.Eval is not set. A graph of gorgonia.SubgraphRoots has
// the gradients that are in it.
//
// Returns: a machine, which the caller closes. Owns: the machine owns the memory of all values that
// it gives to nodes. Errors: ErrUnknownOp with op and node; ErrDevice; optim.ErrNoGradient for
// Config.Solver without gradients; those of Config.Validate.
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
	for kind, nodes := range map[string]gorgonia.Nodes{"output": outputs, "Config.Keep, node": cfg.Keep} {
		if i := slices.IndexFunc(nodes, func(n *gorgonia.Node) bool { return n == nil || !all.Contains(n) }); i >= 0 {
			return nil, fmt.Errorf("machine: %s %d is no node of the graph", kind, i)
		}
	}
	outputs = cfg.withGradients(g, outputs)
	m = newMachine(cfg)
	if p := values.Try(func() { err = m.compile(g, outputs) }); p != nil {
		err = p
	}
	if err != nil {
		m.stuck = errors.Is(err, cudaexec.ErrStuck)
		return nil, errors.Join(fmt.Errorf("machine %s: %w", cfg.Name, err), m.Close())
	}
	return m, nil
}

// newMachine returns a machine without programs.
func newMachine(cfg Config) *Machine {
	return &Machine{cfg: cfg, clock: make([]uint64, 2), memory: map[place]tensor.Buffer{}, shapes: map[*gorgonia.Node][]int{}}
}

// compile compiles the first program.
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

// prepare opens the device and collects the nodes, outputs and parameters to compile.
func (m *Machine) prepare(g *gorgonia.ExprGraph, outputs gorgonia.Nodes) error {
	if err := m.open(g); err != nil {
		return err
	}
	for _, n := range g.AllNodes() {
		if op, ok := n.Op().(gorgonia.TrainModeOp); ok {
			if err := op.SetTraining(!m.cfg.Eval); err != nil {
				return fmt.Errorf("node %q: %w", lower.Called(n), err)
			}
		}
	}
	m.whole, m.g = g, lower.Collect(g, outputs, m.cfg.Keep...)
	if err := m.g.Check(); err != nil {
		return err
	}
	m.reading = make([]gorgonia.Value, len(m.g.Reads))
	m.takeShapes()
	if err := m.duals(); err != nil {
		return err
	}
	return m.makeSolver(g)
}

// takeShapes records the shapes with which the graph's inputs were built.
func (m *Machine) takeShapes() {
	for _, n := range m.g.Nodes {
		if !n.IsVar() {
			continue
		}
		if shape, known := m.g.Built[n]; known {
			m.shapes[n] = shape
			continue
		}
		m.shapes[n] = nil
		if !n.IsScalar() {
			m.shapes[n] = slices.Clone([]int(n.Shape()))
		}
		m.g.Built[n] = m.shapes[n]
	}
}

// open opens the device, or BLAS for the host.
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

// duals sets param.dual for parameters whose gradient must be a value apart from the gradient node:
//
//   - Config.DualValues is set, or the program has set a gradient of its own.
//   - Another parameter has the same gradient node.
//   - The gradient is a constant. Solvers set gradients to 0, and the constant 1 is one node in all
//     graphs of a process.
//   - The value is a tensor without dimensions. Solvers expect its gradient to be one too, and
//     scalar nodes have numbers.
func (m *Machine) duals() error {
	seen := gorgonia.NewNodeSet()
	for i := range m.g.Params {
		p := &m.g.Params[i]
		first := seen.Add(p.Grad)
		own, err := p.Node.Grad()
		has := err == nil && own != nil && own != p.Grad.Value()
		constant := lower.IsConstant(p.Grad) && p.Node.Value() != nil
		flat := p.Node.IsScalar() && isTensor(p.Node.Value())
		p.Dual = has || m.cfg.DualValues || !first || constant || flat
		if !p.Dual || has {
			continue
		}
		if err := m.makeDual(p); err != nil {
			return fmt.Errorf("gradient of %q: %w", lower.Called(p.Node), err)
		}
	}
	return nil
}

func isTensor(v gorgonia.Value) bool {
	_, ok := v.(gtensor.Tensor)
	return ok
}

// makeDual gives a parameter a gradient value of its own, set to 0.
func (m *Machine) makeDual(p *lower.Param) error {
	v := p.Node.Value()
	if v == nil {
		return fmt.Errorf("the parameter has %w; give it one with gorgonia.WithValue, WithInit or Let before New", ErrNoValue)
	}
	dt, err := values.DType(v.Dtype())
	if err != nil {
		return err
	}
	b, err := values.New(dt, max(v.Shape().TotalSize(), 1))
	if err != nil {
		return err
	}
	d, err := values.Over(b, v.Dtype(), slices.Clone([]int(v.Shape())), p.Node.IsScalar() && !isTensor(v))
	if err != nil {
		return err
	}
	return values.Try(func() { gorgonia.WithGrad(d)(p.Node) })
}

// RunAll runs one step: it reads the inputs, runs the program, and returns when outputs and
// gradients have their values. If the machine updates parameters on a GPU, it returns when the run
// is queued: see the package comment.
//
// Errors: ErrNoValue and ErrShape with the input; ErrNaN; ErrClosed; those of a step with its node.
// The values of outputs are then undefined, and the next run starts from the first step.
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

// finish gives nodes the values of outputs and runs statements such as gorgonia.Read.
func (m *Machine) finish() error {
	if err := m.now.let(); err != nil {
		return err
	}
	for i, r := range m.g.Reads {
		v := r.Node.Value()
		if v == nil {
			return fmt.Errorf("read of %q: %w", lower.Called(r.Node), ErrNoValue)
		}
		if err := m.read(i, r, v); err != nil {
			return fmt.Errorf("read of %q: %w", lower.Called(r.Node), err)
		}
	}
	return m.executeSets()
}

// read stores v for a gorgonia.Read: in a copy the first time, in the same memory later, as the
// tape machine does. A value of another shape gets a new copy.
func (m *Machine) read(i int, r lower.Read, v gorgonia.Value) error {
	if *r.Into != nil && *r.Into == m.reading[i] && slices.Equal((*r.Into).Shape(), v.Shape()) {
		dt, err := values.DType(v.Dtype())
		if err != nil {
			return err
		}
		to, err := values.Memory(*r.Into, dt)
		if err != nil {
			return err
		}
		if to.Len() == max(v.Shape().TotalSize(), 1) {
			return values.Copy(to, v)
		}
	}
	own, err := values.Packed(v)
	if err != nil {
		return err
	}
	*r.Into, m.reading[i] = own, own
	return nil
}

// Reset does nothing, as each run starts from the first step. gorgonia.VM requires it.
func (m *Machine) Reset() {}

// SetClock sets the number of the next step. Random numbers depend on it, so a resumed training
// sets it.
func (m *Machine) SetClock(step uint64) { m.clock[0] = step }

// SetFirstSample sets the number of this rank's first sample in the whole batch. Random numbers
// depend on it. By default it is the rank times the samples of a batch if gradients are exchanged,
// else 0.
func (m *Machine) SetFirstSample(sample uint64) { m.clock[1], m.first = sample, true }

// Explain returns the listing of the current program: each step with its buffers, bytes and stream.
func (m *Machine) Explain() string {
	if m.now == nil {
		return ""
	}
	var s strings.Builder
	s.WriteString(m.now.Program.String())
	if len(m.g.Params) == 0 && !m.cfg.Eval {
		s.WriteString("\nno gradients: for a training, call gorgonia.Grad(cost, learnables...) before New")
	}
	for _, f := range m.now.Calls {
		if f.Op != nil {
			fmt.Fprintf(&s, "\n%s runs by its Do on the host, with copies and allocations", f.Op)
		}
	}
	return s.String()
}

// Close frees the machine's resources. Values of nodes stay readable. It may be called twice. If a
// rank has died and work on the GPU does not end, its memory is freed with the process.
func (m *Machine) Close() error {
	if m.closed {
		return nil
	}
	m.closed = true
	if m.alone != nil {
		m.alone()
	}
	if m.stuck {
		return nil // freeing would wait for work that never ends
	}
	var errs []error
	for _, communicates := range [...]bool{true, false} { // programs that communicate first: they detect dead ranks
		for _, c := range m.all {
			if len(c.Groups) > 0 == communicates {
				errs = append(errs, c.runner.Close())
			}
		}
		if err := errors.Join(errs...); errors.Is(err, cudaexec.ErrStuck) {
			return err // as above
		}
		if m.device != nil {
			m.device.used = nil
		}
	}
	errs = append(errs, m.solve.close(), m.closeRunEnds(), m.forgetMiddle())
	if m.device != nil {
		errs = append(errs, m.device.close())
	}
	return errors.Join(errs...)
}
