package machine

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/lower"
)

// makeSolver makes the solver of Config.Solver, and finds the DDP that exchanges the gradients.
func (m *Machine) makeSolver(g *gorgonia.ExprGraph) error {
	if m.device != nil {
		if m.ddp = ownerOf(g); m.ddp != nil {
			m.alone = m.ddp.Await(func() error { return butNonFinite(m.updated()) })
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
	m.device.copies = false
	return nil
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
