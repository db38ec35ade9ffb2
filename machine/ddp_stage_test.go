package machine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/internal/long"
	"github.com/symgrad/symgrad/optim"
)

// TestStages1And2GiveTheBitsOfStage0 trains a network whose element counts have no common divisor,
// with the tape machine and compiled, on 12 samples in unequal parts. Long tests have 100 steps and
// up to 5 ranks.
func TestStages1And2GiveTheBitsOfStage0(t *testing.T) {
	for _, vm := range []struct {
		name string
		make newVM
	}{{"tape", tape}, {"machine", machined}} {
		for _, o := range []optim.Config{
			{Name: optim.SGD, LearningRate: 0.05},
			{Name: optim.Adam, LearningRate: 0.01, ClipNorm: 0.3},
			{Name: optim.LAMB, LearningRate: 0.01, WeightDecay: 0.01},
		} {
			for _, ranks := range worldsUpTo(5) {
				t.Run(fmt.Sprintf("%s/%s/%d ranks", vm.name, o.Name, ranks), func(t *testing.T) {
					c := sharded{build: deep(3, 19), make: vm.make, steps: stepsOf(100), solver: o}
					serial := ranks == 4 || ranks == 3 && o.Name == optim.LAMB
					c.cfg = ddp.Config{BucketMB: 2.0 / 1024, FirstBucketMB: 1.0 / 1024, NoOverlap: serial}
					var costs, weights [3][][]float32
					for stage := range weights {
						c.cfg.Stage = stage
						costs[stage], weights[stage] = byRank(ranks), byRank(ranks)
						onRanks(t, ranks, func(w *dist.World) (err error) {
							costs[stage][w.Rank()], weights[stage][w.Rank()], err = c.on(w)
							return err
						})
					}
					for stage := 1; stage < len(weights); stage++ {
						for r := range ranks {
							if !slices.Equal(costs[stage][r], costs[0][r]) || !slices.Equal(weights[stage][r], weights[0][0]) {
								t.Errorf("stage %d, rank %d: weights are off by %g", stage, r, largestDifference(weights[stage][r], weights[0][0]))
							}
						}
					}
					trend := long.Enabled() && !invariants.Enabled // few steps show none
					if c := costs[0][0]; trend && c[len(c)-1] >= c[0] {
						t.Errorf("nothing was learned: %v", c)
					}
				})
			}
		}
	}
}

// TestStagesAccumulateInAMachine has micro-batches in every second step: with Stage 1 the bits of
// Stage 0, with Stage 2 those of another order of sums.
func TestStagesAccumulateInAMachine(t *testing.T) {
	for _, ranks := range []int{1, 3} {
		var got [3][][]float32
		for stage := range got {
			got[stage] = byRank(ranks)
			onRanks(t, ranks, func(w *dist.World) (err error) {
				got[stage][w.Rank()], err = accumulate(w, stage)
				return err
			})
		}
		for r := range ranks {
			if !slices.Equal(got[1][r], got[0][0]) {
				t.Errorf("stage 1, rank %d/%d: weights are off by %g", r, ranks, largestDifference(got[1][r], got[0][0]))
			}
			if off := largestDifference(got[2][r], got[0][0]); !(off <= 1e-6) || !slices.Equal(got[2][r], got[2][0]) {
				t.Errorf("stage 2, rank %d/%d: weights are off by %g", r, ranks, off)
			}
		}
	}
}

// accumulate returns the weights after a training with two micro-batches in every second step.
func accumulate(w *dist.World, stage int) ([]float32, error) {
	n, from, to := share(deep(2, 19), 12, w.Rank(), w.Size())
	d, err := ddp.Attach(w, n.cost, n.params, ddp.Config{Stage: stage, BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024})
	if err != nil {
		return nil, err
	}
	vm, err := machined(n)
	if err != nil {
		return nil, err
	}
	defer vm.Close()
	s, err := d.NewSolver(optim.Config{Name: optim.Momentum, LearningRate: 0.1})
	if err != nil {
		return nil, err
	}
	if err := d.SetWeight(float64(to - from)); err != nil {
		return nil, err
	}
	once := func(step int) error {
		if err := n.feed(step, from, to); err != nil {
			return err
		}
		return vm.RunAll()
	}
	for step := range 8 {
		if step%2 == 1 {
			if err := d.NoSync(func() error { return once(10 + step) }); err != nil {
				return nil, err
			}
		}
		if err := once(step); err != nil {
			return nil, err
		}
		if err := s.Step(d.Model()); err != nil {
			return nil, err
		}
	}
	if err := d.Close(); err != nil {
		return nil, err
	}
	return n.weights(), nil
}
