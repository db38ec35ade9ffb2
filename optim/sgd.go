package optim

// sgd is stochastic gradient descent:
//
//	w -= rate * (grad + weightDecay*w)
type sgd struct {
	weightDecay float64

	terms32 sgdTerms[float32]
	terms64 sgdTerms[float64]
}

// sgdTerms are the scalars of one step.
type sgdTerms[T float] struct{ rate, scale, decay T }

func (r *sgd) slots() []string { return nil }

func (r *sgd) prepare(rate, scale float64, _ int) {
	r.terms64 = sgdTerms[float64]{rate: rate, scale: scale, decay: r.weightDecay}
	r.terms32 = sgdTerms[float32]{rate: float32(rate), scale: float32(scale), decay: float32(r.weightDecay)}
}

func (r *sgd) update32(m *memory[float32], grad []float32, lo, hi int) {
	if n := vectorLen(hi - lo); n > 0 {
		sgdF32(&r.terms32, &m.weight[lo], &grad[0], n)
		lo, grad = lo+n, grad[n:]
	}
	sgdPass(r.terms32, m.weight[lo:hi], grad)
}

func (r *sgd) update64(m *memory[float64], grad []float64, lo, hi int) {
	sgdPass(r.terms64, m.weight[lo:hi], grad)
}

// sgdPass, like the other passes, rounds every product by a conversion, which forbids the compiler
// to fuse it with the following addition (Go specification, "Floating-point operators").
func sgdPass[T float](t sgdTerms[T], weight, grad []T) {
	grad = grad[:len(weight)]
	for i, w := range weight {
		g := T(t.scale*grad[i]) + T(t.decay*w)
		weight[i] = w - T(t.rate*g)
	}
}

// momentum is SGD with momentum. With buffer the state of the weight and t the number of the step:
//
//	g = grad + weightDecay*w
//	buffer = g                                        if t = 1
//	buffer = momentum*buffer + (1-dampening)*g        if t > 1
//	w -= rate * (nesterov ? g + momentum*buffer : buffer)
type momentum struct {
	momentum, dampening, weightDecay float64
	nesterov                         bool

	terms32 momentumTerms[float32]
	terms64 momentumTerms[float64]
}

// momentumTerms are the scalars of one step. Both forms of the last line above are ahead*g +
// along*buffer.
type momentumTerms[T float] struct{ rate, scale, decay, keep, add, ahead, along T }

func (r *momentum) slots() []string { return []string{"momentum_buffer"} }

func (r *momentum) prepare(rate, scale float64, step int) {
	t := momentumTerms[float64]{rate: rate, scale: scale, decay: r.weightDecay, keep: r.momentum, add: 1 - r.dampening, along: 1}
	if step == 1 {
		t.keep, t.add = 0, 1
	}
	if r.nesterov {
		t.ahead, t.along = 1, r.momentum
	}
	r.terms64 = t
	r.terms32 = momentumTerms[float32]{
		rate: float32(t.rate), scale: float32(t.scale), decay: float32(t.decay), keep: float32(t.keep),
		add: float32(t.add), ahead: float32(t.ahead), along: float32(t.along),
	}
}

func (r *momentum) update32(m *memory[float32], grad []float32, lo, hi int) {
	if n := vectorLen(hi - lo); n > 0 {
		momentumF32(&r.terms32, &m.weight[lo], &grad[0], &m.slots[0][lo], n)
		lo, grad = lo+n, grad[n:]
	}
	momentumPass(r.terms32, m.weight[lo:hi], grad, m.slots[0][lo:hi])
}

func (r *momentum) update64(m *memory[float64], grad []float64, lo, hi int) {
	momentumPass(r.terms64, m.weight[lo:hi], grad, m.slots[0][lo:hi])
}

func momentumPass[T float](t momentumTerms[T], weight, grad, buffer []T) {
	grad, buffer = grad[:len(weight)], buffer[:len(weight)]
	for i, w := range weight {
		g := T(t.scale*grad[i]) + T(t.decay*w)
		b := T(t.keep*buffer[i]) + T(t.add*g)
		buffer[i] = b
		weight[i] = w - T(t.rate*(T(t.ahead*g)+T(t.along*b)))
	}
}
