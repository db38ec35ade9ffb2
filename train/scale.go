package train

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/optim"
)

// scaled multiplies the loss by a factor before gradients are computed, so that small gradients do
// not become 0 in a narrow dtype. The solver divides by it again. Reported losses are unscaled.
type scaled struct {
	factor *gorgonia.Node // input of the graph that holds the factor
	value  *gorgonia.F32
	scaler *optim.LossScaler

	static  bool // the scale never changes
	skipped int  // steps that the solver has skipped
}

// newScaled returns cost times its scale and the scaler, or cost and nil without loss scaling.
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

// set sets the scale of the next runs, in the graph and in the solver.
func (s *scaled) set(solver optim.Solver) error {
	if s == nil {
		return nil
	}
	*s.value = gorgonia.F32(s.scaler.Scale())
	return solver.SetGradientScale(1 / s.scaler.Scale())
}

// update adapts the scale after a step of the solver.
//
// Returns: the ratio of the new to the old scale. Residuals of gradients must be scaled by it.
func (s *scaled) update(solver optim.Solver) float64 {
	if s == nil || s.static {
		return 1
	}
	skipped, before := solver.Skipped(), s.scaler.Scale()
	s.scaler.Update(skipped > s.skipped)
	s.skipped = skipped
	return s.scaler.Scale() / before
}

// factorNow returns the factor in the gradients.
func (s *scaled) factorNow() float64 {
	if s == nil {
		return 1
	}
	return s.scaler.Scale()
}
