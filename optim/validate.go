package optim

import (
	"fmt"
	"math"
)

// mostWorkers is the largest Config.Workers, so that a mistyped number is an error and not a crash.
const mostWorkers = 1 << 16

// Validate returns an error for the first wrong field of c. Errors: ErrConfig, naming the field,
// its value and the allowed values.
func (c Config) Validate() error {
	switch c.Name {
	case SGD, Momentum, Nesterov, Adam, AdamW, LAMB, Lion:
	default:
		return fmt.Errorf("name %q: use %s, %s, %s, %s, %s, %s or %s: %w",
			c.Name, SGD, Momentum, Nesterov, Adam, AdamW, LAMB, Lion, ErrConfig)
	}
	for _, check := range []func() error{c.validateUnused, c.validateRanges, c.validateGroups} {
		if err := check(); err != nil {
			return err
		}
	}
	switch {
	case c.Nesterov && c.Dampening != 0:
		return fmt.Errorf("%s: nesterov excludes dampening, which is %v: %w", c.Name, c.Dampening, ErrConfig)
	case c.Workers < 0 || c.Workers > mostWorkers:
		return fmt.Errorf("%s: workers %d: use 0 for GOMAXPROCS or a number up to %d: %w", c.Name, c.Workers, mostWorkers, ErrConfig)
	}
	if err := c.Schedule.validate(c.withDefaults().LearningRate); err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	return nil
}

// validateRanges rejects numbers that are out of range.
func (c Config) validateRanges() error {
	for _, f := range []struct {
		name  string
		value float64
		below float64 // exclusive upper bound
	}{
		{"learning rate", c.LearningRate, math.Inf(1)},
		{"momentum", c.Momentum, 1},
		{"dampening", c.Dampening, math.Nextafter(1, 2)},
		{"beta1", c.Beta1, 1},
		{"beta2", c.Beta2, 1},
		{"epsilon", c.Epsilon, math.Inf(1)},
		{"weight decay", c.WeightDecay, math.Inf(1)},
		{"clip value", c.ClipValue, math.Inf(1)},
		{"average's decay", c.EMADecay, 1},
	} {
		if !(f.value >= 0 && f.value < f.below) { // written so that NaN fails
			return fmt.Errorf("%s: %s %v is out of range: %w", c.Name, f.name, f.value, ErrConfig)
		}
	}
	if !(c.ClipNorm >= 0) {
		return fmt.Errorf("%s: clip norm %v: use 0 for none or a positive norm: %w", c.Name, c.ClipNorm, ErrConfig)
	}
	return nil
}

// validateUnused rejects hyperparameters that the chosen rule never reads.
func (c Config) validateUnused() error {
	adam := c.Name == Adam || c.Name == AdamW
	momentum := c.Name == Momentum
	moments := adam || c.Name == LAMB
	for _, f := range []struct {
		name      string
		set, used bool
		owner     string
	}{
		{"momentum", c.Momentum != 0, momentum || c.Name == Nesterov, "momentum or nesterov"},
		{"dampening", c.Dampening != 0, momentum, Momentum},
		{"nesterov", c.Nesterov, momentum || c.Name == Nesterov, "momentum or nesterov"},
		{"beta1", c.Beta1 != 0, moments || c.Name == Lion, "adam, adamw, lamb or lion"},
		{"beta2", c.Beta2 != 0, moments || c.Name == Lion, "adam, adamw, lamb or lion"},
		{"epsilon", c.Epsilon != 0, moments, "adam, adamw or lamb"},
		{"amsgrad", c.AMSGrad, adam, "adam or adamw"},
	} {
		if f.set && !f.used {
			return fmt.Errorf("%s: %s has no effect: leave it out or use %s: %w", c.Name, f.name, f.owner, ErrConfig)
		}
	}
	return nil
}
