package ddp

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// localSGD averages weights instead of gradients, with Config.LocalSteps.
type localSGD struct {
	d       *DDP
	every   int     // Config.LocalSteps; 0: never
	steps   int     // of the solver, since the weights were averaged
	weight  float64 // of the runs since then that its steps used
	pending float64 // of the runs after its last step
}

// ran counts a run outside NoSync.
func (l *localSGD) ran(weight float64) {
	if l.every > 0 {
		l.pending += weight
	}
}

// afterStep is called by the solver after each step, also a skipped one. It averages the weights in
// every LocalSteps-th call.
//
// Collective: all ranks, same number of steps. Errors: those of AverageWeights.
func (l *localSGD) afterStep(skipped bool) error {
	if !skipped {
		l.weight += l.pending
	}
	l.pending = 0
	l.steps++
	if l.steps < l.every {
		return nil
	}
	return l.d.AverageWeights()
}

// average replaces weights by their mean. It leaves them, and does not round them, if no rank has
// trained since they were averaged. No run is in flight.
func (l *localSGD) average() error {
	if trained, err := l.share(); err != nil || !trained {
		return err
	}
	if l.d.team.onGPU() {
		return l.d.driver.averageOnGPU()
	}
	return l.averageValues(func(s *slot) (tensor.Buffer, error) { return valueMemory(s.param.Value()) })
}

// averageValues sums the weights that of returns, times the scales, over the ranks.
func (l *localSGD) averageValues(of func(s *slot) (tensor.Buffer, error)) error {
	d := l.d
	works := make([]dist.Work, len(d.slots))
	for i, s := range d.slots {
		b, err := of(s)
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

// share sets the scales to this rank's part. No operation that reads them is in flight.
//
// Returns: whether a rank has trained, or its solver stepped, since the weights were averaged.
func (l *localSGD) share() (trained bool, err error) {
	d := l.d
	own := l.weight + l.pending
	sum, err := l.sumOf(own)
	if err != nil {
		return false, err
	}
	if sum == 0 { // no samples count; a solver moves weights without them
		return l.steps > 0, l.setShare(1 / float64(d.team.Size()))
	}
	if err := checkSum(sum); err != nil {
		return false, err
	}
	return true, l.setShare(own / sum)
}

// sumOf returns the sum of a number over the ranks, in their order.
//
// Collective: all ranks.
func (l *localSGD) sumOf(own float64) (float64, error) {
	d := l.d
	if d.team.onGPU() {
		return d.driver.sumOnGPU(own)
	}
	sum := []float64{0}
	work, err := d.shares.weigh.sum(tensor.Of(sum), tensor.Of([]float64{own}))
	if err == nil {
		err = work.Wait()
	}
	return sum[0], err
}

// setShare writes the factor of the weights of this rank.
func (l *localSGD) setShare(share float64) error {
	if l.d.team.onGPU() {
		return l.d.driver.setShareOnGPU(share)
	}
	return l.d.mem.setShare(share)
}

// averaging is a solver that calls afterStep.
type averaging struct {
	optim.Solver
	local *localSGD
}

// solver returns s with the averages of LocalSteps, or s itself without LocalSteps.
func (l *localSGD) solver(s optim.Solver) optim.Solver {
	if l.every == 0 {
		return s
	}
	return &averaging{s, l}
}

// Step implements optim.Solver. It is collective in every LocalSteps-th call.
func (a *averaging) Step(model []gorgonia.ValueGrad) error {
	skipped := a.Skipped()
	if err := a.Solver.Step(model); err != nil {
		return err
	}
	return a.local.afterStep(a.Skipped() > skipped)
}
