package optim

import (
	"fmt"

	"gorgonia.org/gorgonia"
)

// averageSlot is the name of the last slot, which Config.EMADecay adds.
const averageSlot = "ema"

// averagesOf returns the averages of a parameter.
func averagesOf[T float](m *memory[T]) []T { return m.slots[len(m.slots)-1] }

// startAverages sets the averages of a span to its weights, before their first step.
func startAverages[T float](m *memory[T], sp span) {
	copy(averagesOf(m)[sp.lo:sp.hi], m.weight[sp.lo:sp.hi])
}

// moveAverages moves the averages of a span towards the weights. It adds a share of the difference,
// so that the average of a constant weight is exactly the weight.
func moveAverages[T float](add T, m *memory[T], sp span) {
	weight, average := m.weight[sp.lo:sp.hi], averagesOf(m)[sp.lo:sp.hi]
	average = average[:len(weight)]
	for i, w := range weight {
		average[i] += T(add * (w - average[i]))
	}
}

// moveAverages32 is moveAverages for float32, with assembly if the processor has it.
func moveAverages32(add float32, m *memory[float32], sp span) {
	if n := vectorLen(sp.hi - sp.lo); n > 0 {
		averageF32(add, &averagesOf(m)[sp.lo], &m.weight[sp.lo], n)
		sp.lo += n
	}
	moveAverages(add, m, sp)
}

func exchange[T float](a, b []T) {
	b = b[:len(a)]
	for i, v := range a {
		a[i], b[i] = b[i], v
	}
}

// bindWeights borrows the model's weights. Errors: ErrMismatch, ErrNoGradient for a weight without
// a value, ErrUnsupported, naming the parameter.
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
