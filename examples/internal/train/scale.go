package train

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/optim"
)

// scaled is the loss times a factor. Gradients are taken of it, so narrow ones do not become 0. The
// solver removes the factor. The loss is printed without it.
type scaled struct {
	factor *gorgonia.Node // the input that holds it
	value  *gorgonia.F32
	scaler *optim.LossScaler

	static  bool // the scale never changes
	skipped int  // steps that the solver has left out
}

// newScaled returns cost times its scale, and the scaler; cost itself and nil without a scale in
// the settings.
func newScaled(c config.Optim, cost *gorgonia.Node) (*gorgonia.Node, *scaled, error) {
	scale, dynamic, err := c.Scale()
	if err != nil {
		return nil, nil, err
	}
	if scale == 0 && !dynamic {
		return cost, nil, nil
	}
	s := &scaled{value: gorgonia.NewF32(1), static: !dynamic}
	s.scaler, err = optim.NewLossScaler(optim.LossScalerConfig{Scale: scale, Static: !dynamic})
	if err != nil {
		return nil, nil, err
	}
	s.factor = gorgonia.NewScalar(cost.Graph(), cost.Dtype(), gorgonia.WithName("loss scale"), gorgonia.WithValue(s.value))
	product, err := gorgonia.Mul(cost, s.factor)
	if err != nil {
		return nil, nil, fmt.Errorf("loss scale: %w", err)
	}
	return product, s, nil
}

// set makes the next runs those of the scale, and the solver take it out again.
func (s *scaled) set(solver optim.Solver) error {
	if s == nil {
		return nil
	}
	*s.value = gorgonia.F32(s.scaler.Scale())
	return solver.SetGradientScale(1 / s.scaler.Scale())
}

// update adapts the scale after a step of the solver.
//
// Returns: the factor of the change, 1 for none. Saved residuals of gradients change with it.
func (s *scaled) update(solver optim.Solver) float64 {
	if s == nil || s.static {
		return 1
	}
	skipped, before := solver.Skipped(), s.scaler.Scale()
	s.scaler.Update(skipped > s.skipped)
	s.skipped = skipped
	return s.scaler.Scale() / before
}

// factorNow returns the present factor of the gradients.
func (s *scaled) factorNow() float64 {
	if s == nil {
		return 1
	}
	return s.scaler.Scale()
}
