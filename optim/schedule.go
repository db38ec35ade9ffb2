package optim

import (
	"fmt"
	"math"
)

// The names of the schedules, for Schedule.Name.
const (
	Constant = "constant"
	Cosine   = "cosine"
	StepDown = "step"
)

// Schedule changes the learning rate from step to step. With base the configured learning rate, s
// the number of steps already made, and t = s - WarmupSteps, the rate of the next step is
//
//	s < WarmupSteps:  base * (s+1)/WarmupSteps
//	constant:         base
//	cosine:           min + (base-min) * (1+cos(pi*t/Steps))/2, and min from t = Steps on
//	step:             base * Gamma^floor(t/Steps)
//
// A warm-up comes before any of the three schedules. Its first step has a rate above 0, its last
// step has the full rate, and the schedule counts from the end of the warm-up. In
// torch.optim.lr_scheduler that is SequentialLR of LinearLR(1/W, total_iters=W-1) and
// CosineAnnealingLR or StepLR with milestone W. Unlike CosineAnnealingLR, the rate does not rise
// again after the end.
type Schedule struct {
	Name            string  // Constant, Cosine, StepDown; "" means Constant
	WarmupSteps     int     // steps of linear warm-up; 0 means none
	Steps           int     // cosine: length of the decay after the warm-up; step: steps between two drops
	MinLearningRate float64 // cosine: the rate at the end of the decay
	Gamma           float64 // step: the factor of one drop; 0 means 0.1
}

// Rate returns the learning rate of the step after step finished steps, for a configured rate of
// base.
func (s Schedule) Rate(base float64, step int) float64 {
	if step < s.WarmupSteps {
		return base * float64(step+1) / float64(s.WarmupSteps)
	}
	step -= s.WarmupSteps
	s = s.withDefaults()
	switch s.Name {
	case Cosine:
		if step >= s.Steps {
			return s.MinLearningRate
		}
		return s.MinLearningRate + (base-s.MinLearningRate)*(1+math.Cos(math.Pi*float64(step)/float64(s.Steps)))/2
	case StepDown:
		return base * math.Pow(s.Gamma, float64(step/max(s.Steps, 1)))
	}
	return base
}

func (s Schedule) withDefaults() Schedule {
	if s.Name == "" {
		s.Name = Constant
	}
	if s.Name == StepDown && s.Gamma == 0 {
		s.Gamma = 0.1
	}
	return s
}

func (s Schedule) validate(base float64) error {
	name := s.withDefaults().Name
	switch name {
	case Constant, Cosine, StepDown:
	default:
		return fmt.Errorf("schedule %q: use %s, %s or %s: %w", s.Name, Constant, Cosine, StepDown, ErrConfig)
	}
	switch {
	case s.WarmupSteps < 0:
		return fmt.Errorf("schedule %s: warm-up of %d steps: %w", name, s.WarmupSteps, ErrConfig)
	case name == Constant && s.Steps != 0:
		return fmt.Errorf("schedule constant: steps (%d) has no effect: leave it out or use %s or %s: %w", s.Steps, Cosine, StepDown, ErrConfig)
	case name != Constant && s.Steps < 1:
		return fmt.Errorf("schedule %s: steps is %d: it needs at least 1: %w", name, s.Steps, ErrConfig)
	case name != Cosine && s.MinLearningRate != 0:
		return fmt.Errorf("schedule %s: minimum learning rate has no effect: leave it out or use %s: %w", name, Cosine, ErrConfig)
	case !(s.MinLearningRate >= 0 && s.MinLearningRate <= base):
		return fmt.Errorf("schedule %s: minimum learning rate %v is not between 0 and the learning rate %v: %w", name, s.MinLearningRate, base, ErrConfig)
	case name != StepDown && s.Gamma != 0:
		return fmt.Errorf("schedule %s: gamma has no effect: leave it out or use %s: %w", name, StepDown, ErrConfig)
	case !(s.Gamma >= 0 && s.Gamma <= 1):
		return fmt.Errorf("schedule %s: gamma %v is not between 0 and 1: %w", name, s.Gamma, ErrConfig)
	}
	return nil
}

// String returns s on one line, without spaces.
func (s Schedule) String() string {
	s = s.withDefaults()
	switch s.Name {
	case Cosine:
		return fmt.Sprintf("cosine(warmup=%d,steps=%d,min=%g)", s.WarmupSteps, s.Steps, s.MinLearningRate)
	case StepDown:
		return fmt.Sprintf("step(warmup=%d,steps=%d,gamma=%g)", s.WarmupSteps, s.Steps, s.Gamma)
	}
	return fmt.Sprintf("%s(warmup=%d)", s.Name, s.WarmupSteps)
}
