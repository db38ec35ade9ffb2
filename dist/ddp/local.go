package ddp

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// localSGD is the state of Config.LocalSteps.
type localSGD struct {
	steps  int     // of the solver, since the weights were averaged
	weight float64 // of the runs since then, except failed and skipped ones
	before float64 // weight, at the last step of the solver
}

// afterStep is called by the solver after each step, also a skipped one. With LocalSteps it
// averages the weights in every LocalSteps-th call.
//
// Collective: all ranks, same number of steps. Errors: those of AverageWeights.
func (d *DDP) afterStep(skipped bool) error {
	if d.cfg.LocalSteps == 0 {
		return nil
	}
	if skipped {
		d.local.weight = d.local.before
	}
	d.local.before = d.local.weight
	d.local.steps++
	if d.local.steps < d.cfg.LocalSteps {
		return nil
	}
	return d.AverageWeights()
}

// AverageWeights replaces the trained parameters, on every rank, by their weighted mean over the
// ranks. A rank's weight is the sum of its weights (SetWeight) in all runs since the last call,
// without steps that NewSolver's solver skipped. So without SetWeight and skipped steps it is the
// plain mean. With LocalSteps that solver calls it every LocalSteps steps; call it before a
// checkpoint and at the end too. Without LocalSteps it does nothing, since ranks have equal
// parameters.
//
// Collective: all ranks, between runs. Errors: those of the group, after which parameters may
// differ; dist.ErrClosed.
func (d *DDP) AverageWeights() error {
	if d.cfg.LocalSteps == 0 {
		return nil
	}
	if err := d.ready(); err != nil {
		return fmt.Errorf("ddp average: %w", err)
	}
	d.settle()
	if err := d.averageWeights(); err != nil {
		return fmt.Errorf("ddp average of weights rank %d/%d after step %d: %w", d.team.Rank(), d.team.Size(), d.step, err)
	}
	d.local = localSGD{}
	return nil
}

func (d *DDP) averageWeights() error {
	if err := d.shareOfWeights(); err != nil {
		return err
	}
	works := make([]dist.Work, len(d.slots))
	for i, s := range d.slots {
		b, err := valueMemory(s.param.Value())
		if err != nil {
			return waitAll(works[:i], fmt.Errorf("parameter %q: %w", s.param.Name(), err))
		}
		scale := d.mem.scales[typeIndex(b.DType())]
		if works[i], err = d.team.named(s.param.Name()).AllReduce(b, b, dist.PreMulSumAt(scale)); err != nil {
			return waitAll(works[:i], err)
		}
	}
	return waitAll(works, nil)
}

// shareOfWeights sets the scales to this rank's part. No operation that reads them is in flight.
func (d *DDP) shareOfWeights() error {
	in := []float64{d.local.weight}
	sum := []float64{0}
	work, err := d.weigh.sum(tensor.Of(sum), tensor.Of(in))
	if err == nil {
		err = work.Wait()
	}
	if err != nil {
		return err
	}
	if sum[0] == 0 {
		return d.mem.setShare(1 / float64(d.team.Size())) // no rank has trained
	}
	if err := checkSum(sum[0]); err != nil {
		return err
	}
	return d.mem.setShare(in[0] / sum[0])
}

// averaging is a solver that calls afterStep.
type averaging struct {
	optim.Solver
	d *DDP
}

// averaged returns s with the averages of LocalSteps, or s itself without LocalSteps.
func (d *DDP) averaged(s optim.Solver) optim.Solver {
	if d.cfg.LocalSteps == 0 {
		return s
	}
	return &averaging{s, d}
}

// Step implements optim.Solver. It is collective in every LocalSteps-th call.
func (a *averaging) Step(model []gorgonia.ValueGrad) error {
	skipped := a.Skipped()
	if err := a.Solver.Step(model); err != nil {
		return err
	}
	return a.d.afterStep(a.Skipped() > skipped)
}
