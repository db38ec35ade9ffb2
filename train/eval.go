package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/symgrad/symgrad/train/internal/exchange"
	"github.com/symgrad/symgrad/train/internal/report"
)

// evaluate counts the test samples that the model classifies correctly. Rank k mod n evaluates
// batch k. The batches are equal for any number of ranks, so equal parameters give equal counts,
// even with a BLAS whose rounding depends on the shape of a matrix.
//
// With optim.ema_decay it uses the moving averages of the weights.
//
// Collective: all ranks.
func (l *learner) evaluate(ctx context.Context, s *report.Summary) (err error) {
	tests := l.job.problem.Tests()
	if tests == nil {
		return nil
	}
	if l.rule.EMADecay > 0 {
		if err := l.swap(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.swap()) }()
	}
	m, vm, err := l.testGraph(tests.Rows())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vm.Close()) }()
	rows := tests.Rows()
	counts := []int64{0, 0, 0} // right, all, right among the first five
	for first := l.w.Rank() * rows; first < tests.Len(); first += l.w.Size() * rows {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		n := min(rows, tests.Len()-first)
		right, all, top5, err := answer(vm, m, tests, first, n)
		if err != nil {
			return fmt.Errorf("test samples %d to %d: %w", first, first+n-1, plain(err))
		}
		counts[0] += int64(right)
		counts[1] += int64(all)
		counts[2] += int64(top5)
	}
	if err := exchange.Sum(l.values, "test samples", counts); err != nil {
		return err
	}
	s.Tested(counts[0], counts[1])
	if _, ok := tests.(Top5Tests); ok {
		s.TestedTop5(counts[2])
	}
	return nil
}

// testGraph returns the model for tests, with the weights and rank 0's buffers, and its machine. A
// graph has one batch size, so tests need a second graph over the same weights.
//
// Collective: all ranks. Owns: the caller closes the machine.
func (l *learner) testGraph(rows int) (*Model, *vm, error) {
	weights, err := l.weights()
	if err != nil {
		return nil, nil, err
	}
	buffers, err := ofRank0(l.values, l.model.Buffers)
	if err != nil {
		return nil, nil, err
	}
	m, err := l.job.newModel(rows, weights)
	if err != nil {
		return nil, nil, err
	}
	if err := m.lend(elementsOf(buffers)); err != nil {
		return nil, nil, err
	}
	c := l.job.machineConfig("test")
	c.Eval = true
	if l.job.site.GPU {
		c.Share = l.vm.compiled // the weights on the GPU are shared
	}
	vm, err := l.job.newVM(c, m.Output)
	return m, vm, err
}

// answer returns how many of the answers for n samples from first on are right, their number, and
// the count of Top5Tests.
func answer(vm *vm, m *Model, tests Tests, first, n int) (right, all, top5 int, err error) {
	if err := tests.Fill(m, first, n); err != nil {
		return 0, 0, 0, err
	}
	defer vm.Reset()
	if err := vm.RunAll(); err != nil {
		return 0, 0, 0, err
	}
	right, all = tests.Count(m, first, n)
	if t, ok := tests.(Top5Tests); ok {
		top5 = t.CountTop5(m, first, n)
	}
	return right, all, top5, nil
}
