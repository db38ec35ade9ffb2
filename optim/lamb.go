package optim

import (
	"fmt"
	"math"

	gtensor "gorgonia.org/tensor"
)

// lamb is LAMB (You and others, arXiv:1904.00962, algorithm 2) with bias corrections. With mean and
// square the state of the weight, t the number of the step and |x| the Euclidean norm over all
// elements of the parameter:
//
//	mean = beta1*mean + (1-beta1)*grad
//	square = beta2*square + (1-beta2)*grad*grad
//	u = mean/(1-beta1^t) / (sqrt(square)/sqrt(1-beta2^t) + epsilon) + weightDecay*w
//	trust = |w|/|u|                                   1 if one of them is 0, or weightDecay is
//	w -= rate * trust * u
//
// NVIDIA's FusedLAMB (apex) and timm's Lamb also do not adapt the rate of parameters without weight
// decay by default, and then do not bound the trust ratio either. Both clip the global gradient
// norm; here that is Config.ClipNorm.
type lamb struct {
	beta1, beta2, epsilon float64
	weightDecay           float64

	rate    float64 // of the step
	terms32 lambTerms[float32]
	terms64 lambTerms[float64]
}

// lambTerms are the scalars of one step; the rate is the parameter's own.
type lambTerms[T float] struct {
	scale, decay T
	keep1, add1  T // beta1, 1-beta1
	keep2, add2  T
	size         T // 1/(1-beta1^t)
	root         T // sqrt(1-beta2^t)
	epsilon      T
}

func (r *lamb) slots() []string { return []string{"exp_avg", "exp_avg_sq"} }

func (r *lamb) prepare(rate, scale float64, step int) {
	t := lambTerms[float64]{
		scale: scale, decay: r.weightDecay,
		keep1: r.beta1, add1: 1 - r.beta1,
		keep2: r.beta2, add2: 1 - r.beta2,
		size:    1 / (1 - math.Pow(r.beta1, float64(step))),
		root:    math.Sqrt(1 - math.Pow(r.beta2, float64(step))),
		epsilon: r.epsilon,
	}
	r.rate, r.terms64 = rate, t
	r.terms32 = lambTerms[float32]{
		scale: float32(t.scale), decay: float32(t.decay),
		keep1: float32(t.keep1), add1: float32(t.add1),
		keep2: float32(t.keep2), add2: float32(t.add2),
		size: float32(t.size), root: float32(t.root), epsilon: float32(t.epsilon),
	}
}

// trust returns the trust ratio of a parameter, from the sums of its squared weights and squared
// directions.
func (r *lamb) trust(weights, directions float64) float64 {
	if r.weightDecay == 0 || weights == 0 || directions == 0 {
		return 1
	}
	return math.Sqrt(weights) / math.Sqrt(directions)
}

func (r *lamb) update32(m *memory[float32], grad []float32, lo, hi int) {
	if n := vectorLen(hi - lo); n > 0 {
		lambF32(&r.terms32, m.rate, &m.weight[lo], &grad[0], &m.slots[0][lo], &m.slots[1][lo], n)
		lo, grad = lo+n, grad[n:]
	}
	lambPass(r.terms32, m.rate, m.weight[lo:hi], grad, m.slots[0][lo:hi], m.slots[1][lo:hi])
}

func (r *lamb) update64(m *memory[float64], grad []float64, lo, hi int) {
	lambPass(r.terms64, m.rate, m.weight[lo:hi], grad, m.slots[0][lo:hi], m.slots[1][lo:hi])
}

// squares32 writes the sum of squared directions of each block of a span to sums. It writes nothing
// else: computing the directions again in the update is cheaper than storing them.
func (r *lamb) squares32(m *memory[float32], grad []float32, lo, hi int, sums []float64) {
	var directions [Block]float32
	for n := min(Block, hi-lo); vectorLen(n) == Block; n = min(Block, hi-lo) {
		lambDirectionsF32(&r.terms32, &directions[0], &m.weight[lo], &grad[0], &m.slots[0][lo], &m.slots[1][lo], n)
		var sum float64
		for _, u := range directions {
			sum += float64(float64(u) * float64(u))
		}
		sums[0] = sum
		lo, grad, sums = lo+n, grad[n:], sums[1:]
	}
	lambSquares(r.terms32, m.weight[lo:hi], grad, m.slots[0][lo:hi], m.slots[1][lo:hi], sums)
}

func (r *lamb) squares64(m *memory[float64], grad []float64, lo, hi int, sums []float64) {
	lambSquares(r.terms64, m.weight[lo:hi], grad, m.slots[0][lo:hi], m.slots[1][lo:hi], sums)
}

func lambPass[T float](t lambTerms[T], rate T, weight, grad, mean, square []T) {
	grad, mean, square = grad[:len(weight)], mean[:len(weight)], square[:len(weight)]
	for i, w := range weight {
		g := T(t.scale * grad[i])
		m := T(t.keep1*mean[i]) + T(t.add1*g)
		v := T(t.keep2*square[i]) + T(T(t.add2*g)*g)
		u := lambDirection(t, w, m, v)
		mean[i], square[i] = m, v
		weight[i] = w - T(rate*u)
	}
}

func lambSquares[T float](t lambTerms[T], weight, grad, mean, square []T, sums []float64) {
	grad, mean, square = grad[:len(weight)], mean[:len(weight)], square[:len(weight)]
	var sum float64
	for i, w := range weight {
		g := T(t.scale * grad[i])
		m := T(t.keep1*mean[i]) + T(t.add1*g)
		v := T(t.keep2*square[i]) + T(T(t.add2*g)*g)
		u := float64(lambDirection(t, w, m, v))
		sum += float64(u * u)
		if i%Block == Block-1 || i == len(weight)-1 {
			sums[i/Block], sum = sum, 0
		}
	}
}

// lambDirection returns the direction of the weight's step, from the moments of this step.
func lambDirection[T float](t lambTerms[T], w, m, v T) T {
	return T(T(t.size*m)/(T(T(math.Sqrt(float64(v)))/t.root)+t.epsilon)) + T(t.decay*w)
}

// adapt sets the rate of each parameter for this step. If the gradients' norm was measured, the
// weights' norms are known. Otherwise one exchange sums weights and directions together. Errors:
// those of the exchange.
func (e *engine) adapt() error {
	n := e.blocks
	if !e.config.Measures() {
		n = len(e.sums)
	}
	if err := e.sum(e.passes.directions, n); err != nil {
		return fmt.Errorf("sum of squared directions: %w", err)
	}
	for i := range e.params {
		p := &e.params[i]
		r, ok := e.rules[p.group].(*lamb)
		if !ok {
			continue
		}
		lo, hi := p.block, p.block+blocksOf(shapeSize(p.shape))
		rate := r.rate * r.trust(total(e.sums[e.blocks+lo:e.blocks+hi]), total(e.sums[lo:hi]))
		p.f32.rate, p.f64.rate = float32(rate), rate
	}
	return nil
}

// directionsOfSpan sums the squared directions of a span by block, and its squared weights if no
// other pass does.
func (e *engine) directionsOfSpan(worker, i int) {
	sp, p, at := e.span(i)
	r, ok := e.rules[p.group].(*lamb)
	if !ok {
		return
	}
	if p.dtype == gtensor.Float32 {
		r.squares32(&p.f32, e.grad32(worker, p, sp), sp.lo, sp.hi, e.sums[at:])
	} else {
		r.squares64(&p.f64, e.grad64(worker, p, sp), sp.lo, sp.hi, e.sums[at:])
	}
	if !e.config.Measures() {
		e.squaresOfWeights(sp, p, at)
	}
}
