package ddp_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/optim"
)

// TestConfigChecksItsHook has a hook with a wrong setting.
func TestConfigChecksItsHook(t *testing.T) {
	if err := (ddp.Config{Hook: compress.PowerSGD{Rank: -1}}).Validate(); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("Validate is %v", err)
	}
}

// TestPowerSGDOnRanks checks the first step of a model: the messages, and the exact part of the
// gradients.
func TestPowerSGDOnRanks(t *testing.T) {
	for _, dt := range []gtensor.Dtype{gtensor.Float32, gtensor.Float64} {
		for _, mb := range []float64{0, 0.004} {
			t.Run(fmt.Sprintf("%v/%v", dt, mb), func(t *testing.T) {
				onWorlds(t, someRanks(), func(_ *testing.T, w *dist.World) error {
					sgd := optim.Config{Name: optim.SGD, LearningRate: 0.1}
					plain, err := newLearner(w, wider, dt, 3, ddp.Config{}, sgd)
					if err != nil {
						return err
					}
					l, err := newLearner(w, wider, dt, 3, ddp.Config{Hook: compress.PowerSGD{Rank: 2}, BucketMB: mb}, sgd)
					if err != nil {
						return err
					}
					part := indices(3*w.Rank(), 3*w.Rank()+3)
					if err := errors.Join(plain.run(part, 3), l.run(part, 3)); err != nil {
						return err
					}
					for i, p := range l.m.params {
						got, err := gradients(l.d.Model()[i : i+1])
						if err != nil {
							return err
						}
						want, err := gradients(plain.d.Model()[i : i+1])
						if err != nil {
							return err
						}
						if small := p.Name()[0] == 'b' || p.Name() == "w2"; small != slices.Equal(got, want) {
							return fmt.Errorf("%s: off by %g, want that only in what is compressed", p.Name(), relative(got, want))
						}
					}
					// w0 is 24 by 40, w1 40 by 32, of rank 2; b0, b1, b2 and w2, 32 by 3, as they
					// are.
					if got, want := l.d.WireBytes(), int64(dt.Size())*(2*(24+40)+2*(40+32)+40+32+3+96); got != want {
						return fmt.Errorf("WireBytes is %d, want %d", got, want)
					}
					for range 5 {
						if err := errors.Join(l.step(), l.run(part, 3)); err != nil {
							return err
						}
					}
					if err := l.step(); err != nil {
						return err
					}
					weights, err := l.weights()
					if err != nil {
						return err
					}
					return errors.Join(agreeOn(w, "weights", weights), l.close(), plain.close())
				})
			})
		}
	}
}
