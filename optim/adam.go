package optim

import "math"

// adam is Adam (Kingma and Ba, arXiv:1412.6980) and AdamW (Loshchilov and Hutter,
// arXiv:1711.05101). With mean, square and largest the state of the weight and t the number of the
// step:
//
//	g = grad + weightDecay*w                          Adam
//	g = grad                                          AdamW
//	mean = beta1*mean + (1-beta1)*g
//	square = beta2*square + (1-beta2)*g*g
//	largest = max(largest, square)                    amsgrad (arXiv:1904.09237); else square
//	w -= rate/(1-beta1^t) * mean / (sqrt(largest)/sqrt(1-beta2^t) + epsilon)
//	w -= rate*weightDecay*w                           AdamW, with w before the step
//
// The code subtracts the sum of both terms at once, so that a float32 weight is rounded once. It
// never rounds 1-rate*weightDecay, whose rounding error would recur in every step.
type adam struct {
	beta1, beta2, epsilon float64
	weightDecay           float64
	decoupled             bool // AdamW
	amsgrad               bool

	terms32 adamTerms[float32]
	terms64 adamTerms[float64]
}

// adamTerms are the scalars of one step. decay is 0 for AdamW, and fade is 0 for Adam.
type adamTerms[T float] struct {
	scale, decay, fade T
	keep1, add1        T // beta1, 1-beta1
	keep2, add2        T
	size               T // rate/(1-beta1^t)
	root               T // sqrt(1-beta2^t)
	epsilon            T
}

func (r *adam) slots() []string {
	if r.amsgrad {
		return []string{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}
	}
	return []string{"exp_avg", "exp_avg_sq"}
}

func (r *adam) prepare(rate, scale float64, step int) {
	t := adamTerms[float64]{
		scale: scale, decay: r.weightDecay,
		keep1: r.beta1, add1: 1 - r.beta1,
		keep2: r.beta2, add2: 1 - r.beta2,
		size:    rate / (1 - math.Pow(r.beta1, float64(step))),
		root:    math.Sqrt(1 - math.Pow(r.beta2, float64(step))),
		epsilon: r.epsilon,
	}
	if r.decoupled {
		t.decay, t.fade = 0, rate*r.weightDecay
	}
	r.terms64 = t
	r.terms32 = adamTerms[float32]{
		scale: float32(t.scale), decay: float32(t.decay), fade: float32(t.fade),
		keep1: float32(t.keep1), add1: float32(t.add1),
		keep2: float32(t.keep2), add2: float32(t.add2),
		size: float32(t.size), root: float32(t.root), epsilon: float32(t.epsilon),
	}
}

func (r *adam) update32(m *memory[float32], grad []float32, lo, hi int) {
	if n := vectorLen(hi - lo); n > 0 {
		if r.amsgrad {
			amsgradF32(&r.terms32, &m.weight[lo], &grad[0], &m.slots[0][lo], &m.slots[1][lo], &m.slots[2][lo], n)
		} else {
			adamF32(&r.terms32, &m.weight[lo], &grad[0], &m.slots[0][lo], &m.slots[1][lo], n)
		}
		lo, grad = lo+n, grad[n:]
	}
	adamSpan(r.terms32, r.amsgrad, m, grad, lo, hi)
}

func (r *adam) update64(m *memory[float64], grad []float64, lo, hi int) {
	adamSpan(r.terms64, r.amsgrad, m, grad, lo, hi)
}

func adamSpan[T float](t adamTerms[T], amsgrad bool, m *memory[T], grad []T, lo, hi int) {
	weight, mean, square := m.weight[lo:hi], m.slots[0][lo:hi], m.slots[1][lo:hi]
	if amsgrad {
		amsgradPass(t, weight, grad, mean, square, m.slots[2][lo:hi])
		return
	}
	adamPass(t, weight, grad, mean, square)
}

func adamPass[T float](t adamTerms[T], weight, grad, mean, square []T) {
	grad, mean, square = grad[:len(weight)], mean[:len(weight)], square[:len(weight)]
	for i, w := range weight {
		g := T(t.scale*grad[i]) + T(t.decay*w)
		m := T(t.keep1*mean[i]) + T(t.add1*g)
		v := T(t.keep2*square[i]) + T(T(t.add2*g)*g)
		mean[i], square[i] = m, v
		weight[i] = w - (T(t.size*m)/(T(T(math.Sqrt(float64(v)))/t.root)+t.epsilon) + T(t.fade*w))
	}
}

func amsgradPass[T float](t adamTerms[T], weight, grad, mean, square, largest []T) {
	grad, mean, square, largest = grad[:len(weight)], mean[:len(weight)], square[:len(weight)], largest[:len(weight)]
	for i, w := range weight {
		g := T(t.scale*grad[i]) + T(t.decay*w)
		m := T(t.keep1*mean[i]) + T(t.add1*g)
		v := T(t.keep2*square[i]) + T(T(t.add2*g)*g)
		top := max(largest[i], v)
		mean[i], square[i], largest[i] = m, v, top
		weight[i] = w - (T(t.size*m)/(T(T(math.Sqrt(float64(top)))/t.root)+t.epsilon) + T(t.fade*w))
	}
}
