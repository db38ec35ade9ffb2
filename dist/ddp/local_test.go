package ddp_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/optim"
)

// aloneFor is the weights after some steps of plain SGD by gorgonia and optim alone, from start on,
// on one rank's parts.
func aloneFor(w *dist.World, dt gtensor.Dtype, start []float64, parts [][]int) ([]float64, error) {
	l, err := newLearner(w, mlp, dt, len(parts[0]), ddp.Config{LocalSteps: 1 << 30}, optim.Config{Name: optim.SGD, LearningRate: 0.1})
	if err != nil {
		return nil, err
	}
	if start != nil {
		if err := setWeights(l, start); err != nil {
			return nil, err
		}
	}
	for _, part := range parts {
		if err := errors.Join(l.run(part, float64(len(part))), l.step()); err != nil {
			return nil, err
		}
	}
	end, err := l.weights()
	return end, errors.Join(err, l.close())
}

// setWeights puts numbers into the parameters, one after the other.
func setWeights(l *learner, from []float64) error {
	for _, p := range l.m.params {
		switch v := p.Value().Data().(type) {
		case []float64:
			copy(v, from)
			from = from[len(v):]
		case []float32:
			for i := range v {
				v[i] = float32(from[i])
			}
			from = from[len(v):]
		}
	}
	return nil
}

// mean is the weighted mean of the ranks' numbers, as it is defined: products rounded, then added
// in rank order.
func mean(dt gtensor.Dtype, all [][]float64, weights []float64) []float64 {
	total := 0.0
	for _, x := range weights {
		total += x
	}
	out := make([]float64, len(all[0]))
	for r, v := range all {
		for i, x := range v {
			p := shareOracle(dt, weights[r]/total, x)
			switch {
			case r == 0:
				out[i] = p
			case dt == gtensor.Float32:
				out[i] = float64(float32(out[i]) + float32(p))
			default:
				out[i] += p
			}
		}
	}
	return out
}

// partsFrom returns a rank's samples of three steps; rank r has r+1 samples in each.
func partsFrom(step, rank int) [][]int {
	var all [][]int
	for i := range 3 {
		lo := 100*(step+i) + 10*rank
		all = append(all, indices(lo, lo+1+rank))
	}
	return all
}

// localRound makes three steps and then averages the weights.
func (l *learner) localRound(w *dist.World, dt gtensor.Dtype, step int) error {
	start, err := l.weights()
	if err != nil {
		return err
	}
	ends, seen := make([][]float64, w.Size()), make([]float64, w.Size())
	for r := range ends {
		seen[r] = float64(1 + r)
		if ends[r], err = aloneFor(w, dt, start, partsFrom(step, r)); err != nil {
			return err
		}
	}
	parts := partsFrom(step, w.Rank())
	for i, part := range parts {
		if err := errors.Join(l.run(part, float64(len(part))), l.step()); err != nil {
			return err
		}
		want := mean(dt, ends, seen)
		if i+1 < len(parts) {
			if want, err = aloneFor(w, dt, start, parts[:i+1]); err != nil {
				return err
			}
		}
		got, err := l.weights()
		if err != nil {
			return err
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("step %d: weights off by %g", step+i, relative(got, want))
		}
	}
	return nil
}

// TestLocalStepsAverageWeights has every rank learn by itself for three steps, twice, and count as
// many samples as it saw.
func TestLocalStepsAverageWeights(t *testing.T) {
	for _, dt := range []gtensor.Dtype{gtensor.Float32, gtensor.Float64} {
		t.Run(dt.String(), func(t *testing.T) {
			onWorlds(t, someRanks(), func(_ *testing.T, w *dist.World) error {
				l, err := newLearner(w, mlp, dt, 1+w.Rank(), ddp.Config{LocalSteps: 3}, optim.Config{Name: optim.SGD, LearningRate: 0.1})
				if err != nil {
					return err
				}
				for _, step := range []int{0, 3} {
					if err := l.localRound(w, dt, step); err != nil {
						return err
					}
				}
				if n := bucketBytes(w); n != 0 || l.d.WireBytes() != 0 {
					return fmt.Errorf("%d B of gradients were sent, WireBytes is %d", n, l.d.WireBytes())
				}
				return l.close()
			})
		})
	}
}

func TestLocalStepsOfMicroBatchesAndOfNothing(t *testing.T) {
	onWorlds(t, []int{2}, func(_ *testing.T, w *dist.World) error {
		l, err := newLearner(w, mlp, gtensor.Float64, 2, ddp.Config{LocalSteps: 2}, optim.Config{Name: optim.SGD, LearningRate: 0.1})
		if err != nil {
			return err
		}
		lo := 10 * w.Rank()
		if err := l.d.NoSync(func() error { return l.run(indices(lo, lo+2), 2) }); err != nil {
			return err
		}
		if err := l.run(indices(lo+2, lo+4), 2); err != nil {
			return err
		}
		got, err := gradients(l.d.Model())
		if err != nil {
			return err
		}
		res, err := trial{family: mlp, dt: gtensor.Float64, steps: 1, parts: func(int, int) [][]int { return [][]int{indices(lo, lo+4)} }}.alone()
		if err != nil {
			return err
		}
		if e := relative(got, res.grads); !(e <= 1e-14) {
			return fmt.Errorf("the gradient of two micro-batches is off by %g", e)
		}
		// A rank without samples has zeros, and no error: others may have some.
		zeroGrads(l.m.params)
		if err := l.run(indices(0, 2), 0); err != nil {
			return err
		}
		if got, err = gradients(l.d.Model()); err != nil || slices.ContainsFunc(got, func(x float64) bool { return x != 0 }) {
			return fmt.Errorf("the gradient of nothing is %v, %w", got, err)
		}
		return l.close()
	})
}

func TestAverageWeightsAtTheEnd(t *testing.T) {
	onWorlds(t, []int{1, 3}, func(_ *testing.T, w *dist.World) error {
		l, err := newLearner(w, mlp, gtensor.Float32, 2, ddp.Config{LocalSteps: 100}, optim.Config{Name: optim.Adam, LearningRate: 0.01})
		if err != nil {
			return err
		}
		start, err := l.weights()
		if err != nil {
			return err
		}
		if err := l.d.AverageWeights(); err != nil {
			return err
		}
		got, err := l.weights()
		if err != nil {
			return err
		}
		if !slices.Equal(got, start) {
			return errors.New("a mean without a step in between rounds weights")
		}
		for step := range 3 {
			lo := 100*step + 10*w.Rank()
			if err := errors.Join(l.run(indices(lo, lo+2), 2), l.step()); err != nil {
				return err
			}
		}
		if got, err = l.weights(); err != nil {
			return err
		}
		if err := agreeOn(w, "weights", got); (w.Rank() > 0) != (err != nil) {
			return fmt.Errorf("before the average: %w", err)
		}
		if err := l.d.AverageWeights(); err != nil {
			return err
		}
		if got, err = l.weights(); err != nil {
			return err
		}
		if err := l.d.AverageWeights(); err != nil {
			return err
		}
		again, err := l.weights()
		if err != nil {
			return err
		}
		if !slices.Equal(again, got) {
			return errors.New("a second mean changes weights")
		}
		if err := errors.Join(agreeOn(w, "weights", got), l.close()); err != nil {
			return err
		}
		if err := l.d.AverageWeights(); !errors.Is(err, dist.ErrClosed) {
			return fmt.Errorf("after Close: %w", err)
		}
		return nil
	})
}

// TestAverageWeightsLeavesOutRunsThatFailed has one on rank 0, whose samples do not count.
func TestAverageWeightsLeavesOutRunsThatFailed(t *testing.T) {
	boom := errors.New("boom")
	onRanks(t, 2, func(w *dist.World) error {
		var fails error
		f := gated(func() error { return fails })
		l, err := newLearner(w, f, gtensor.Float64, 3, ddp.Config{LocalSteps: 100}, optim.Config{Name: optim.SGD, LearningRate: 0.1})
		if err != nil {
			return err
		}
		if err := l.train(1, 1); err != nil {
			return err
		}
		if w.Rank() == 0 {
			fails = boom
			if err := l.run(indices(50, 53), 3); !errors.Is(ops.Cause(err), boom) {
				return fmt.Errorf("the run is %w, want boom", err)
			}
			fails = nil
			zeroGrads(l.m.params)
		}
		if err := l.train(2, 1); err != nil {
			return err
		}
		return l.averages(w, []float64{6, 6})
	})
}

// averages averages the weights of two ranks, compares rank 1's with the mean by the given weights,
// and closes l.
func (l *learner) averages(w *dist.World, by []float64) error {
	mine, err := l.weights()
	if err != nil {
		return err
	}
	theirs, err := broadcast(w, mine)
	if err != nil {
		return err
	}
	if err := l.d.AverageWeights(); err != nil {
		return err
	}
	got, err := l.weights()
	if err != nil {
		return err
	}
	if want := mean(gtensor.Float64, [][]float64{theirs, mine}, by); w.Rank() == 1 && !slices.Equal(got, want) {
		return fmt.Errorf("weights off by %g", relative(got, want))
	}
	return l.close()
}

// TestAverageWeightsLeavesOutSkippedSteps has one on rank 0, whose samples do not count.
func TestAverageWeightsLeavesOutSkippedSteps(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		l, err := newLearner(w, mlp, gtensor.Float64, 3, ddp.Config{LocalSteps: 100}, optim.Config{Name: optim.SGD, LearningRate: 0.1, SkipNonFinite: true})
		if err != nil {
			return err
		}
		if err := l.train(1, 1); err != nil {
			return err
		}
		scale, skipped := 1.0, 0
		if w.Rank() == 0 {
			scale, skipped = math.MaxFloat64, 1
		}
		if err := errors.Join(l.solver.SetGradientScale(scale), l.train(2, 1), l.solver.SetGradientScale(1)); err != nil {
			return err
		}
		if got := l.solver.Skipped(); got != skipped {
			return fmt.Errorf("%d steps were skipped, want %d", got, skipped)
		}
		if err := l.train(3, 1); err != nil {
			return err
		}
		return l.averages(w, []float64{6, 9})
	})
}

// TestAverageWeightsWithoutLocalSteps does nothing.
func TestAverageWeightsWithoutLocalSteps(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		l, err := newLearner(w, mlp, gtensor.Float32, 2, ddp.Config{}, optim.Config{})
		if err != nil {
			return err
		}
		before := len(w.Recorder().Records())
		if err := l.d.AverageWeights(); err != nil {
			return err
		}
		if n := len(w.Recorder().Records()) - before; n != 0 {
			return fmt.Errorf("%d operations", n)
		}
		return l.close()
	})
}
