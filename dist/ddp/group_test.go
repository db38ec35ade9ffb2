package ddp_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// someSteps trains mlp over on, from the samples of its ranks, and returns all weights.
func someSteps(on dist.Members, dt gtensor.Dtype, cfg ddp.Config, samples func(rank, step int) []int) ([]float64, error) {
	l, err := newLearner(on, mlp, dt, 3, cfg, optim.Config{Name: optim.Adam, LearningRate: 0.01, ClipNorm: 0.5})
	if err != nil {
		return nil, err
	}
	for step := range 4 {
		part := samples(on.Members().Rank(), step)
		if step == 2 { // accumulated
			if err := l.d.NoSync(func() error { return l.run(part, 2) }); err != nil {
				return nil, err
			}
		}
		if err := errors.Join(l.run(part, float64(1+part[0]%3)), l.step()); err != nil {
			return nil, err
		}
	}
	all, err := l.whole()
	return all, errors.Join(err, l.close())
}

// threeOf returns three samples of a rank in a step, from number first on.
func threeOf(first int) func(rank, step int) []int {
	return func(rank, step int) []int {
		lo := first + 100*step + 3*rank
		return indices(lo, lo+3)
	}
}

// TestRowsOfRanksTrainForThemselves trains another model in each row of a split world. Each row has
// the bits of a world of its own.
func TestRowsOfRanksTrainForThemselves(t *testing.T) {
	for stage := range 4 {
		cfg := ddp.Config{Stage: stage, BucketMB: 1.0 / 1024}
		for _, h := range hosts {
			t.Run(fmt.Sprintf("stage %d/%s", stage, h.name), func(t *testing.T) {
				want := make([][]float64, 2)
				for row := range want {
					h.on(t, 2, func(w *dist.World) error {
						all, err := someSteps(w, gtensor.Float32, cfg, threeOf(1000*row))
						if w.Rank() == 0 {
							want[row] = all
						}
						return err
					})
				}
				h.on(t, 4, func(w *dist.World) error {
					x, _, err := w.Split2D(2)
					if err != nil {
						return err
					}
					row := w.Rank() / 2
					got, err := someSteps(x, gtensor.Float32, cfg, threeOf(1000*row))
					if err == nil && !slices.Equal(got, want[row]) {
						err = fmt.Errorf("row %d is off by %g", row, relative(got, want[row]))
					}
					return err
				})
			})
		}
	}
}

// TestAttachNeedsAGroup has the ways to pass none.
func TestAttachNeedsAGroup(t *testing.T) {
	for _, on := range []dist.Members{nil, (*dist.World)(nil), (*dist.Group)(nil), &dist.World{}} {
		if _, err := ddp.Attach(on, nil, nil, ddp.Config{}); !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("Attach to %T: %v", on, err)
		}
		if _, err := ddp.Steps(on, 1); !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("Steps of %T: %v", on, err)
		}
	}
}

// TestShardInARowReplicateInAColumn trains over 4 ranks in rows of 1, 2 and 4 (HSDP). Each rank has
// the weights of plain training. With rows of 1 or of 4, sums have the order of plain training and
// the bits too, except with accumulation at Stages 2 and 3. With rows of 2 each sum of four has
// another order, so that one step is off by at most 4 roundings, and 4 steps of Adam by the bounds
// below, relative to the largest weight.
func TestShardInARowReplicateInAColumn(t *testing.T) {
	for _, dt := range []gtensor.Dtype{gtensor.Float32, gtensor.Float64} {
		for _, h := range hosts {
			var want []float64
			h.on(t, 4, func(w *dist.World) error {
				all, err := someSteps(w, dt, ddp.Config{BucketMB: 1.0 / 1024}, threeOf(0))
				if w.Rank() == 0 {
					want = all
				}
				return err
			})
			for _, width := range []int{1, 2, 4} {
				for stage := 1; stage <= 3; stage++ {
					t.Run(fmt.Sprintf("%v/%s/rows of %d/stage %d", dt, h.name, width, stage), func(t *testing.T) {
						h.on(t, 4, func(w *dist.World) error {
							row, column, err := w.Split2D(width)
							if err != nil {
								return err
							}
							got, err := someSteps(row, dt, ddp.Config{Stage: stage, BucketMB: 1.0 / 1024, Replicas: column}, func(_, step int) []int {
								return threeOf(0)(w.Rank(), step)
							})
							if err != nil {
								return err
							}
							bound := 1e-6
							if dt == gtensor.Float64 {
								bound = 1e-14
							}
							if width != 2 && stage == 1 {
								bound = 0
							}
							if off := relative(got, want); !(off <= bound) {
								return fmt.Errorf("off by %g, want at most %g", off, bound)
							}
							return agreeOn(w, "weights", got)
						})
					})
				}
			}
		}
	}
}

// TestReplicasCompareTheirPlans has a row with another setting, and a rank with a model of its own.
func TestReplicasCompareTheirPlans(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(rank int, f *family, cfg *ddp.Config)
		want   error
	}{
		{"settings of a row", func(rank int, _ *family, cfg *ddp.Config) { cfg.NoOverlap = rank >= 2 }, ddp.ErrPlan},
		{"model of a rank", func(rank int, f *family, _ *ddp.Config) {
			if rank == 3 {
				*f = wider
			}
		}, dist.ErrMismatch},
		{"no shards", func(rank int, _ *family, cfg *ddp.Config) { cfg.Stage = 0 }, dist.ErrInvalid},
		{"virtual ranks", func(rank int, _ *family, cfg *ddp.Config) { cfg.VirtualRanks = 4 }, dist.ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			onRanks(t, 4, func(w *dist.World) error {
				row, column, err := w.Split2D(2)
				if err != nil {
					return err
				}
				f, cfg := mlp, ddp.Config{Stage: 1, Replicas: column}
				c.change(w.Rank(), &f, &cfg)
				_, err = newLearner(row, f, gtensor.Float32, 3, cfg, optim.Config{})
				if !errors.Is(err, c.want) && !errors.Is(err, ddp.ErrPeer) {
					return fmt.Errorf("Attach is %w, want %w", err, c.want)
				}
				return nil
			})
		})
	}
}

// TestJoinCountsTheSamplesOfReplicas has data in the second row only.
func TestJoinCountsTheSamplesOfReplicas(t *testing.T) {
	onWorlds(t, []int{4}, func(_ *testing.T, w *dist.World) error {
		row, column, err := w.Split2D(2)
		if err != nil {
			return err
		}
		l, err := newLearner(row, mlp, gtensor.Float32, 3, ddp.Config{Stage: 2, Replicas: column}, optim.Config{Name: optim.SGD, LearningRate: 0.1})
		if err != nil {
			return err
		}
		j, err := ddp.NewJoin(l.d)
		if err != nil {
			return err
		}
		samples := 0.0
		if w.Rank() == 3 {
			samples = 3
		}
		if more, err := j.Next(samples); err != nil || !more || j.Samples() != 3 {
			return fmt.Errorf("%v samples, more %v: %w", j.Samples(), more, err)
		}
		if err := errors.Join(l.run(indices(0, 3), samples), l.step()); err != nil {
			return err
		}
		if more, err := j.Next(0); err != nil || more {
			return fmt.Errorf("after the last samples: more %v: %w", more, err)
		}
		all, err := l.whole()
		return errors.Join(err, agreeOn(w, "weights", all), j.Close(), l.close())
	})
}

// TestReplicasRoundTheirMessages trains in a wire dtype with error feedback: ranks have equal
// weights, about as far from those of plain training as without replicas.
func TestReplicasRoundTheirMessages(t *testing.T) {
	cfg := ddp.Config{Stage: 2, BucketMB: 1.0 / 1024, WireDType: tensor.BF16, ErrorFeedback: true}
	var want []float64
	hosts[0].on(t, 4, func(w *dist.World) error {
		l, err := newLearner(w, mlp, gtensor.Float32, 3, ddp.Config{}, optim.Config{Name: optim.SGD, LearningRate: 0.1})
		if err != nil {
			return err
		}
		err = l.train(0, 3)
		if all, _ := l.whole(); w.Rank() == 0 {
			want = all
		}
		return errors.Join(err, l.close())
	})
	onWorlds(t, []int{4}, func(_ *testing.T, w *dist.World) error {
		row, column, err := w.Split2D(2)
		if err != nil {
			return err
		}
		cfg := cfg
		cfg.Replicas = column
		l, err := newLearner(row, mlp, gtensor.Float32, 3, cfg, optim.Config{Name: optim.SGD, LearningRate: 0.1})
		if err != nil {
			return err
		}
		for step := range 3 {
			lo := 100*step + 3*w.Rank()
			if err := errors.Join(l.run(indices(lo, lo+3), 3), l.step()); err != nil {
				return err
			}
		}
		got, err := l.whole()
		if off := relative(got, want); err == nil && !(off <= 2e-3 && off > 0) {
			err = fmt.Errorf("weights are off by %g", off)
		}
		return errors.Join(err, agreeOn(w, "weights", got), l.close())
	})
}
