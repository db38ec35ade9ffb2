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
)

// someSteps trains mlp over on, from the samples of its ranks, and returns all weights.
func someSteps(on dist.Members, cfg ddp.Config, samples func(rank, step int) []int) ([]float64, error) {
	l, err := newLearner(on, mlp, gtensor.Float32, 3, cfg, optim.Config{Name: optim.Adam, LearningRate: 0.01, ClipNorm: 0.5})
	if err != nil {
		return nil, err
	}
	for step := range 4 {
		if err := errors.Join(l.run(samples(on.Members().Rank(), step), 3), l.step()); err != nil {
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
						all, err := someSteps(w, cfg, threeOf(1000*row))
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
					got, err := someSteps(x, cfg, threeOf(1000*row))
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
