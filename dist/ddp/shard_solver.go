package ddp

import (
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// shardSolver is the solver of a rank's own pieces.
type shardSolver struct {
	optim.PieceSolver
	d     *DDP
	norm  *dist.Group // names the sums over ranks
	works []dist.Work // of the buckets' gathers
	runs  int         // d.counts.runs when duals were zeroed last
	keeps bool        // optim.Config.KeepGradients
	slots int         // numbers of state for each element
}

// newSharded makes the solver and compares settings and errors over the ranks.
func newSharded(d *DDP, c optim.Config) (*shardSolver, error) {
	err := c.Validate()
	if d.solver != nil {
		err = fmt.Errorf("%w: there is one already; a sharded DDP has one solver", dist.ErrInvalid)
	}
	s := &shardSolver{
		d: d, norm: d.team.named("sums of the solver"), works: make([]dist.Work, len(d.buckets)), runs: d.counts.runs,
		keeps: c.KeepGradients, slots: len(c.Slots()),
	}
	if err == nil {
		err = s.makePieces(c)
	}
	equal := fields(c)
	equal.Workers = 0 // changes no bits
	return s, agree(d.team, []string{fmt.Sprintf("optimizer: %+v", equal)}, err)
}

// fields is an optim.Config that prints field by field.
type fields optim.Config

func (s *shardSolver) makePieces(c optim.Config) error {
	d := s.d
	params := make([]optim.ParamShape, len(d.plan.Params))
	for i, q := range d.plan.Params {
		dt, err := q.DType.Gorgonia()
		if err != nil {
			return err
		}
		params[i] = optim.ParamShape{Name: q.Name, Shape: slices.Clone(q.Shape), DType: dt}
	}
	var pieces []optim.Piece
	for _, own := range d.Pieces() {
		piece, err := s.piece(own)
		if err != nil {
			return fmt.Errorf("parameter %q: %w", d.plan.Params[own.Param].Name, err)
		}
		pieces = append(pieces, piece)
	}
	var sum func([]float64) error
	if d.team.Size() > 1 {
		sum = s.sum
	}
	var err error
	s.PieceSolver, err = optim.NewPieces(c, params, pieces, sum)
	return err
}

// piece returns the memory of a piece's weights and gradients.
func (s *shardSolver) piece(own Piece) (optim.Piece, error) {
	d := s.d
	q := d.plan.Params[own.Param]
	b := d.buckets[q.Bucket]
	lo := q.Offset + own.Offset - d.team.Rank()*b.shard
	weight, err := b.mine.Slice(lo, lo+own.Len)
	if err != nil {
		return optim.Piece{}, err
	}
	grad, err := b.owned.Slice(lo, lo+own.Len)
	return optim.Piece{Name: q.Name, Shape: slices.Clone(q.Shape), Offset: own.Offset, Weight: weight, Grad: grad}, err
}

// sum adds x over the ranks, in rank order.
func (s *shardSolver) sum(x []float64) error {
	b := tensor.Of(x)
	work, err := s.norm.AllReduce(b, b, dist.Sum)
	if err == nil {
		from := s.d.team.now()
		err = work.Wait()
		s.d.clock.block(s.d.team.now() - from)
	}
	return err
}

// Step implements optim.Solver.
func (s *shardSolver) Step(model []gorgonia.ValueGrad) error {
	number := s.Steps() + 1
	if err := s.step(model); err != nil {
		d := s.d
		return fmt.Errorf("ddp solver step %d rank %d/%d: %w", number, d.team.Rank(), d.team.Size(), err)
	}
	return nil
}

func (s *shardSolver) step(model []gorgonia.ValueGrad) error {
	d := s.d
	if err := s.check(model); err != nil {
		return err
	}
	for _, b := range d.buckets {
		if err := b.work.Wait(); err != nil {
			return fmt.Errorf("%w: %w", optim.ErrNoGradient, err)
		}
	}
	if !d.run.counted {
		return fmt.Errorf("no run of the graph has reduced its gradients, or the last was inside NoSync or failed: %w", optim.ErrNoGradient)
	}
	if err := s.duals(); err != nil {
		return err
	}
	if err := d.rehome(); err != nil {
		return err
	}
	skipped := s.Skipped()
	err := s.PieceSolver.Step()
	if err != nil || s.Skipped() > skipped { // on all ranks
		d.wire.undo()
	}
	if err != nil {
		return err
	}
	return s.gather()
}

// check rejects a model that is not the DDP's, and a DDP without memory.
func (s *shardSolver) check(model []gorgonia.ValueGrad) error {
	d := s.d
	if err := d.ready(); err != nil {
		return err
	}
	if err := d.team.open(); err != nil {
		return err
	}
	if len(model) != len(d.slots) {
		return fmt.Errorf("the model has %d parameters and the buckets %d: %w; pass the result of Model to Step", len(model), len(d.slots), optim.ErrMismatch)
	}
	for i, p := range model {
		if n, ok := p.(*gorgonia.Node); !ok || n != d.slots[i].param {
			return fmt.Errorf("parameter %d is not %q, which the buckets have there: %w; pass the result of Model to Step", i, d.slots[i].param.Name(), optim.ErrMismatch)
		}
	}
	return nil
}

// duals zeroes the sums of gorgonia.BindDualValues, which are separate from the reduced gradients,
// as solvers do.
//
// Errors: dist.ErrUnsupported for a sum of several runs, since buckets have only the last, and if
// gradients are to be kept, which would make such sums.
func (s *shardSolver) duals() error {
	runs := s.d.counts.runs - s.runs
	for _, t := range s.d.slots {
		v, err := t.param.Grad()
		if err != nil || v == t.wait.Value() {
			continue
		}
		if s.keeps {
			return fmt.Errorf("gradient of %q: %w: BindDualValues sums the gradients that KeepGradients keeps, and sharded gradients are those of the last run; leave one of them out",
				t.param.Name(), dist.ErrUnsupported)
		}
		if runs > 1 {
			return fmt.Errorf("gradient of %q: %w: BindDualValues has added up %d runs, and sharded gradients are those of the last; accumulate inside NoSync",
				t.param.Name(), dist.ErrUnsupported, runs)
		}
		b, err := valueMemory(v)
		if err != nil {
			return fmt.Errorf("gradient of %q: %w", t.param.Name(), err)
		}
		clear(b.Raw())
	}
	s.runs = s.d.counts.runs
	return nil
}

// gather gives every rank all weights, in place, and waits, so that they may be read.
func (s *shardSolver) gather() error {
	d := s.d
	if d.plan.gathers() {
		return nil // the next run does
	}
	if err := queueGathers(d.buckets, s.works); err != nil {
		return err
	}
	from := d.team.now()
	err := waitAll(s.works, nil)
	now := d.team.now()
	d.clock.block(now - from)
	d.clock.end(now)
	return err
}

// queueGathers queues an allgather of every bucket of weights, in place.
func queueGathers(buckets []*bucket, works []dist.Work) (err error) {
	for i, b := range buckets {
		if works[i], err = b.gather.AllGather(b.weights, b.mine); err != nil {
			return waitAll(works[:i], err)
		}
	}
	return nil
}

// waitAll waits for all works, also after an error, since their memory may be freed then. It joins
// their errors to err.
func waitAll[W interface{ Wait() error }](works []W, err error) error {
	for _, w := range works {
		err = errors.Join(err, w.Wait())
	}
	return err
}

// SwapAverages exchanges the weights with their moving averages, on all ranks.
func (s *shardSolver) SwapAverages(model []gorgonia.ValueGrad) error {
	err := s.check(model)
	if err == nil {
		err = s.d.rehome()
	}
	if err == nil {
		err = s.PieceSolver.SwapAverages()
	}
	if err == nil {
		err = s.gather()
	}
	if err != nil {
		return fmt.Errorf("ddp solver averages rank %d/%d: %w", s.d.team.Rank(), s.d.team.Size(), err)
	}
	return nil
}

// stateBytes returns the size of the solver's state without copying it, as State would.
func (s *shardSolver) stateBytes() int64 {
	n := int64(0)
	for _, own := range s.d.Pieces() {
		n += int64(own.Len) * int64(s.d.plan.Params[own.Param].DType.Size())
	}
	return n * int64(s.slots)
}
