package optim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// param is one parameter: what the first step saw of it, its state, and for the length of a step its memory.
type param struct {
	name  string // "" if it has none
	shape []int
	dtype gtensor.Dtype
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

// memory is a parameter's flat memory in one dtype; all slices have the parameter's length.
type memory[T float] struct {
	weight, grad []T // borrowed for the length of a step
	slots        [][]T
}

// String is the name and shape as they stand in errors, with a space in front.
func (p *param) String() string {
	if p.name == "" {
		return fmt.Sprintf(" %v", gtensor.Shape(p.shape))
	}
	return fmt.Sprintf(" %s %v", p.name, gtensor.Shape(p.shape))
}

// bind borrows the memory of all weights and gradients for one step, and on the first step makes the state.
// Errors: ErrMismatch, ErrNoGradient, ErrUnsupported, naming the parameter; nothing has been written.
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
			params[i].allocate(s.rule.slots())
		}
		s.adopt(params)
	}
	return nil
}

// adopt makes params the solver's own and cuts them into spans.
func (s *solver) adopt(params []param) {
	s.params = params
	s.spans = s.spans[:0]
	for i := range params {
		s.spans = appendSpans(s.spans, i, shapeSize(params[i].shape))
	}
	s.sums = make([]float64, len(s.spans))
}

// release ends the borrowing, so that the solver keeps no memory of a finished step alive.
func (s *solver) release() {
	for i := range s.params {
		p := &s.params[i]
		p.f32.weight, p.f32.grad, p.f64.weight, p.f64.grad = nil, nil, nil, nil
	}
}

// bind borrows one parameter's memory. The first time it takes over shape and dtype, later it compares them.
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
		p.name, p.shape, p.dtype = strings.TrimSpace(label(vg)), slices.Clone(weight.shape), weight.dtype
	case weight.dtype != p.dtype:
		return fmt.Errorf("weight is %v and the solver's state is %v: %w", weight.dtype, p.dtype, ErrMismatch)
	case !sameOrder(weight.shape, p.shape):
		return fmt.Errorf("weight has shape %v and the solver's state %v: %w", weight.shape, gtensor.Shape(p.shape), ErrMismatch)
	}
	p.f32.weight, p.f32.grad = weight.f32, grad.f32
	p.f64.weight, p.f64.grad = weight.f64, grad.f64
	p.zero = zeroInPass
	if keep || grad.constant {
		p.zero = zeroNever
	}
	return nil
}

// allocate makes zeroed state.
func (p *param) allocate(slots []string) {
	size := shapeSize(p.shape)
	for range slots {
		if p.dtype == gtensor.Float32 {
			p.f32.slots = append(p.f32.slots, make([]float32, size))
		} else {
			p.f64.slots = append(p.f64.slots, make([]float64, size))
		}
	}
}

// region is the memory of one weight or gradient.
type region struct {
	lo, hi uintptr
	param  int
	grad   bool
}

// checkOverlap marks gradients that have memory in common, as the gradients of a and b in a+b do, since they must not be
// zeroed before the last of them has been used.
// Errors: ErrUnsupported if memory is shared that is written: a weight with a weight or a gradient.
func (s *solver) checkOverlap(params []param) error {
	s.regions = s.regions[:0]
	for i := range params {
		p := &params[i]
		weight := flat{dtype: p.dtype, f32: p.f32.weight, f64: p.f64.weight}
		grad := flat{dtype: p.dtype, f32: p.f32.grad, f64: p.f64.grad}
		lo, hi := weight.bounds()
		s.regions = append(s.regions, region{lo: lo, hi: hi, param: i})
		lo, hi = grad.bounds()
		s.regions = append(s.regions, region{lo: lo, hi: hi, param: i, grad: true})
	}
	slices.SortFunc(s.regions, func(a, b region) int { return cmp.Compare(a.lo, b.lo) })
	last := s.regions[0] // of the regions so far, the one that reaches furthest
	for _, r := range s.regions[1:] {
		if r.lo < last.hi && r.lo < r.hi {
			if !r.grad || !last.grad {
				return fmt.Errorf("%v and %v share memory: give each its own, and a weight used twice only once: %w", last, r, ErrUnsupported)
			}
			for _, i := range [...]int{r.param, last.param} {
				params[i].zero = max(params[i].zero, zeroAfterPass)
			}
		}
		if r.hi > last.hi {
			last = r
		}
	}
	return nil
}

// String is the region as it stands in errors.
func (r region) String() string {
	if r.grad {
		return fmt.Sprintf("gradient of parameter %d", r.param)
	}
	return fmt.Sprintf("weight of parameter %d", r.param)
}
