package optim

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// The names of the update rules, for Config.Name.
const (
	SGD      = "sgd"
	Momentum = "momentum"
	Nesterov = "nesterov" // Momentum with Config.Nesterov
	Adam     = "adam"
	AdamW    = "adamw"
	LAMB     = "lamb"
	Lion     = "lion"
)

// Config holds all settings of a Solver. Two equal configs give equal bits.
//
// Zero means the default if the comment names one, otherwise "off". A field that the chosen rule
// does not read must be zero: Validate returns an error for it.
type Config struct {
	Name         string  // the rule: SGD, Momentum, Nesterov, Adam, AdamW, LAMB, Lion; required
	LearningRate float64 // 0 means 0.001; the schedule starts from it

	Momentum  float64 // Momentum, Nesterov: 0 means 0.9 (the rule without momentum is SGD)
	Dampening float64 // Momentum only
	Nesterov  bool    // Momentum only, which it turns into Nesterov; excludes Dampening

	Beta1   float64 // Adam, AdamW, LAMB, Lion: 0 means 0.9; for no mean set a value below 1e-16
	Beta2   float64 // Adam, AdamW, LAMB, Lion: 0 means 0.999, and 0.99 for Lion
	Epsilon float64 // Adam, AdamW, LAMB: 0 means 1e-8, and 1e-6 for LAMB
	AMSGrad bool    // Adam, AdamW: divide by the largest second moment so far

	// WeightDecay is added to the gradient, as WeightDecay*w, by SGD, Momentum, Nesterov and Adam.
	// AdamW and Lion subtract it from the weight directly, times the rate. LAMB adds it to the
	// direction before its norm. 0 means none; AdamW and LAMB then equal Adam. PyTorch's AdamW has
	// 0.01.
	WeightDecay float64

	// Groups lists parameters with a weight decay or rate of their own. A parameter belongs to the
	// first group that matches it, if any.
	Groups []Group

	// ClipNorm scales all gradients by one factor so that their global norm is at most ClipNorm. 0
	// means that the norm is not even measured; math.Inf(1) measures and checks it without
	// clipping.
	ClipNorm float64
	// ClipValue bounds every element of the gradients to -ClipValue..ClipValue, after scaling and
	// clipping by norm. 0 means no bound.
	ClipValue float64

	// SkipNonFinite skips a step if the norm of the gradients is not finite, without an error. Such
	// a step only zeroes the gradients as usual, and Skipped counts it. For scaled losses; it
	// measures the norm.
	SkipNonFinite bool

	// EMADecay keeps an exponential moving average of the weights: average +=
	// (1-EMADecay)*(weight-average) after each step, starting from the weights before the first
	// step. 0 means none.
	EMADecay float64

	Schedule Schedule // how the learning rate changes with the step; zero means constant

	KeepGradients bool // leave gradients as they are instead of zeroing them
	Workers       int  // goroutines of a step, up to 65536; 0 means GOMAXPROCS. The result does not depend on it.
}

// Equal reports whether c and o have equal fields. A zero is not equal to its default: see
// WithDefaults.
func (c Config) Equal(o Config) bool {
	return c.Name == o.Name && c.LearningRate == o.LearningRate &&
		c.Momentum == o.Momentum && c.Dampening == o.Dampening && c.Nesterov == o.Nesterov &&
		c.Beta1 == o.Beta1 && c.Beta2 == o.Beta2 && c.Epsilon == o.Epsilon && c.AMSGrad == o.AMSGrad &&
		c.WeightDecay == o.WeightDecay && slices.EqualFunc(c.Groups, o.Groups, Group.equal) &&
		c.ClipNorm == o.ClipNorm && c.ClipValue == o.ClipValue && c.SkipNonFinite == o.SkipNonFinite &&
		c.EMADecay == o.EMADecay && c.Schedule == o.Schedule &&
		c.KeepGradients == o.KeepGradients && c.Workers == o.Workers
}

// withDefaults returns c with each zero replaced by its default.
func (c Config) withDefaults() Config {
	orDefault := func(v *float64, d float64) {
		if *v == 0 {
			*v = d
		}
	}
	orDefault(&c.LearningRate, 1e-3)
	switch c.Name {
	case Momentum, Nesterov:
		orDefault(&c.Momentum, 0.9)
		c.Nesterov = c.Nesterov || c.Name == Nesterov
	case Adam, AdamW:
		orDefault(&c.Beta1, 0.9)
		orDefault(&c.Beta2, 0.999)
		orDefault(&c.Epsilon, 1e-8)
	case LAMB:
		orDefault(&c.Beta1, 0.9)
		orDefault(&c.Beta2, 0.999)
		orDefault(&c.Epsilon, 1e-6)
	case Lion:
		orDefault(&c.Beta1, 0.9)
		orDefault(&c.Beta2, 0.99)
	}
	c.Schedule = c.Schedule.withDefaults()
	return c
}

// String returns c on one line, with defaults filled in, for a run's log.
func (c Config) String() string {
	c = c.withDefaults()
	var b strings.Builder
	fmt.Fprintf(&b, "%s learning_rate=%g", c.Name, c.LearningRate)
	switch c.Name {
	case Momentum:
		fmt.Fprintf(&b, " momentum=%g dampening=%g nesterov=%t", c.Momentum, c.Dampening, c.Nesterov)
	case Nesterov:
		fmt.Fprintf(&b, " momentum=%g", c.Momentum)
	case Adam, AdamW:
		fmt.Fprintf(&b, " beta1=%g beta2=%g epsilon=%g amsgrad=%t", c.Beta1, c.Beta2, c.Epsilon, c.AMSGrad)
	case LAMB:
		fmt.Fprintf(&b, " beta1=%g beta2=%g epsilon=%g", c.Beta1, c.Beta2, c.Epsilon)
	case Lion:
		fmt.Fprintf(&b, " beta1=%g beta2=%g", c.Beta1, c.Beta2)
	}
	fmt.Fprintf(&b, " weight_decay=%g", c.WeightDecay)
	for i, g := range c.Groups {
		fmt.Fprintf(&b, " group%d=%v", i, g)
	}
	if clip := c.ClipNorm; math.IsInf(clip, 1) {
		b.WriteString(" clip_norm=0") // measured, but not clipped
	} else {
		fmt.Fprintf(&b, " clip_norm=%g", clip)
	}
	if c.ClipValue != 0 {
		fmt.Fprintf(&b, " clip_value=%g", c.ClipValue)
	}
	if c.SkipNonFinite {
		b.WriteString(" skip_nonfinite=true")
	}
	if c.EMADecay != 0 {
		fmt.Fprintf(&b, " ema_decay=%g", c.EMADecay)
	}
	fmt.Fprintf(&b, " schedule=%v", c.Schedule)
	return b.String()
}

// WithDefaults returns c with each zero replaced by its default, for package machine: it updates
// weights as steps of its programs, with the results of New's solvers.
func (c Config) WithDefaults() Config { return c.withDefaults() }

// Measures reports whether steps need the norm of all gradients.
func (c Config) Measures() bool { return c.ClipNorm > 0 || c.SkipNonFinite }

// Slots returns the names of the state kept for each weight, in the order of ParamState.Slots:
// those of the rule, and "ema" last with EMADecay.
func (c Config) Slots() []string {
	slots := newRule(c.withDefaults(), 0).slots()
	if c.EMADecay > 0 {
		slots = append(slots, averageSlot)
	}
	return slots
}
