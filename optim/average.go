package optim

import (
	"fmt"

	"gorgonia.org/gorgonia"
)

// averageSlot is the name of the slot of Config.EMADecay, the last one.
const averageSlot = "ema"

// averagesOf is the averages of a parameter.
func averagesOf[T float](m *memory[T]) []T { return m.slots[len(m.slots)-1] }

// startAverages makes the averages of a span its weights, before their first step.
func startAverages[T float](m *memory[T], sp span) {
	copy(averagesOf(m)[sp.lo:sp.hi], m.weight[sp.lo:sp.hi])
}

// moveAverages moves the averages of a span towards the weights: by the difference, so that the
// averages of weights that stay are exactly these.
func moveAverages[T float](add T, m *memory[T], sp span) {
	weight, average := m.weight[sp.lo:sp.hi], averagesOf(m)[sp.lo:sp.hi]
	average = average[:len(weight)]
	for i, w := range weight {
		average[i] += T(add * (w - average[i]))
	}
}

// moveAverages32 is moveAverages of float32, with assembly where there is some.
func moveAverages32(add float32, m *memory[float32], sp span) {
	if n := vectorLen(sp.hi - sp.lo); n > 0 {
		averageF32(add, &averagesOf(m)[sp.lo], &m.weight[sp.lo], n)
		sp.lo += n
	}
	moveAverages(add, m, sp)
}

// averages reports whether there are averages to swap.
func (e *engine) averages() error {
	if e.config.EMADecay == 0 {
		return fmt.Errorf("no averages are kept: set EMADecay: %w", ErrConfig)
	}
	return nil
}

// swap exchanges the weights that are bound and their averages.
func (e *engine) swap() {
	for i := range e.params {
		p := &e.params[i]
		if len(p.f32.slots) > 0 {
			exchange(p.f32.weight, averagesOf(&p.f32))
		}
		if len(p.f64.slots) > 0 {
			exchange(p.f64.weight, averagesOf(&p.f64))
		}
	}
	e.swapped = !e.swapped
}

func exchange[T float](a, b []T) {
	b = b[:len(a)]
	for i, v := range a {
		a[i], b[i] = b[i], v
	}
}

// bindWeights borrows the weights of a model that the solver has state for. Errors: ErrMismatch,
// ErrNoGradient for a weight without a value, ErrUnsupported, naming the parameter.
func (s *solver) bindWeights(model []gorgonia.ValueGrad) error {
	if len(model) != len(s.params) {
		return fmt.Errorf("the model has %d parameters and the solver has state for %d: %w", len(model), len(s.params), ErrMismatch)
	}
	for i, vg := range model {
		if err := s.params[i].bindWeight(vg); err != nil {
			return fmt.Errorf("parameter %d%s: %w", i, label(vg), err)
		}
	}
	return nil
}

func (p *param) bindWeight(vg gorgonia.ValueGrad) error {
	if missing(vg) {
		return fmt.Errorf("it is nil: %w", ErrNoGradient)
	}
	weight, err := flatten(vg.Value())
	if err != nil {
		return fmt.Errorf("weight: %w", err)
	}
	p.f32.weight, p.f64.weight = weight.f32, weight.f64
	return p.fits(weight)
}
