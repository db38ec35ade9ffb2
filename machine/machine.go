package machine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/cudaexec"
	"github.com/symgrad/symgrad/internal/compile/lower"
	"github.com/symgrad/symgrad/internal/compile/values"
	"github.com/symgrad/symgrad/internal/host/blas"
	"github.com/symgrad/symgrad/optim"
)

// Machine is a compiled graph. It is a gorgonia.VM, for one goroutine at a time.
type Machine struct {
	programs
	cfg        Config
	g          *lower.Parts
	whole      *gorgonia.ExprGraph // the graph of g
	middle     middle              // machines that compute values for Value
	blas       *blas.Implementation
	shapes     map[*gorgonia.Node][]int // shapes of inputs when the graph was built
	memory     placeMemory
	clock      []uint64 // number of the step, and of this rank's first sample
	first      bool     // SetFirstSample has been called
	closed     bool
	statements statements
	device     *device      // nil on the CPU
	solve      *solver      // of a device; may be nil
	host       optim.Solver // Config.Solver on the CPU
	ddp        *ddp.DDP     // whose buckets on the device get the gradients; may be nil
	sharded    *ddp.DDP     // of a graph on the CPU whose solver is sharded
	runEnds    runEnds
	stuck      bool   // work on the GPU may never end
	alone      func() // makes the DDP stop waiting for runs; may be nil
}

var _ gorgonia.VM = (*Machine)(nil)

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
	m := &Machine{cfg: cfg, clock: make([]uint64, 2), memory: placeMemory{}}
	m.programs.m, m.middle.m = m, m
	return m
}

// compile compiles the first program.
func (m *Machine) compile(g *gorgonia.ExprGraph, outputs gorgonia.Nodes) error {
	if err := m.prepare(g, outputs); err != nil {
		return err
	}
	return m.compileFirst()
}

func (m *Machine) compileFirst() error {
	if err := limitMemory(m); err != nil {
		return err
	}
	c, err := m.build(m.shapes, false)
	if err != nil {
		return err
	}
	m.all = []*compiled{c}
	return m.use(c)
}

// setTraining chooses training or evaluation in the ops that differ, such as dropout.
func setTraining(g *gorgonia.ExprGraph, trains bool) error {
	for _, n := range g.AllNodes() {
		if op, ok := n.Op().(gorgonia.TrainModeOp); ok {
			if err := op.SetTraining(trains); err != nil {
				return fmt.Errorf("node %q: %w", lower.Called(n), err)
			}
		}
	}
	return nil
}

// prepare opens the device and collects the nodes, outputs and parameters to compile.
func (m *Machine) prepare(g *gorgonia.ExprGraph, outputs gorgonia.Nodes) error {
	if err := m.open(g); err != nil {
		return err
	}
	if err := setTraining(g, !m.cfg.Eval); err != nil {
		return err
	}
	m.whole, m.g = g, lower.Collect(g, outputs, m.cfg.Keep...)
	if err := m.g.Check(); err != nil {
		return err
	}
	m.statements = newStatements(m)
	m.shapes = shapesOf(m.g)
	if err := makeDuals(m.g, m.cfg.DualValues); err != nil {
		return err
	}
	return m.makeSolver(g)
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
		if err := m.now.gpu.run(); err != nil {
			return err
		}
		if err := m.solve.within(m.now); err != nil {
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

// finish gives nodes the values of outputs and executes statements.
func (m *Machine) finish() error {
	if err := m.now.let(); err != nil {
		return err
	}
	return m.statements.execute()
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

// Explain returns the listing of the current program: each step with its buffers, bytes and stream,
// then its Precision.
func (m *Machine) Explain() string {
	if m.now == nil {
		return ""
	}
	var s strings.Builder
	s.WriteString(m.now.Program.String())
	s.WriteString(precisionOf(m.now.Program).String())
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
	errs = append(errs, m.solve.close(), m.runEnds.close(), m.middle.close())
	if m.device != nil {
		errs = append(errs, m.device.close())
	}
	return errors.Join(errs...)
}

// Sync copies the results of the last run to the nodes: outputs, gradients and, if the machine
// updates them, parameters. On the CPU, and on a GPU while the host updates the parameters, each
// RunAll does that, and Sync does nothing.
//
// Returns: when the run is done. Errors: those of the run; ErrStale, with OverlapGather of ddp;
// ErrClosed.
func (m *Machine) Sync() error {
	if m.closed {
		return fmt.Errorf("machine %s: %w", m.cfg.Name, ErrClosed)
	}
	if m.device == nil || m.device.copies {
		return nil
	}
	if m.device.current == nil {
		if err := m.current(); err != nil {
			return fmt.Errorf("machine %s: %w", m.cfg.Name, err)
		}
		return nil
	}
	if err := m.now.gpu.fetchAll(); err != nil {
		return fmt.Errorf("machine %s: %w", m.cfg.Name, err)
	}
	err := m.solve.wait()
	if err == nil {
		err = m.current()
	}
	if err == nil {
		err = m.device.fetchParams()
	}
	if err != nil {
		return fmt.Errorf("machine %s: %w", m.cfg.Name, err)
	}
	return nil
}

// Load makes the next run use the current values of the parameters' nodes, and of the states of ops
// on the host, such as the running statistics of a batch normalization. It is needed only on a GPU,
// after elements were changed in place: of parameters while the machine updates them, of states
// always. Call Sync before the change, because Load takes all states from the host. New values of
// nodes are noticed without it.
func (m *Machine) Load() {
	if m.device == nil {
		return
	}
	for _, s := range m.device.list {
		s.seen = nil
	}
	m.device.reload = true
}

// Scalar returns the element of an output with one element after the last run, and sets the node's
// Value. On a GPU it waits for that run only, and later runs can be queued meanwhile.
//
// Errors: ErrNoValue for a node that is not an output or has more elements; those of the run.
func (m *Machine) Scalar(n *gorgonia.Node) (float64, error) {
	if m.closed {
		return 0, fmt.Errorf("machine %s: %w", m.cfg.Name, ErrClosed)
	}
	if m.device != nil && !m.device.copies {
		if err := m.now.gpu.fetchNode(n); err != nil {
			return 0, fmt.Errorf("machine %s: %w", m.cfg.Name, err)
		}
	}
	v := n.Value()
	if v == nil || v.Shape().TotalSize() > 1 {
		return 0, fmt.Errorf("machine %s: node %q: %w of one element", m.cfg.Name, lower.NameOf(n), ErrNoValue)
	}
	x, err := values.Number(v)
	if err != nil {
		return 0, fmt.Errorf("machine %s: node %q: %w", m.cfg.Name, lower.NameOf(n), err)
	}
	return x, nil
}

// updated waits for all runs of m and their updates.
func (m *Machine) updated() error {
	if m.device == nil || m.device.current == nil {
		return nil
	}
	if err := m.device.wait(); err != nil {
		return err
	}
	return m.solve.wait()
}

// quiet waits for the last update of a machine's parameters. Another machine may share some of
// them.
func (m *Machine) quiet() error {
	if m == nil || m.device == nil {
		return nil
	}
	if m.closed {
		return fmt.Errorf("the parameters belong to machine %s: %w", m.cfg.Name, ErrClosed)
	}
	if err := m.device.from.quiet(); err != nil {
		return err
	}
	if err := m.updated(); err != nil {
		return err
	}
	return m.current()
}

// current returns ErrStale if the weights are not those of the last update.
func (m *Machine) current() error {
	if d := m.ddp; d != nil && d.Machine().Stale() {
		return fmt.Errorf("%w: call Consolidate of the DDP, on all ranks, first", ErrStale)
	}
	return nil
}
