package machine

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/lower"
	"github.com/symgrad/symgrad/optim"
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
// With LocalSteps of ddp the weights are averaged on the GPUs after every LocalSteps-th update. The
// host waits for that, and with SkipNonFinite for every update.
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
		return nil, fmt.Errorf("machine %s: %w, by %v", m.cfg.Name, ErrSolver, m.solve.Config)
	}
	s, err := newSolver(m, c)
	if err == nil {
		s.alone, err = newOwnUpdate(m, s.Update)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("machine %s: solver: %w", m.cfg.Name, err), s.close())
	}
	m.solve = s
	m.keep()
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
	model := make([]gorgonia.ValueGrad, len(m.g.Params))
	for i, p := range m.g.Params {
		model[i] = p.Node
	}
	return model
}

// shardedOwner returns the DDP of a graph on the host if it shards at least the solver's state;
// else nil.
func shardedOwner(g *gorgonia.ExprGraph) *ddp.DDP {
	if d := ownerOf(g); d != nil && d.Plan().Stage > 0 {
		return d
	}
	return nil
}

// hostSolver returns a solver for parameters in host memory. If the graph has a DDP, it is the
// DDP's, which shards or averages them.
func (m *Machine) hostSolver(c optim.Config) (optim.Solver, error) {
	if len(m.g.Params) > 0 {
		if d := ownerOf(m.g.Params[0].Node.Graph()); d != nil {
			s, err := d.NewSolver(c)
			if err != nil || m.cfg.Solver == nil {
				return s, err
			}
			return outside{s, d}, nil
		}
	}
	return optim.New(c)
}

// outside is a solver whose steps RunAll makes. It makes none after runs inside ddp's NoSync, which
// have no reduced gradients yet.
type outside struct {
	optim.Solver
	d *ddp.DDP
}

// Step implements optim.Solver.
func (o outside) Step(model []gorgonia.ValueGrad) error {
	run, err := o.d.Machine().Next()
	if err != nil || run.Local {
		return err
	}
	return o.Solver.Step(model)
}

// makeSolver makes the solver of Config.Solver, and finds the DDP that exchanges the gradients.
func (m *Machine) makeSolver(g *gorgonia.ExprGraph) error {
	if m.device != nil {
		if m.ddp = ownerOf(g); m.ddp != nil {
			m.alone = m.ddp.Machine().Await(func() error { return butNonFinite(m.updated()) })
		}
	} else {
		m.sharded = shardedOwner(g)
	}
	if m.cfg.Solver == nil {
		return needsSolver(m.ddp, m.g)
	}
	if m.device == nil {
		if err := m.g.CheckGradients(); err != nil {
			return fmt.Errorf("solver: %w", err)
		}
		var err error
		m.host, err = m.hostSolver(*m.cfg.Solver)
		return err
	}
	s, err := newSolver(m, *m.cfg.Solver)
	m.solve = s
	if err != nil {
		return fmt.Errorf("solver: %w", err)
	}
	m.keep()
	return nil
}

// keep keeps the parameters on the device, since a solver updates them there.
func (m *Machine) keep() {
	m.device.copies = false
	if m.ddp != nil {
		m.ddp.Machine().Keep()
	}
}

// updateOnHost makes the update of Config.Solver on the CPU.
func (m *Machine) updateOnHost() error {
	if m.host == nil {
		return nil
	}
	return m.host.Step(m.hostModel())
}

// needsSolver rejects a graph that d shards, without Config.Solver: its gradients exist only inside
// a run.
func needsSolver(d *ddp.DDP, g *lower.Parts) error {
	if d == nil || len(g.Params) == 0 || d.Plan().Stage == 0 {
		return nil
	}
	return fmt.Errorf("%w: with Stage %d of ddp the update of a GPU's pieces is a part of the run: set Solver in the machine's config",
		ErrSolver, d.Plan().Stage)
}
