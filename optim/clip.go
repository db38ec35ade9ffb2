package optim

import (
	"fmt"
	"math"
	"slices"

	gtensor "gorgonia.org/tensor"
)

// clipFactor is what gradients of the given norm are multiplied by so that it becomes at most limit: the rule of
// torch.nn.utils.clip_grad_norm_, which never scales up. An infinite limit gives 1.
func clipFactor(limit, norm float64) float64 {
	return min(limit/(norm+1e-6), 1)
}

// measure sets s.norm to the global norm of the scaled gradients. Squares are summed in float64, each span by itself and
// the spans in order, so that the result depends on neither goroutines nor ranks.
// Errors: ErrNonFinite, naming the first element to blame.
func (s *solver) measure() error {
	s.crew.run(len(s.spans), s.sum)
	var total float64
	for _, sum := range s.sums {
		total += sum
	}
	s.norm = s.scale * math.Sqrt(total)
	if math.IsNaN(s.norm) || math.IsInf(s.norm, 0) {
		return s.blame()
	}
	return nil
}

func (s *solver) sumSpan(i int) {
	sp := s.spans[i]
	p := &s.params[sp.param]
	if p.dtype == gtensor.Float32 {
		s.sums[i] = sumSquares(p.f32.grad[sp.lo:sp.hi])
		return
	}
	s.sums[i] = sumSquares(p.f64.grad[sp.lo:sp.hi])
}

// sumSquares keeps four sums, because one would wait for its own last addition at every element.
func sumSquares[T float](x []T) float64 {
	var a, b, c, d float64
	for len(x) >= 4 {
		x0, x1, x2, x3 := float64(x[0]), float64(x[1]), float64(x[2]), float64(x[3])
		a += float64(x0 * x0)
		b += float64(x1 * x1)
		c += float64(x2 * x2)
		d += float64(x3 * x3)
		x = x[4:]
	}
	for _, v := range x {
		a += float64(float64(v) * float64(v))
	}
	return (a + b) + (c + d)
}

// blame is the error for a norm that is not finite: it names the first gradient element that is not.
func (s *solver) blame() error {
	for i := range s.params {
		p := &s.params[i]
		if at := max(firstNonFinite(p.f32.grad), firstNonFinite(p.f64.grad)); at >= 0 {
			return fmt.Errorf("parameter %d%v: gradient element %d is NaN or infinite: %w", i, p, at, ErrNonFinite)
		}
	}
	return fmt.Errorf("squared gradients overflow, norm %v: %w", s.norm, ErrNonFinite)
}

// firstNonFinite is the index of the first NaN or infinity of x, -1 if there is none.
func firstNonFinite[T float](x []T) int {
	return slices.IndexFunc(x, func(v T) bool { return v-v != 0 })
}
