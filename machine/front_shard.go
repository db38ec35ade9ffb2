package machine

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

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
	if len(m.g.params) > 0 {
		if d := ownerOf(m.g.params[0].node.Graph()); d != nil {
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

// checkSharded rejects DualValues with sharded parameters.
func (l *lowering) checkSharded() error {
	if !l.cfg.DualValues {
		return nil
	}
	if l.exchange != nil && l.exchange.shard != nil {
		return fmt.Errorf("%w: DualValues cannot accumulate sharded gradients; accumulate inside ddp's NoSync", dist.ErrUnsupported)
	}
	for _, p := range l.g.params {
		if l.isSharded(p.node) {
			return fmt.Errorf("parameter %q: %w: DualValues cannot accumulate its sharded gradient; accumulate inside ddp's NoSync",
				p.node.Name(), dist.ErrUnsupported)
		}
	}
	return nil
}

// isSharded reports whether a node is a learnable whose value is sharded over ranks. Only its hook
// reads it.
func (l *lowering) isSharded(n *gorgonia.Node) bool {
	if n.Op() != nil || n.Graph() == nil {
		return false
	}
	if l.sharded == nil {
		l.sharded = ddp.Sharded(n.Graph())
	}
	return l.sharded.Contains(n)
}

// gatheredPart returns the operand of a node that Stage 3 of ddp has put into the graph: a view of
// a gathered bucket.
func (l *lowering) gatheredPart(c *current) (o operand, ok bool, err error) {
	at, isPart, same := ddp.PartOf(c.n)
	switch {
	case same:
		return c.in[0], true, nil
	case !isPart:
		return o, false, nil
	case len(c.in) < 2 || c.in[1].isNum:
		return o, true, fmt.Errorf("the bucket has not been gathered: %w", ops.ErrNotAttached)
	}
	flat := cut(c.in[1], 0, at.Offset, 1, sizeOf(at.Shape))
	return l.reshape(flat, at.Shape), true, nil
}

// isFetch reports whether a collective gathers a shard of parameters for Stage 3, for which all
// ranks have compared their graphs.
func isFetch(c *current) bool {
	if len(c.kids) == 0 {
		return false
	}
	kids := ops.Children(c.kids[0])
	return len(kids) == 1 && ddp.IsShard(kids[0])
}

// startStaged passes a gradient from the arena to a reducer that gives no memory for it.
func (l *lowering) startStaged(h *hook, g operand) {
	from := l.wholeOf(l.reshape(g, h.shape))
	l.call(&call{label: "start " + h.hook.Param().Name(), start: h}, []program.View{from.view}, nil)
}

// stager is a reducer that may copy gradients in every run.
type stager interface {
	Staged() bool
	StartFrom(grad tensor.Buffer) error
}

func isStaged(r ops.Reducer) bool {
	s, ok := r.(stager)
	return ok && s.Staged()
}
