package ddp_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// TestErrorFeedbackSendsEverythingInTheEnd has gradients that do not change: without feedback the
// same is rounded off in each step, with it the sum of all steps is off by one rounding.
func TestErrorFeedbackSendsEverythingInTheEnd(t *testing.T) {
	const steps = 200
	for _, wire := range []tensor.DType{tensor.BF16, tensor.F16} {
		for _, dt := range []gtensor.Dtype{gtensor.Float32, gtensor.Float64} {
			t.Run(fmt.Sprintf("%v/%v", wire, dt), func(t *testing.T) {
				onWorlds(t, []int{1}, func(_ *testing.T, w *dist.World) error {
					plain, err := drift(w, dt, ddp.Config{WireDType: wire}, steps)
					if err != nil {
						return err
					}
					fed, err := drift(w, dt, ddp.Config{WireDType: wire, ErrorFeedback: true}, steps)
					if err != nil {
						return err
					}
					if !(fed < plain/50) || !(fed <= 0x1p-8) {
						return fmt.Errorf("the sum over %d steps is off by %g gradients with feedback, by %g without", steps, fed, plain)
					}
					return nil
				})
			})
		}
	}
}

// drift is how far the sum of the gradients of many steps from the same weights is from steps times
// the exact one, in units of the largest element of that.
func drift(w *dist.World, dt gtensor.Dtype, cfg ddp.Config, steps int) (float64, error) {
	exact, err := newLearner(w, mlp, dt, 3, ddp.Config{}, optim.Config{})
	if err != nil {
		return 0, err
	}
	l, err := newLearner(w, mlp, dt, 3, cfg, optim.Config{})
	if err != nil {
		return 0, err
	}
	part := indices(3*w.Rank(), 3*w.Rank()+3)
	if err := exact.run(part, 3); err != nil {
		return 0, err
	}
	want, err := gradients(exact.d.Model())
	if err != nil {
		return 0, err
	}
	sum := make([]float64, len(want))
	for range steps {
		if err := l.run(part, 3); err != nil {
			return 0, err
		}
		got, err := gradients(l.d.Model())
		if err != nil {
			return 0, err
		}
		for i, x := range got {
			sum[i] += x
		}
		zeroGrads(l.m.params)
	}
	for i := range want {
		want[i] *= float64(steps)
	}
	return relative(sum, want) * float64(steps), errors.Join(l.close(), exact.close())
}

// TestStateOfOneNameIsGivenToNone has two parameters of one name and length: neither gets the state
// of the other.
func TestStateOfOneNameIsGivenToNone(t *testing.T) {
	f := mlp
	f.layers = func(b *build, x *G.Node) *G.Node {
		v := G.Must(G.Reshape(b.param("w", 18), gtensor.Shape{3, 6}))
		h := G.Must(G.Mul(G.Must(G.Tanh(G.Must(G.Mul(x, b.param("w", 6, 3))))), v))
		return affine(b, h, "1", 6, 3)
	}
	onRanks(t, 2, func(w *dist.World) error {
		l, err := newLearner(w, f, gtensor.Float32, 3, ddp.Config{WireDType: tensor.BF16, ErrorFeedback: true}, optim.Config{})
		if err != nil {
			return err
		}
		if err := l.run(indices(3*w.Rank(), 3*w.Rank()+3), 3); err != nil {
			return err
		}
		before := fmt.Sprint(values(l.d.HookState()))
		if err := l.d.SetHookState(l.d.HookState()); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), `2 parameters`) {
			return fmt.Errorf("SetHookState is %w, and what is kept the same: %v", err, fmt.Sprint(values(l.d.HookState())) == before)
		}
		if fmt.Sprint(values(l.d.HookState())) != before {
			return errors.New("what is kept is another")
		}
		return l.close()
	})
}

// values returns the elements of a state.
func values(state []compress.State) (all [][]float32) {
	for _, s := range state {
		x, _ := tensor.Data[float32](s.Data) // residuals are float32
		all = append(all, x)
	}
	return all
}
