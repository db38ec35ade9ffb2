package optim

import (
	"fmt"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// param is one parameter: its name, shape and dtype at the first step, its state, and its memory,
// which a Solver borrows for one step.
type param struct {
	name  string // "" if it has none
	shape []int
	dtype gtensor.Dtype
	first int             // first owned element: a multiple of Block
	count int             // number of owned elements
	block int             // number of the parameter's first block among the blocks of all parameters
	group int             // number of the rule that updates it
	f32   memory[float32] // f32 or f64 is used, by dtype
	f64   memory[float64]

	zero zeroing // of this step
}

// zeroing is the time at which a step zeroes a gradient.
type zeroing uint8

const (
	zeroInPass    zeroing = iota // right after its use
	zeroAfterPass                // after the step: the memory is also another parameter's gradient
	zeroNever                    // with Config.KeepGradients, or for a constant of the graph
)

// memory is the flat memory of a parameter's owned elements, in one dtype; all slices have the
// length param.count.
type memory[T float] struct {
	weight, grad []T // borrowed for the length of a step
	slots        [][]T
	rate         T // of this step, if the rule has a rate for each parameter
}

// String returns name and shape for errors, with a leading space.
func (p *param) String() string {
	if p.name == "" {
		return fmt.Sprintf(" %v", gtensor.Shape(p.shape))
	}
	return fmt.Sprintf(" %s %v", p.name, gtensor.Shape(p.shape))
}

// bind borrows the memory of all weights and gradients for one step. On the first step it makes the
// state. Errors: ErrMismatch, ErrNoGradient, ErrUnsupported, naming the parameter; nothing was
// written.
func (s *solver) bind(model []gorgonia.ValueGrad) error {
	first := s.params == nil
	params := s.params
	if first {
		params = make([]param, len(model))
	}
	switch {
	case len(model) == 0:
		return fmt.Errorf("the model has no parameters: %w", ErrMismatch)
	case len(model) != len(params):
		return fmt.Errorf("the model has %d parameters and the solver has state for %d: %w", len(model), len(params), ErrMismatch)
	}
	for i, vg := range model {
		if err := params[i].bind(vg, first, s.config.KeepGradients); err != nil {
			return fmt.Errorf("parameter %d%s: %w", i, label(vg), err)
		}
	}
	if err := s.checkOverlap(params); err != nil {
		return err
	}
	if first {
		for i := range params {
			params[i].count = shapeSize(params[i].shape)
			params[i].allocate(s.slots)
		}
		s.adopt(params)
	}
	if !s.named {
		for i, vg := range model {
			p := &params[i]
			p.name = strings.TrimSpace(label(vg))
			p.group = s.config.group(p.name, p.shape)
		}
		s.named = true
	}
	return nil
}

// release drops the borrowed memory, so that the solver does not keep it alive after a step.
func (s *solver) release() {
	for i := range s.params {
		p := &s.params[i]
		p.f32.weight, p.f32.grad, p.f64.weight, p.f64.grad = nil, nil, nil, nil
	}
}

// bind borrows one parameter's memory. The first call sets shape and dtype, later calls compare
// them.
func (p *param) bind(vg gorgonia.ValueGrad, first, keep bool) error {
	if missing(vg) {
		return fmt.Errorf("it is nil: %w", ErrNoGradient)
	}
	weight, err := flatten(vg.Value())
	if err != nil {
		return fmt.Errorf("weight: %w", err)
	}
	grad, err := gradient(vg)
	if err != nil {
		return err
	}
	switch {
	case grad.dtype != weight.dtype:
		return fmt.Errorf("weight is %v and gradient is %v: %w", weight.dtype, grad.dtype, ErrMismatch)
	case !sameOrder(grad.shape, weight.shape):
		return fmt.Errorf("weight has shape %v and gradient has shape %v: %w", weight.shape, grad.shape, ErrMismatch)
	case first:
		p.shape, p.dtype = slices.Clone(weight.shape), weight.dtype
	}
	if err := p.fits(weight); err != nil {
		return err
	}
	p.f32.weight, p.f32.grad = weight.f32, grad.f32
	p.f64.weight, p.f64.grad = weight.f64, grad.f64
	p.zero = zeroInPass
	if keep || grad.constant {
		p.zero = zeroNever
	}
	return nil
}

// fits checks a weight's shape and dtype against the parameter. Errors: ErrMismatch.
func (p *param) fits(weight flat) error {
	switch {
	case weight.dtype != p.dtype:
		return fmt.Errorf("weight is %v and the solver's state is %v: %w", weight.dtype, p.dtype, ErrMismatch)
	case !sameOrder(weight.shape, p.shape):
		return fmt.Errorf("weight has shape %v and the solver's state %v: %w", weight.shape, gtensor.Shape(p.shape), ErrMismatch)
	}
	return nil
}

// allocate makes zeroed state.
func (p *param) allocate(slots []string) {
	for range slots {
		if p.dtype == gtensor.Float32 {
			p.f32.slots = append(p.f32.slots, make([]float32, p.count))
		} else {
			p.f64.slots = append(p.f64.slots, make([]float64, p.count))
		}
	}
}
