package train

import (
	"context"
	"errors"
	"fmt"
	"math"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/train/internal/exchange"
)

// tester evaluates the model on the test set. A graph has one batch size, so tests need a second
// graph over the same weights.
type tester struct {
	tests Tests
	loss  bool // the tests have a loss
	model *Model
	vm    *vm
}

// tested is the result of an evaluation.
type tested struct {
	right, all int64   // test answers; all is 0 if nothing was evaluated
	loss       float64 // mean of the samples; NaN if the tests have none
}

// accuracy returns the share of right answers.
func (r tested) accuracy() float64 { return float64(r.right) / float64(r.all) }

// newTester builds the graph for the test set, over the given weights.
func (l *learner) newTester(tests Tests) (*tester, error) {
	weights, err := l.weights()
	if err != nil {
		return nil, err
	}
	t := &tester{tests: tests}
	if with, ok := tests.(LossTests); ok {
		t.loss = with.HasLoss()
	}
	if t.model, err = l.job.newModel(tests.Rows(), weights); err != nil {
		return nil, err
	}
	c := l.job.machineConfig("test")
	c.Eval = true
	if l.job.site.GPU {
		c.Share = l.vm.compiled // the weights on the GPU are shared
	}
	outputs := gorgonia.Nodes{t.model.Output}
	if t.loss {
		outputs = append(outputs, t.model.Cost)
	}
	t.vm, err = l.job.newVM(c, outputs...)
	return t, err
}

// evaluate measures the model on the test set: the answers that are right, and the mean loss. Rank
// k mod n evaluates batch k. The batches are equal for any number of ranks, so equal parameters
// give equal counts, even with a BLAS whose rounding depends on the shape of a matrix.
//
// With optim.ema_decay it uses the moving averages of the weights.
//
// Collective: all ranks, between steps, after whole.
func (l *learner) evaluate(ctx context.Context) (r tested, err error) {
	tests := l.job.problem.Tests()
	if tests == nil {
		return r, nil
	}
	if l.rule.EMADecay > 0 {
		if err := l.swap(); err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, l.swap()) }()
	}
	if l.tester == nil {
		l.tester, err = l.newTester(tests)
	} else if l.job.site.GPU { // its weights are those on the device
	} else if weights, errWeights := l.weights(); errWeights != nil {
		err = errWeights
	} else {
		err = lend(l.tester.model, weights) // sharded ones may have new memory
	}
	if err != nil {
		return r, err
	}
	rows := tests.Rows()
	counts, loss := []int64{0, 0}, []float64{0} // right, all
	for first := l.w.Rank() * rows; first < tests.Len(); first += l.w.Size() * rows {
		if cause := context.Cause(ctx); cause != nil {
			return r, cause
		}
		n := min(rows, tests.Len()-first)
		right, all, mean, err := l.tester.answer(first, n)
		if err != nil {
			return r, fmt.Errorf("test samples %d to %d: %w", first, first+n-1, plain(err))
		}
		counts[0] += int64(right)
		counts[1] += int64(all)
		loss[0] += mean * float64(n)
	}
	if err := exchange.Sum(l.values, "test samples", counts); err != nil {
		return r, err
	}
	if err := exchange.Sum(l.values, "test loss", loss); err != nil {
		return r, err
	}
	r = tested{right: counts[0], all: counts[1], loss: math.NaN()}
	if l.tester.loss {
		r.loss = loss[0] / float64(tests.Len())
	}
	return r, nil
}

// answer returns how many of the answers for n samples from first on are right, their number, and
// the mean loss of the samples, 0 if the tests have none.
func (t *tester) answer(first, n int) (right, all int, loss float64, err error) {
	if err := t.tests.Fill(t.model, first, n); err != nil {
		return 0, 0, 0, err
	}
	defer t.vm.Reset()
	if err := t.vm.RunAll(); err != nil {
		return 0, 0, 0, err
	}
	right, all = t.tests.Count(t.model, first, n)
	if t.loss {
		loss, err = t.vm.scalar(t.model.Cost)
	}
	return right, all, loss, err
}

// close frees the graph's machine. Idempotent.
func (t *tester) close() error {
	if t == nil || t.vm == nil {
		return nil
	}
	return t.vm.Close()
}
