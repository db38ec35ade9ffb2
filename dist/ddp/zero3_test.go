package ddp_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/tensor"
)

// with3 runs the regime on n ranks with Stage 0 and with Stage 3.
func (c regime) with3(t *testing.T, make func(n int) ([]*dist.World, error), n int) (plain, sharded []outcome) {
	t.Helper()
	both := [2][]outcome{}
	for k, stage := range []int{0, 3} {
		c.cfg.Stage = stage
		both[k] = make3(t, make, n, c.on)
	}
	return both[0], both[1]
}

// make3 runs body on every rank of a world.
func make3[T any](t *testing.T, world func(n int) ([]*dist.World, error), n int, body func(w *dist.World) (T, error)) []T {
	t.Helper()
	worlds, err := world(n)
	if err != nil {
		t.Fatal(err)
	}
	all, done := make([]T, n), make(chan error, n)
	for r, w := range worlds {
		go func() {
			var err error
			if all[r], err = body(w); err != nil {
				_ = w.Abort(fmt.Errorf("rank %d: %w", r, err))
				err = fmt.Errorf("rank %d/%d: %w", r, n, err)
			}
			done <- errors.Join(err, w.Close())
		}()
	}
	for range n {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	return all
}

// compare3 wants the bits of Stage 0 from Stage 3.
func (c regime) compare3(t *testing.T, make func(n int) ([]*dist.World, error), n int) {
	t.Helper()
	plain, sharded := c.with3(t, make, n)
	for r, got := range sharded {
		want := plain[0]
		if !slices.Equal(got.weights, want.weights) {
			t.Errorf("rank %d/%d: weights are off by %g", r, n, relative(got.weights, want.weights))
		}
		if !slices.EqualFunc(got.norms, want.norms, func(a, b float64) bool { return a == b || a != a && b != b }) {
			t.Errorf("rank %d/%d: norms are %v, want %v", r, n, got.norms, want.norms)
		}
	}
}

// TestGatheredTrainingHasTheBitsOfPlainTraining has counts that nothing divides, 100 steps, every
// rule.
func TestGatheredTrainingHasTheBitsOfPlainTraining(t *testing.T) {
	for i, o := range optimizers {
		for _, n := range someRanks() {
			t.Run(fmt.Sprintf("%s/%d ranks", o.name, n), func(t *testing.T) {
				c := regime{family: odd, dt: gtensor.Float32, cfg: small, machine: (n + i) % len(machines), optimizer: o.Config, steps: stepsOf(100), parts: evenly}
				c.compare3(t, hosts[(n+i)%2].make, n)
			})
		}
	}
}

// TestGatheredTrainingIsPlainForEveryModel has filters, a matrix that is used twice, and vectors
// that machines are tempted to write into.
func TestGatheredTrainingIsPlainForEveryModel(t *testing.T) {
	for _, h := range hosts {
		for _, f := range families {
			for _, n := range someRanks() {
				t.Run(fmt.Sprintf("%s/%s/%d ranks", h.name, f.name, n), func(t *testing.T) {
					cfg := ddp.Config{BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024}
					c := regime{family: f, dt: gtensor.Float32, cfg: cfg, machine: n % len(machines), optimizer: optimizers[2].Config, steps: stepsOf(100), parts: evenly}
					c.compare3(t, h.make, n)
				})
			}
		}
	}
}

// TestGatheredTrainingHasBothDTypesAndNumbers has unused learnables, too.
func TestGatheredTrainingHasBothDTypesAndNumbers(t *testing.T) {
	for machine := range machines {
		for _, n := range someRanks() {
			c := regime{family: odd, model: motley, dt: gtensor.Float64, cfg: small, machine: machine, optimizer: optimizers[3].Config, steps: 20, parts: evenly}
			c.compare3(t, hosts[n%2].make, n)
		}
	}
}

// TestGatheredTrainingWeighsRanks has parts of different length, none among them, and waits with
// all buckets.
func TestGatheredTrainingWeighsRanks(t *testing.T) {
	for _, sizes := range [][]int{{5, 3, 4}, {0, 12}, {7, 0, 5, 0}} {
		for _, serial := range []bool{false, true} {
			cfg := small
			cfg.NoOverlap = serial
			regime{
				family: odd, dt: gtensor.Float32, cfg: cfg, optimizer: optimizers[4].Config, steps: 30,
				parts: func(step, _ int) [][]int { return dealt(12*step, sizes) },
				rows:  func(rank, _ int) int { return max(sizes[rank], 2) },
			}.compare3(t, hosts[0].make, len(sizes))
		}
	}
}

// TestGatheredTrainingSendsWhatPlainTrainingSends has gradients in bf16 on the wire, and another
// average.
func TestGatheredTrainingSendsWhatPlainTrainingSends(t *testing.T) {
	cfg := small
	cfg.WireDType, cfg.ErrorFeedback = tensor.BF16, true
	regime{family: odd, dt: gtensor.Float32, cfg: cfg, optimizer: optimizers[2].Config, steps: 20, parts: evenly}.compare3(t, hosts[0].make, 3)
	cfg = small
	cfg.Average = ddp.Sum
	regime{family: odd, dt: gtensor.Float64, cfg: cfg, optimizer: optimizers[2].Config, steps: 20, parts: evenly}.compare3(t, hosts[0].make, 3)
}

// TestGatheredAccumulation has three runs a step, which are reduced one by one: as with Stage 2,
// not the bits of plain training.
func TestGatheredAccumulation(t *testing.T) {
	sizes := []int{4, 2, 5}
	c := regime{
		family: odd, dt: gtensor.Float64, cfg: small, optimizer: optimizers[3].Config, steps: 20, micro: 2,
		parts: func(step, _ int) [][]int {
			parts := dealt(15*step, sizes)
			parts[step%3] = nil
			return parts
		},
		rows: func(rank, _ int) int { return sizes[rank] },
	}
	for c.machine = range machines {
		plain, sharded := c.with3(t, hosts[0].make, 3)
		for r, got := range sharded {
			if e := relative(got.weights, plain[0].weights); !(e <= 1e-9) {
				t.Errorf("%s: rank %d: weights are off by %g", machines[c.machine].name, r, e)
			}
			if !slices.Equal(got.weights, sharded[0].weights) {
				t.Errorf("%s: rank %d has other bits than rank 0", machines[c.machine].name, r)
			}
		}
	}
}
