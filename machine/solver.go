package machine

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/internal/cudaexec"
	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// NewSolver returns a solver for the parameters of the graph. On the CPU it is optim.New, or
// NewSolver of the graph's ddp.DDP. On a GPU its Step queues the update after the run. From then on
// parameters are on the GPU, RunAll returns when the run is queued, and nodes have the values of
// the last Sync. With an equal Config.Solver each RunAll ends with the update, and Step only
// compares the model.
//
// Steps on a GPU take the parameters in any order, but all that have gradients. State and SetState
// copy. SetState finds parameters by name and accepts elements that include those which the rank
// updates: all, or with Stages 1 to 3 of ddp its pieces, which State has. SwapAverages is then
// collective.
//
// With ClipNorm, ErrNonFinite comes from a later Step or run, or from Sync. The update was skipped,
// as on the CPU, but the step counts. With SkipNonFinite there is no error, and the step does not
// count. The device skips it at once in its bias corrections. The host learns of it three steps
// later, so the rate's schedule, Steps and Skipped lag until Sync, State or GradNorm have waited.
// SwapAverages swaps the device's parameters with their averages. Nodes have them after Sync, with
// Stage 3 after ddp's Consolidate.
//
// Returns: the one solver of the machine. Owns: the machine frees its memory. Errors: those of
// optim.New; ErrSolver for a second one; those of CUDA.
func (m *Machine) NewSolver(c optim.Config) (optim.Solver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if m.closed {
		return nil, fmt.Errorf("machine %s: %w", m.cfg.Name, ErrClosed)
	}
	if own := m.cfg.Solver; own != nil {
		if !c.WithDefaults().Equal(own.WithDefaults()) {
			return nil, fmt.Errorf("machine %s: %w: it updates by %v, and the solver by %v", m.cfg.Name, ErrSolver, own, c)
		}
		if m.device == nil {
			return within{m.host, m}, nil
		}
		return m.solve, nil
	}
	if m.device == nil {
		return m.hostSolver(c)
	}
	if m.solve != nil {
		return nil, fmt.Errorf("machine %s: %w, by %v", m.cfg.Name, ErrSolver, m.solve.cfg)
	}
	s, err := newSolver(m, c)
	if err == nil {
		err = s.load()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("machine %s: solver: %w", m.cfg.Name, err), s.close())
	}
	m.solve, m.device.copies = s, false
	return s, nil
}

// within is a solver whose steps RunAll makes, on the CPU.
type within struct {
	optim.Solver
	m *Machine
}

// Step does nothing.
func (within) Step([]gorgonia.ValueGrad) error { return nil }

// SwapAverages implements optim.Solver, on the parameters that the steps update.
func (w within) SwapAverages(model []gorgonia.ValueGrad) error {
	own := w.m.hostModel()
	if len(model) != len(own) {
		return fmt.Errorf("swap averages: the model has %d parameters and the graph gradients of %d: %w", len(model), len(own), optim.ErrMismatch)
	}
	return w.Solver.SwapAverages(own)
}

// hostModel returns the parameters in the order of the graph, or of the DDP that has the solver.
func (m *Machine) hostModel() []gorgonia.ValueGrad {
	if m.sharded != nil {
		return m.sharded.Model()
	}
	model := make([]gorgonia.ValueGrad, len(m.g.params))
	for i, p := range m.g.params {
		model[i] = p.node
	}
	return model
}

// solver is an optim.Solver whose steps run on a device, in a program of its own or in the
// machine's.
type solver struct {
	m     *Machine
	cfg   optim.Config // with defaults
	base  float64
	scale float64
	steps int // made, according to the host, which learns of skipped ones a few runs later
	norm  float64

	skipped float64 // steps, according to the host
	swapped bool    // the parameters hold their averages

	nodes  []*gorgonia.Node  // of the parameters, in the order of the graph
	pieces []ddp.Piece       // updated part of each: all elements, or those that the rank owns
	order  []int             // by parameter of the last model, the index in nodes; nil before the first
	at     [][]tensor.Buffer // states, by parameter and slot
	words  [6]tensor.Buffer  // f64: rate, scale, powers of beta1 and beta2, steps made, steps skipped
	normAt tensor.Buffer     // f64
	wide   []float64         // destination of the norm
	fused  bool              // the steps are in the machine's programs
	last   *compiled         // with fused, the program that updated last; may be nil

	exec   *cudaexec.Exec // own program, if not fused
	normID program.ID
	skipID program.ID
	to     *cuda.Event // after the machine's run
	back   *cuda.Event // after the update
	bound  *compiled   // its gradients are bound
	grads  []program.ID
}

// newSolver returns a solver with the states of all parameters on the device.
func newSolver(m *Machine, c optim.Config) (*solver, error) {
	s := bareSolver(m, c)
	if err := s.allocate(m.device.alloc); err != nil {
		return s, err
	}
	return s, s.count(0)
}

// bareSolver returns a solver without memory.
func bareSolver(m *Machine, c optim.Config) *solver {
	s := &solver{m: m, cfg: c.WithDefaults(), scale: 1, norm: math.NaN(), wide: make([]float64, 1), normID: program.None}
	s.base, s.pieces = s.cfg.LearningRate, m.g.pieces(m.shapes)
	return s
}

// allocate allocates the states of all parameters with alloc, which returns zeroed memory.
func (s *solver) allocate(alloc func(dt tensor.DType, n int) (tensor.Buffer, error)) error {
	m := s.m
	block, err := alloc(tensor.F64, 2*(len(s.words)+1))
	if err != nil {
		return err
	}
	for i := range s.words { // at multiples of 16 bytes
		if s.words[i], err = block.Slice(2*i, 2*i+1); err != nil {
			return err
		}
	}
	if s.normAt, err = block.Slice(2*len(s.words), 2*len(s.words)+1); err != nil {
		return err
	}
	for i := range m.g.params {
		n := m.g.params[i].node
		dt, err := dtypeOf(n.Dtype())
		if err != nil || !dt.IsFloat() || dt.Size() < 4 {
			return fmt.Errorf("parameter %q: %w: it is %v", called(n), optim.ErrUnsupported, n.Dtype())
		}
		s.nodes = append(s.nodes, n)
		var slots []tensor.Buffer
		for range s.cfg.Slots() {
			if s.pieces[i].Len == 0 {
				slots = append(slots, tensor.Buffer{})
				continue
			}
			b, err := alloc(dt, s.pieces[i].Len)
			if err != nil {
				return fmt.Errorf("state of %q: %w", called(n), err)
			}
			slots = append(slots, b)
		}
		s.at = append(s.at, slots)
	}
	return m.g.differentiated()
}

// differentiated rejects a graph without gradients.
func (g *graph) differentiated() error {
	if len(g.params) == 0 {
		return fmt.Errorf("the graph has no gradients: %w: call gorgonia.Grad or ddp.Attach before New", optim.ErrNoGradient)
	}
	return nil
}

// count sets the number of steps made. No run may be in flight.
func (s *solver) count(steps int) error {
	s.steps = steps
	t := float64(steps)
	for i, x := range []float64{math.Pow(s.cfg.Beta1, t), math.Pow(s.cfg.Beta2, t), t} {
		if err := s.m.device.write(s.words[2+i], tensor.Of([]float64{x})); err != nil {
			return err
		}
	}
	return nil
}

// emit adds the update to a program. operands returns parameters and gradients.
func (s *solver) emit(l *lowering, operands func(i int) (weight, grad operand, err error)) error {
	u := &update{cfg: s.cfg, gradientZero: s.m.cfg.DualValues && !s.cfg.KeepGradients}
	for i, to := range []*program.ID{&u.rate, &u.scale, &u.pow1, &u.pow2, &u.count} {
		*to = l.outside([]string{"rate", "scale", "beta1^t", "beta2^t", "steps"}[i], program.State, s.words[i])
	}
	u.norm, u.skipped = program.None, program.None
	sharded := l.exchange != nil && l.exchange.shard != nil
	if u.cfg.Measures() {
		u.norm = l.outside("norm", program.Output, s.normAt)
	}
	if s.cfg.SkipNonFinite {
		u.skipped = l.outside("skipped steps", program.Output, s.words[5])
	}
	for i, n := range s.nodes {
		w, g, err := operands(i)
		if err != nil {
			return fmt.Errorf("update of %q: %w", called(n), err)
		}
		p := updated{name: n.Name(), node: n, whole: w.shape, weight: w, grad: g, at: -1}
		shape := slices.Clone(w.shape)
		if sharded {
			p.weight, p.grad = l.pieces(n, w, g, s.pieces[i])
			shape = []int{s.pieces[i].Len}
		}
		if p.weight.len() > 0 {
			for k, name := range s.cfg.Slots() {
				p.slots = append(p.slots, l.outside(n.Name()+" "+name, program.State, s.at[i][k], shape...))
			}
		}
		u.params = append(u.params, p)
	}
	l.normID = u.norm
	begin := len(l.p.Steps)
	if !sharded {
		return u.emit(l)
	}
	u.sum = func(o operand) { l.sumOver(l.exchange.layout.Group, o) }
	if err := u.emit(l); err != nil {
		return err
	}
	l.spread(u, begin, !u.cfg.Measures() && s.cfg.Name != optim.LAMB)
	return nil
}

// load loads the program of a solver that is not fused.
func (s *solver) load() error {
	m, d := s.m, s.m.device
	l := &lowering{
		lowered: lowered{p: &program.Program{Name: m.cfg.Name + " update", Clock: program.None}},
		g:       m.g, cfg: &m.cfg, numbers: map[numberKey]program.ID{},
	}
	err := s.emit(l, func(i int) (operand, operand, error) {
		n := s.nodes[i]
		dt, err := dtypeOf(n.Dtype())
		if err != nil {
			return operand{}, operand{}, err
		}
		shape := slices.Clone(m.shapes[n])
		st, err := d.param(n, dt, max(sizeOf(shape), 1), m.now.exchange)
		if err != nil {
			return operand{}, operand{}, err
		}
		w := l.whole(l.outside(n.Name(), program.Param, st.at, shape...))
		id := l.p.Add(program.Value{Name: "d " + n.Name(), DType: dt, Shape: shape, Role: program.Gradient, Place: program.Outside})
		s.grads = append(s.grads, id)
		return w, l.whole(id), nil
	})
	if err != nil {
		return err
	}
	for i := range s.grads {
		l.follow = append(l.follow, &s.grads[i])
	}
	if err := finishProgram(&l.lowered, &m.cfg, true); err != nil {
		return err
	}
	cfg, err := d.config(&m.cfg, nil)
	if err != nil {
		return err
	}
	r, err := cudaexec.New(l.p, cfg, program.Env{})
	if err != nil {
		return err
	}
	s.exec, _ = r.(*cudaexec.Exec)
	s.normID, s.skipID = l.normID, s.skippedIn(l.fixed)
	for _, f := range l.fixed {
		if err := r.Bind(f.id, f.at); err != nil {
			return err
		}
	}
	if s.to, err = d.dev.NewEvent(); err == nil {
		s.back, err = d.dev.NewEvent()
	}
	return err
}

// skippedIn returns the value of a program that counts skipped steps; None without one.
func (s *solver) skippedIn(values []fixed) program.ID {
	for _, f := range values {
		if f.at == s.words[5] {
			return f.id
		}
	}
	return program.None
}

// bind binds the gradients of program c to the update.
func (s *solver) bind(c *compiled) error {
	if s.bound == c {
		return nil
	}
	if s.bound != nil {
		if err := s.exec.Wait(); err != nil {
			return err
		}
	}
	for i := range s.nodes {
		at, err := c.gradientOf(i)
		if err == nil {
			err = s.exec.Bind(s.grads[i], at)
		}
		if err != nil {
			return fmt.Errorf("gradient of %q: %w", called(s.nodes[i]), err)
		}
	}
	s.bound = c
	return nil
}

// gradientOf returns the memory of the gradient of parameter i after a run.
func (c *compiled) gradientOf(i int) (tensor.Buffer, error) {
	for _, o := range c.duals {
		if o.param == i {
			return c.runner.Memory(o.id)
		}
	}
	for _, o := range c.outputs {
		if o.param != i && o.node != c.m.g.params[i].grad {
			continue
		}
		at, err := c.runner.Memory(o.id)
		if err == nil && o.slot {
			return at.Slice(o.offset, o.offset+max(sizeOf(o.shape), 1))
		}
		return at, err
	}
	return tensor.Buffer{}, fmt.Errorf("it is not computed: pass it to New as an output: %w", optim.ErrNoGradient)
}
