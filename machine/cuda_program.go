package machine

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/cudaexec"
	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/optim"
)

// finishProgram optimizes the program of a graph for a GPU or the host and plans its memory.
func finishProgram(l *lowered, cfg *Config, onGPU bool) error {
	l.p.Rows, l.p.Again, l.p.Aside = onGPU, onGPU, onGPU && cudaexec.Aside(l.p, l.groups)
	if onGPU && cfg.Compute == cudaexec.BF16.String() {
		l.p.Narrow = program.NarrowFrom
	}
	var err error
	if cfg.NoOptimize {
		err = program.Pack(l.p)
	} else {
		err = program.Optimize(l.p)
	}
	if err != nil {
		return err
	}
	l.removeUnusedValues()
	return program.Plan(l.p)
}

// makeSolver makes the solver of Config.Solver, and finds the DDP that exchanges the gradients.
func (m *Machine) makeSolver(g *gorgonia.ExprGraph) error {
	if m.device != nil {
		if m.g.owner = ownerOf(g); m.g.owner != nil {
			m.alone = m.g.owner.Machine().Await(func() error { return butNonFinite(m.updated()) })
		}
	} else {
		m.sharded = shardedOwner(g)
	}
	if m.cfg.Solver == nil {
		return needsSolver(m.g, &m.cfg)
	}
	if m.device == nil {
		if err := m.g.differentiated(); err != nil {
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
	s.fused, m.g.solve, m.device.copies = true, s, false
	return nil
}

// within adds the update to a program of the graph.
func (s *solver) within(l *lowering) error {
	return s.emit(l, func(i int) (operand, operand, error) {
		p := s.m.g.params[i]
		w, ok := l.values[p.node]
		g, there := l.values[p.grad]
		if !ok || !there {
			return w, g, fmt.Errorf("its gradient is not computed: %w", optim.ErrNoGradient)
		}
		for _, d := range l.duals {
			if d.param == i && (l.exchange == nil || l.exchange.shard == nil) {
				g = l.whole(d.id)
			}
		}
		if g.isNum && !l.exchange.staged() {
			g = l.stored(g)
		}
		return w, l.reshapeTo(g, w.shape), nil
	})
}

// reshapeTo reshapes a gradient, whose shape may differ from its parameter's in dimensions of 1.
func (l *lowering) reshapeTo(o operand, shape []int) operand {
	if o.len() != sizeOf(shape) {
		return o
	}
	return l.reshape(o, shape)
}

// updateOnHost makes the update of Config.Solver on the CPU.
func (m *Machine) updateOnHost() error {
	if m.host == nil {
		return nil
	}
	return m.host.Step(m.hostModel())
}
