package optim

import "math"

// lion is Lion (Chen and others, arXiv:2302.06675, algorithm 2). With mean the state of the weight:
//
//	direction = sign(beta1*mean + (1-beta1)*grad)
//	mean = beta2*mean + (1-beta2)*grad
//	w -= rate*(direction + weightDecay*w)
//
// The sign of 0 is 0. The sign of NaN is NaN, so that it shows.
type lion struct {
	beta1, beta2, weightDecay float64

	terms32 lionTerms[float32]
	terms64 lionTerms[float64]
}

// lionTerms are the scalars of one step.
type lionTerms[T float] struct {
	scale, rate, fade T
	look1, look2      T // beta1, 1-beta1
	keep, add         T // beta2, 1-beta2
}

func (r *lion) slots() []string { return []string{"exp_avg"} }

func (r *lion) prepare(rate, scale float64, _ int) {
	t := lionTerms[float64]{
		scale: scale, rate: rate, fade: rate * r.weightDecay,
		look1: r.beta1, look2: 1 - r.beta1, keep: r.beta2, add: 1 - r.beta2,
	}
	r.terms64 = t
	r.terms32 = lionTerms[float32]{
		scale: float32(t.scale), rate: float32(t.rate), fade: float32(t.fade),
		look1: float32(t.look1), look2: float32(t.look2), keep: float32(t.keep), add: float32(t.add),
	}
}

func (r *lion) update32(m *memory[float32], grad []float32, lo, hi int) {
	if n := vectorLen(hi - lo); n > 0 {
		lionF32(&r.terms32, &m.weight[lo], &grad[0], &m.slots[0][lo], n)
		lo, grad = lo+n, grad[n:]
	}
	lionPass(r.terms32, m.weight[lo:hi], grad, m.slots[0][lo:hi])
}

func (r *lion) update64(m *memory[float64], grad []float64, lo, hi int) {
	lionPass(r.terms64, m.weight[lo:hi], grad, m.slots[0][lo:hi])
}

func lionPass[T float](t lionTerms[T], weight, grad, mean []T) {
	grad, mean = grad[:len(weight)], mean[:len(weight)]
	for i, w := range weight {
		g, m := T(t.scale*grad[i]), mean[i]
		c := T(t.look1*m) + T(t.look2*g)
		mean[i] = T(t.keep*m) + T(t.add*g)
		direction := T(math.Copysign(1, float64(c))) // no branch: signs of gradients are unpredictable
		if c == 0 || c != c {
			direction = c
		}
		weight[i] = w - (T(t.rate*direction) + T(t.fade*w))
	}
}
