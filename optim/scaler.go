package optim

import (
	"fmt"
	"math"
)

// LossScalerConfig holds the settings of a LossScaler. A scaled loss keeps small gradients within
// the range of 16-bit numbers.
type LossScalerConfig struct {
	Scale    float64 // at the start; 0 means 65536
	Static   bool    // the scale never changes; the fields below must be zero
	Growth   float64 // factor after Interval good steps in a row; 0 means 2
	Backoff  float64 // factor after a skipped step; 0 means 0.5
	Interval int     // number of good steps before Growth; 0 means 2000
	Floor    float64 // lower bound of the scale; 0 means 1
}

// LossScaler is the factor of a loss, with the rule of torch.amp.GradScaler. The program multiplies
// the loss by Scale, passes 1/Scale to the solver's SetGradientScale, and calls Update with whether
// the step was skipped. Config.SkipNonFinite decides that equally on all ranks.
type LossScaler struct {
	config LossScalerConfig
	state  LossScalerState
}

// LossScalerState is the state of a LossScaler between steps.
type LossScalerState struct {
	Scale float64
	Good  int // steps since the last change of the scale, all good
}

// NewLossScaler returns a LossScaler for c. Errors: ErrConfig.
func NewLossScaler(c LossScalerConfig) (*LossScaler, error) {
	if c.Static && (c.Growth != 0 || c.Backoff != 0 || c.Interval != 0 || c.Floor != 0) {
		return nil, fmt.Errorf("loss scale: growth, backoff, interval and floor have no effect on a static scale: leave them out: %w", ErrConfig)
	}
	for _, f := range []struct {
		value *float64
		zero  float64
	}{{&c.Scale, 65536}, {&c.Growth, 2}, {&c.Backoff, 0.5}, {&c.Floor, 1}} {
		if *f.value == 0 {
			*f.value = f.zero
		}
	}
	if c.Interval == 0 {
		c.Interval = 2000
	}
	switch {
	case !(c.Scale > 0) || math.IsInf(c.Scale, 1):
		return nil, fmt.Errorf("loss scale %v: it must be finite and positive: %w", c.Scale, ErrConfig)
	case !(c.Growth > 1) || math.IsInf(c.Growth, 1):
		return nil, fmt.Errorf("loss scale: growth %v: it must be finite and above 1: %w", c.Growth, ErrConfig)
	case !(c.Backoff > 0 && c.Backoff < 1):
		return nil, fmt.Errorf("loss scale: backoff %v: it must be between 0 and 1: %w", c.Backoff, ErrConfig)
	case c.Interval < 0:
		return nil, fmt.Errorf("loss scale: interval of %d steps: %w", c.Interval, ErrConfig)
	case !c.Static && !(c.Floor > 0 && c.Floor <= c.Scale):
		return nil, fmt.Errorf("loss scale: floor %v is not between 0 and the scale %v: %w", c.Floor, c.Scale, ErrConfig)
	}
	return &LossScaler{config: c, state: LossScalerState{Scale: c.Scale}}, nil
}

// Scale returns the factor of the next loss.
func (s *LossScaler) Scale() float64 { return s.state.Scale }

// Update must be called after each step; skipped is whether the solver skipped it.
func (s *LossScaler) Update(skipped bool) {
	c := &s.config
	switch {
	case c.Static:
	case skipped:
		s.state = LossScalerState{Scale: max(s.state.Scale*c.Backoff, c.Floor)}
	case s.state.Good+1 < c.Interval:
		s.state.Good++
	default:
		scale := s.state.Scale * c.Growth
		if math.IsInf(scale, 1) {
			scale = s.state.Scale
		}
		s.state = LossScalerState{Scale: scale}
	}
}

// State returns the state for SetState.
func (s *LossScaler) State() LossScalerState { return s.state }

// SetState continues from st. A scale below Floor becomes Floor; a static scaler keeps its scale.
// Errors: ErrMismatch; the scaler is then unchanged.
func (s *LossScaler) SetState(st LossScalerState) error {
	if !(st.Scale > 0) || math.IsInf(st.Scale, 1) || st.Good < 0 {
		return fmt.Errorf("loss scale: state of scale %v after %d good steps: %w", st.Scale, st.Good, ErrMismatch)
	}
	if !s.config.Static {
		s.state = LossScalerState{Scale: max(st.Scale, s.config.Floor), Good: st.Good}
	}
	return nil
}
