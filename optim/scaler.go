package optim

import (
	"fmt"
	"math"
)

// LossScalerConfig is how a loss is scaled, so that the gradients of its small parts stay in the
// range of narrow numbers.
type LossScalerConfig struct {
	Scale    float64 // at the start; 0 means 65536
	Static   bool    // it stays what it is; the fields below must be zero
	Growth   float64 // factor after Interval good steps in a row; 0 means 2
	Backoff  float64 // factor after a step that was skipped; 0 means 0.5
	Interval int     // 0 means 2000
	Floor    float64 // it is never less; 0 means 1
}

// LossScaler is the factor of a loss, as torch.amp.GradScaler keeps it: the loss is multiplied by
// Scale, the solver is told by SetGradientScale to multiply gradients by 1/Scale, and Update learns
// whether the step was skipped, which Config.SkipNonFinite decides on all ranks alike.
type LossScaler struct {
	config LossScalerConfig
	state  LossScalerState
}

// LossScalerState is what a LossScaler remembers between steps.
type LossScalerState struct {
	Scale float64
	Good  int // steps that were not skipped since the scale has changed
}

// NewLossScaler is a LossScaler for c.
// Errors: ErrConfig.
func NewLossScaler(c LossScalerConfig) (*LossScaler, error) {
	if c.Static && (c.Growth != 0 || c.Backoff != 0 || c.Interval != 0 || c.Floor != 0) {
		return nil, fmt.Errorf("loss scale: growth, backoff, interval and floor have no effect on a static one: leave them out: %w", ErrConfig)
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

// Scale is the factor of the next loss.
func (s *LossScaler) Scale() float64 { return s.state.Scale }

// Update is to be called after each step, with whether the solver skipped it.
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

// State is what SetState needs for going on from here.
func (s *LossScaler) State() LossScalerState { return s.state }

// SetState makes the scaler go on from st, at Floor if st's scale is below it; a static one keeps
// its scale. Errors: ErrMismatch, and the scaler is as before.
func (s *LossScaler) SetState(st LossScalerState) error {
	if !(st.Scale > 0) || math.IsInf(st.Scale, 1) || st.Good < 0 {
		return fmt.Errorf("loss scale: state of scale %v after %d good steps: %w", st.Scale, st.Good, ErrMismatch)
	}
	if !s.config.Static {
		s.state = LossScalerState{Scale: max(st.Scale, s.config.Floor), Good: st.Good}
	}
	return nil
}
