package train

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/settings"
	"github.com/symgrad/symgrad/internal/tool/cli"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/train/internal/exchange"
	"github.com/symgrad/symgrad/train/internal/timeline"
)

// learner is one rank's model with the objects that train it.
type learner struct {
	job    *job // the problem, its settings and the flags
	w      *dist.World
	values *exchange.Values // small collectives on host values
	spans  *timeline.Spans  // the timeline of this rank

	rows   int          // of the graph's batch
	model  *Model       // graph, cost and parameters
	scaled *scaled      // factor of the loss; nil without loss scaling
	d      *ddp.DDP     // exchange of gradients
	vm     *vm          // runs the graph
	rule   optim.Config // the solver's settings
	solver optim.Solver // updates the weights
	inputs inputs       // fills the inputs of the model
	tester *tester      // nil before the first evaluation
}

// build does the setup that every program of this library needs: model, ddp.Attach instead of
// gorgonia.Grad, machine, solver. values may replace the initial values of the parameters.
func (l *learner) build(values func(gorgonia.Nodes) error) error {
	cfg := l.job.cfg
	exchange, err := settings.Exchange(cfg)
	if err != nil {
		return err
	}
	share := ceilDiv(cfg.Data.GlobalBatch, l.w.Size()) // the largest part of a batch that a rank has
	if l.rows = ceilDiv(share, cfg.Data.AccumSteps); exchange.VirtualRanks > 0 {
		l.rows = ceilDiv(cfg.Data.GlobalBatch, exchange.VirtualRanks)
	}
	if l.model, err = l.job.newModel(l.rows, nil); err != nil {
		return err
	}
	m := l.model
	if err := checkNames(cfg.Optim, m.Params); err != nil {
		return err
	}
	if err := values(m.Params); err != nil { // before Attach, which broadcasts the values and moves them to their final memory
		return err
	}
	cost, scaled, err := newScaled(cfg.Optim, m.Cost)
	if err != nil {
		return err
	}
	l.scaled = scaled
	if l.d, err = ddp.Attach(l.w, cost, m.Params, exchange); err != nil {
		return err
	}
	c := l.job.machineConfig(cfg.Model.Name)
	if l.job.site.GPU {
		c.Solver, c.KeepInputs = &l.rule, l.job.timing.kept // the update is the last part of each run's graph
	}
	if l.vm, err = l.job.newVM(c, append(gorgonia.Nodes{m.Cost}, l.d.Grads()...)...); err != nil {
		return err
	}
	l.solver, err = l.newSolver()
	return err
}

// newSolver returns the solver: on a GPU the machine's, else the one of ddp, which handles sharded
// weights and states.
func (l *learner) newSolver() (optim.Solver, error) {
	if l.job.site.GPU {
		return l.vm.compiled.NewSolver(l.rule)
	}
	return l.d.NewSolver(l.rule)
}

// close frees the learner. Idempotent.
func (l *learner) close() error {
	l.inputs.close()
	if err := l.tester.close(); err != nil { // it may share the weights of vm, which closes last
		return err
	}
	if l.vm != nil {
		if err := l.vm.Close(); err != nil { // the last run may still use the rest
			return err
		}
	}
	if l.d != nil {
		return l.d.Close()
	}
	return nil
}

// checkHeap compares comm.heap_mb with the need of the buckets.
func (l *learner) checkHeap() error {
	room := l.d.Plan().Room(l.job.site.GPU)
	limit, need := l.job.cfg.Comm.HeapBytes(), room.Grads+room.Params+room.Staging+room.Scalars
	if limit > 0 && need > limit {
		return cli.Usage("comm.heap_mb: the buckets need %d B of the symmetric heap, more than its %d B; set it to 0, which reserves as much as needed", need, limit)
	}
	return nil
}

// planHash identifies the layout of parameters in buckets.
func (l *learner) planHash() string {
	sum := sha256.Sum256([]byte(l.d.String()))
	return hex.EncodeToString(sum[:])
}

// parameters returns the number of elements of all parameters.
func (l *learner) parameters() int {
	n := 0
	for _, p := range l.model.Params {
		n += p.Shape().TotalSize()
	}
	return n
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

// building is held while a program builds a graph: Gorgonia has counters without locks, and ranks
// may be goroutines.
var building sync.Mutex

// newModel returns the program's model for so many rows. With weights, the values of its parameters
// are new tensors over their memory.
func (j *job) newModel(rows int, weights []*gtensor.Dense) (*Model, error) {
	building.Lock()
	defer building.Unlock()
	m, err := j.problem.New(rows, weights)
	if err == nil && len(m.Params) == 0 {
		err = errors.New("the problem's model has no parameters: its New must set Params")
	}
	if err == nil {
		m.rows = rows
	}
	if err != nil || weights == nil {
		return m, err
	}
	return m, lend(m, weights)
}

// lend makes the values of m's parameters new tensors over the memory of weights.
func lend(m *Model, weights []*gtensor.Dense) error {
	if len(m.Params) != len(weights) {
		return fmt.Errorf("the model has %d parameters, that for training %d: Problem.New must return the same ones for any number of rows", len(m.Params), len(weights))
	}
	for i, w := range weights {
		if err := gorgonia.Let(m.Params[i], gtensor.New(gtensor.WithShape(w.Shape()...), gtensor.WithBacking(w.Float32s()))); err != nil {
			return fmt.Errorf("parameter %s of a second model: %w", m.Params[i].Name(), err)
		}
	}
	return nil
}
