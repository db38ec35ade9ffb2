package optim

import (
	"fmt"
	"math"
	"strings"
)

// The names of the update rules, for Config.Name.
const (
	SGD      = "sgd"
	Momentum = "momentum"
	Adam     = "adam"
	AdamW    = "adamw"
)

// Config is everything that decides what a Solver does. It is a plain value: two equal configs give equal bits.
//
// Zero means the default where the comment names one, and nothing otherwise. A field that the chosen rule does not read
// must be zero: a hyperparameter that silently does nothing is reported instead.
type Config struct {
	Name         string  // the rule: SGD, Momentum, Adam, AdamW; required
	LearningRate float64 // 0 means 0.001; the schedule starts from it

	Momentum  float64 // Momentum only: 0 means 0.9 (the rule without momentum is SGD)
	Dampening float64 // Momentum only
	Nesterov  bool    // Momentum only; excludes Dampening

	Beta1   float64 // Adam, AdamW: 0 means 0.9; any value below 1e-16 acts as none
	Beta2   float64 // Adam, AdamW: 0 means 0.999
	Epsilon float64 // Adam, AdamW: 0 means 1e-8
	AMSGrad bool    // Adam, AdamW: divide by the largest second moment so far

	// WeightDecay is added to the gradient as WeightDecay*w by SGD, Momentum and Adam, and taken straight from the weight
	// by AdamW. It is required for AdamW (PyTorch's default is 0.01), because AdamW without it is Adam.
	WeightDecay float64

	// ClipNorm scales all gradients together so that their global norm is at most this. 0 means that the norm is not
	// even measured; math.Inf(1) measures and checks it without clipping.
	ClipNorm float64

	Schedule Schedule // how the learning rate changes with the step; zero means constant

	KeepGradients bool // leave gradients as they are instead of zeroing them
	Workers       int  // goroutines of a step; 0 means GOMAXPROCS. The result does not depend on it.
}

// Validate reports the first thing wrong with c.
// Errors: ErrConfig, naming the field, its value and what it may be.
func (c Config) Validate() error {
	switch c.Name {
	case SGD, Momentum, Adam, AdamW:
	default:
		return fmt.Errorf("name %q: use %s, %s, %s or %s: %w", c.Name, SGD, Momentum, Adam, AdamW, ErrConfig)
	}
	if err := c.validateUnused(); err != nil {
		return err
	}
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
	} {
		if !(f.value >= 0 && f.value < f.below) { // written so that NaN fails
			return fmt.Errorf("%s: %s %v is out of range: %w", c.Name, f.name, f.value, ErrConfig)
		}
	}
	switch {
	case !(c.ClipNorm >= 0):
		return fmt.Errorf("%s: clip norm %v: use 0 for none or a positive norm: %w", c.Name, c.ClipNorm, ErrConfig)
	case c.Nesterov && c.Dampening != 0:
		return fmt.Errorf("%s: nesterov excludes dampening, which is %v: %w", c.Name, c.Dampening, ErrConfig)
	case c.Name == AdamW && c.WeightDecay == 0:
		return fmt.Errorf("adamw: weight decay is 0: set it (a usual value is 0.01) or use adam, which is adamw without it: %w", ErrConfig)
	case c.Workers < 0:
		return fmt.Errorf("%s: workers %d: use 0 for GOMAXPROCS or a positive number: %w", c.Name, c.Workers, ErrConfig)
	}
	if err := c.Schedule.validate(c.withDefaults().LearningRate); err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	return nil
}

// validateUnused refuses hyperparameters that the chosen rule never reads.
func (c Config) validateUnused() error {
	adam := c.Name == Adam || c.Name == AdamW
	momentum := c.Name == Momentum
	for _, f := range []struct {
		name      string
		set, used bool
		owner     string
	}{
		{"momentum", c.Momentum != 0, momentum, Momentum},
		{"dampening", c.Dampening != 0, momentum, Momentum},
		{"nesterov", c.Nesterov, momentum, Momentum},
		{"beta1", c.Beta1 != 0, adam, "adam or adamw"},
		{"beta2", c.Beta2 != 0, adam, "adam or adamw"},
		{"epsilon", c.Epsilon != 0, adam, "adam or adamw"},
		{"amsgrad", c.AMSGrad, adam, "adam or adamw"},
	} {
		if f.set && !f.used {
			return fmt.Errorf("%s: %s has no effect: leave it out or use %s: %w", c.Name, f.name, f.owner, ErrConfig)
		}
	}
	return nil
}

// withDefaults is c with every zero that means a default replaced by it.
func (c Config) withDefaults() Config {
	orDefault := func(v *float64, d float64) {
		if *v == 0 {
			*v = d
		}
	}
	orDefault(&c.LearningRate, 1e-3)
	switch c.Name {
	case Momentum:
		orDefault(&c.Momentum, 0.9)
	case Adam, AdamW:
		orDefault(&c.Beta1, 0.9)
		orDefault(&c.Beta2, 0.999)
		orDefault(&c.Epsilon, 1e-8)
	}
	c.Schedule = c.Schedule.withDefaults()
	return c
}

// String is c on one line with defaults filled in: what a run's log says about its optimizer.
func (c Config) String() string {
	c = c.withDefaults()
	var b strings.Builder
	fmt.Fprintf(&b, "%s learning_rate=%g", c.Name, c.LearningRate)
	switch c.Name {
	case Momentum:
		fmt.Fprintf(&b, " momentum=%g dampening=%g nesterov=%t", c.Momentum, c.Dampening, c.Nesterov)
	case Adam, AdamW:
		fmt.Fprintf(&b, " beta1=%g beta2=%g epsilon=%g amsgrad=%t", c.Beta1, c.Beta2, c.Epsilon, c.AMSGrad)
	}
	fmt.Fprintf(&b, " weight_decay=%g clip_norm=%g schedule=%v", c.WeightDecay, c.ClipNorm, c.Schedule)
	return b.String()
}
