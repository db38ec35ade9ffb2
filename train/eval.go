package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/train/internal/exchange"
)

// evaluate counts the test samples that the model classifies correctly. Rank k mod n evaluates
// batch k. The batches are equal for any number of ranks, so equal parameters give equal counts,
// even with a BLAS whose rounding depends on the shape of a matrix.
//
// With optim.ema_decay it uses the moving averages of the weights.
//
// Collective: all ranks.
func (t *trainer) evaluate(ctx context.Context, s *Summary) (err error) {
	tests := t.job.problem.Tests()
	if tests == nil {
		return nil
	}
	if t.rule.EMADecay > 0 {
		if err := t.swap(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, t.swap()) }()
	}
	weights, err := t.weights()
	if err != nil {
		return err
	}
	// A graph has one batch size, so tests need a second graph over the same weights.
	rows := tests.Rows()
	m, err := t.job.problem.New(rows, weights)
	if err != nil {
		return err
	}
	c := t.job.machineConfig("test")
	c.Eval = true
	if t.job.site.GPU {
		c.Share = t.vm.compiled // the weights on the GPU are shared
	}
	vm, err := t.job.newVM(c, m.Output)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vm.Close()) }()
	counts := []int64{0, 0} // right, all
	for first := t.w.Rank() * rows; first < tests.Len(); first += t.w.Size() * rows {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		n := min(rows, tests.Len()-first)
		right, all, err := answer(vm, m, tests, first, n)
		if err != nil {
			return fmt.Errorf("test samples %d to %d: %w", first, first+n-1, plain(err))
		}
		counts[0] += int64(right)
		counts[1] += int64(all)
	}
	if err := exchange.Sum(t.exchanger, "test samples", counts); err != nil {
		return err
	}
	s.tested(counts[0], counts[1])
	return nil
}

// swap exchanges the weights and their moving averages.
//
// Collective: all ranks.
func (t *trainer) swap() error {
	if err := t.solver.SwapAverages(t.d.Model()); err != nil {
		return err
	}
	return t.whole()
}

// answer returns how many of the answers for n samples from first on are right, and their number.
func answer(vm *vm, m *Model, tests Tests, first, n int) (right, all int, err error) {
	if err := tests.Fill(m, first, n); err != nil {
		return 0, 0, err
	}
	defer vm.Reset()
	if err := vm.RunAll(); err != nil {
		return 0, 0, err
	}
	right, all = tests.Count(m, first, n)
	return right, all, nil
}

// Argmax returns the index of the largest element, the first one if several are equal.
func Argmax(v []float32) int {
	best := 0
	for i := range v {
		if v[i] > v[best] {
			best = i
		}
	}
	return best
}
