package optim

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// Solver is a gorgonia.Solver that can be watched, steered and saved. It is not for use by several goroutines at once.
type Solver interface {
	// Step updates every weight of the model from its gradient and zeroes the gradient, unless Config.KeepGradients says
	// otherwise or the gradient is a constant of the graph.
	// Shapes: weight and gradient of a parameter have one shape (dims of size 1 apart) and one dtype, float32 or
	// float64, and are *tensor.Dense with C-order contiguous memory, or *gorgonia.F32 or *gorgonia.F64.
	// Owns: nothing after it returns; state of the solver's own, made at the first step.
	// Errors: ErrMismatch, ErrNoGradient, ErrUnsupported, ErrNonFinite, each naming the parameter. After an error no
	// weight, gradient or state has changed and the step does not count.
	gorgonia.Solver

	// LearningRate is the rate of the next step.
	LearningRate() float64
	// SetLearningRate replaces the rate that the schedule starts from.
	// Errors: ErrConfig if it is not finite and at least 0.
	SetLearningRate(base float64) error
	// SetGradientScale makes this and later steps multiply every gradient by scale first, before its norm is taken and
	// clipped: 1/weight for a weighted sum of gradients, 1/loss scale for a scaled loss. It is 1 at the start.
	// Errors: ErrConfig if it is not finite and positive.
	SetGradientScale(scale float64) error
	// Steps is the number of steps made, those before a restored State included.
	Steps() int
	// GradNorm is the global norm of the scaled gradients of the last Step before clipping, the one that was refused
	// included; NaN if Config.ClipNorm is 0 or before the first step.
	GradNorm() float64

	// State is a copy of what SetState needs for going on from here.
	State() State
	// SetState makes the solver go on from st, before the first step or at any later time.
	// Errors: ErrMismatch, and the solver is as before.
	SetState(st State) error
}

// New is a Solver for c.
// Errors: ErrConfig.
func New(c Config) (Solver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	s := &solver{config: c, rate: c.LearningRate, scale: 1, norm: math.NaN(), rule: newRule(c), crew: newCrew(c.Workers)}
	s.sum, s.update = s.sumSpan, s.updateSpan
	return s, nil
}

// rule is one update rule over flat memory.
type rule interface {
	slots() []string // names of the state kept for each weight, in the order of memory.slots
	prepare(rate, scale float64, step int)
	update32(m *memory[float32], lo, hi int)
	update64(m *memory[float64], lo, hi int)
}

func newRule(c Config) rule {
	switch c.Name {
	case SGD:
		return &sgd{weightDecay: c.WeightDecay}
	case Momentum:
		return &momentum{momentum: c.Momentum, dampening: c.Dampening, nesterov: c.Nesterov, weightDecay: c.WeightDecay}
	default: // Validate let no other name through
		return &adam{
			beta1: c.Beta1, beta2: c.Beta2, epsilon: c.Epsilon, amsgrad: c.AMSGrad,
			weightDecay: c.WeightDecay, decoupled: c.Name == AdamW,
		}
	}
}

// solver runs one rule over the spans of the parameters.
type solver struct {
	config Config // with defaults
	rule   rule
	rate   float64 // what the schedule starts from
	scale  float64
	norm   float64
	steps  int

	params  []param // nil until the first step or SetState
	spans   []span
	sums    []float64 // of squared gradients, one a span
	regions []region  // scratch of checkOverlap

	crew        *crew
	sum, update func(span int) // method values, made once because making one allocates
}

func (s *solver) LearningRate() float64 { return s.config.Schedule.Rate(s.rate, s.steps) }
func (s *solver) Steps() int            { return s.steps }
func (s *solver) GradNorm() float64     { return s.norm }

func (s *solver) SetLearningRate(base float64) error {
	if !(base >= 0) || math.IsInf(base, 1) {
		return fmt.Errorf("%s: learning rate %v: it must be finite and at least 0: %w", s.config.Name, base, ErrConfig)
	}
	s.rate = base
	return nil
}

func (s *solver) SetGradientScale(scale float64) error {
	if !(scale > 0) || math.IsInf(scale, 1) {
		return fmt.Errorf("%s: gradient scale %v: it must be finite and positive: %w", s.config.Name, scale, ErrConfig)
	}
	s.scale = scale
	return nil
}

func (s *solver) Step(model []gorgonia.ValueGrad) error {
	defer s.release()
	if err := s.bind(model); err != nil {
		return fmt.Errorf("%s step %d: %w", s.config.Name, s.steps+1, err)
	}
	scale := s.scale
	if s.config.ClipNorm > 0 {
		if err := s.measure(); err != nil {
			return fmt.Errorf("%s step %d: %w", s.config.Name, s.steps+1, err)
		}
		scale *= clipFactor(s.config.ClipNorm, s.norm)
	}
	s.rule.prepare(s.LearningRate(), scale, s.steps+1)
	s.crew.run(len(s.spans), s.update)
	s.zeroShared()
	s.steps++
	return nil
}

// updateSpan updates the weights of one span. Its gradients are zeroed while they are still in the cache, which costs
// nearly nothing next to a pass of its own.
func (s *solver) updateSpan(i int) {
	sp := s.spans[i]
	p := &s.params[sp.param]
	zero := p.zero == zeroInPass
	if p.dtype == gtensor.Float32 {
		s.rule.update32(&p.f32, sp.lo, sp.hi)
		if zero {
			clear(p.f32.grad[sp.lo:sp.hi])
		}
		return
	}
	s.rule.update64(&p.f64, sp.lo, sp.hi)
	if zero {
		clear(p.f64.grad[sp.lo:sp.hi])
	}
}

// zeroShared zeroes the gradients that several parameters have in common.
func (s *solver) zeroShared() {
	for i := range s.params {
		if p := &s.params[i]; p.zero == zeroAfterPass {
			clear(p.f32.grad)
			clear(p.f64.grad)
		}
	}
}
