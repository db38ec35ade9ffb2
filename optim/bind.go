package optim

import (
	"fmt"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// param is one parameter: what the first step saw of it, its state, and for the length of a step
// its memory.
type param struct {
	name  string // "" if it has none
	shape []int
	dtype gtensor.Dtype
	first int             // of the elements that are owned: a multiple of Block
	count int             // of them
	block int             // number of the parameter's first block among the blocks of all parameters
	group int             // number of the rule that updates it
	f32   memory[float32] // one of f32 and f64 is used, as dtype says
	f64   memory[float64]

	zero zeroing // of this step
}

// zeroing is when a step zeroes a gradient.
type zeroing uint8

const (
	zeroInPass    zeroing = iota // right after its use
	zeroAfterPass                // its memory is also another parameter's gradient, which must see it first
	zeroNever                    // Config.KeepGradients, or a constant of the graph
)

// memory is the flat memory of what is owned of a parameter, in one dtype; all slices have the
// length param.count.
type memory[T float] struct {
	weight, grad []T // borrowed for the length of a step
	slots        [][]T
	rate         T // of this step, where the rule has one for each parameter
}

// String is the name and shape as they stand in errors, with a space in front.
func (p *param) String() string {
	if p.name == "" {
		return fmt.Sprintf(" %v", gtensor.Shape(p.shape))
	}
	return fmt.Sprintf(" %s %v", p.name, gtensor.Shape(p.shape))
}

// bind borrows the memory of all weights and gradients for one step, and on the first step makes
// the state. Errors: ErrMismatch, ErrNoGradient, ErrUnsupported, naming the parameter; nothing has
// been written.
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

// release ends the borrowing, so that the solver keeps no memory of a finished step alive.
func (s *solver) release() {
	for i := range s.params {
		p := &s.params[i]
		p.f32.weight, p.f32.grad, p.f64.weight, p.f64.grad = nil, nil, nil, nil
	}
}

// bind borrows one parameter's memory. The first time it takes over shape and dtype, later it
// compares them.
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

// fits compares a weight with the parameter.
// Errors: ErrMismatch.
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
