package optim

import (
	"cmp"
	"fmt"
	"slices"
)

// region is the memory of one weight or gradient.
type region struct {
	lo, hi uintptr
	param  int
	grad   bool
}

// checkOverlap marks gradients that share memory, such as the gradients of a and b in a+b: they
// must be zeroed after the last use. Errors: ErrUnsupported if a weight shares memory with another
// weight or a gradient.
func (e *engine) checkOverlap(params []param) error {
	e.regions = e.regions[:0]
	for i := range params {
		p := &params[i]
		weight := flat{dtype: p.dtype, f32: p.f32.weight, f64: p.f64.weight}
		grad := flat{dtype: p.dtype, f32: p.f32.grad, f64: p.f64.grad}
		lo, hi := weight.bounds()
		e.regions = append(e.regions, region{lo: lo, hi: hi, param: i})
		lo, hi = grad.bounds()
		e.regions = append(e.regions, region{lo: lo, hi: hi, param: i, grad: true})
	}
	slices.SortFunc(e.regions, func(a, b region) int { return cmp.Compare(a.lo, b.lo) })
	last := e.regions[0] // the region so far with the highest end
	for _, r := range e.regions[1:] {
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

// String returns the region for errors.
func (r region) String() string {
	if r.grad {
		return fmt.Sprintf("gradient of parameter %d", r.param)
	}
	return fmt.Sprintf("weight of parameter %d", r.param)
}
