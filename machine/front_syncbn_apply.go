package machine

import (
	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/tensor"
)

// normMove computes 1/sqrt(variance+epsilon) from the sums of squared distances. It updates the
// running statistics if any row of any rank has a weight.
func (l *lowering) normMove(k *overRanks, sum, runMean, runVar operand) error {
	m := l.newCode(sum.shape)
	n, one, none := m.load(k.count), m.constant(1), m.constant(0)
	some := m.do(program.Greater, n, none)
	s := m.load(sum)
	variance := m.do(program.Select, some, m.do(program.Div, s, n), none)
	unbiased := m.do(program.Select, m.do(program.GreaterEqual, n, m.constant(2)), m.do(program.Div, s, m.do(program.Sub, n, one)), variance)
	momentum := k.Layer.Config().Momentum
	toward := func(run operand, to int) int {
		old := m.load(run)
		r := m.do(program.Add, m.do(program.Mul, old, m.constant(1-momentum)), m.do(program.Mul, to, m.constant(momentum)))
		return m.do(program.Select, some, r, old)
	}
	mean, running := toward(runMean, m.load(k.mean)), toward(runVar, unbiased)
	return l.store(m, []operand{k.rstd, runMean, runVar}, k.inverse(m, variance), mean, running)
}

// normalized returns (x - mean) / sqrt(variance + epsilon), in the dtype of x.
func (l *lowering) normalized(k *overRanks, m *code, x operand) int {
	d := m.do(program.Sub, m.load(x), m.load(l.along(k.high, k.space)))
	if x.dtype != tensor.F64 { // the mean is high + low; f64 needs only high
		d = m.do(program.Sub, d, m.load(l.along(k.low, k.space)))
	}
	return m.do(program.Mul, d, m.load(l.along(k.scale, k.space)))
}

// normApply computes y.
func (l *lowering) normApply(c *current, k *overRanks) (operand, error) {
	x := l.reshape(l.stored(c.in[0]), k.space)
	rest := c.in[2:]
	if k.Rows {
		rest = rest[1:]
	}
	m := l.newCode(k.space)
	r := l.normalized(k, m, x)
	if k.Scale {
		r = m.do(program.Mul, r, m.load(l.along(rest[0], k.space)))
		rest = rest[1:]
	}
	if k.Bias {
		r = m.do(program.Add, r, m.load(l.along(rest[0], k.space)))
	}
	y, err := m.result(k.counted(m, r), c.dtype)
	if err != nil {
		return y, err
	}
	return l.reshape(y, c.in[0].shape), nil
}

// normSums computes sum(dy) and sum(dy*xhat) of this rank, times the weight of its cost (k.cost).
// Without that weight they are the gradients of bias and scale.
func (l *lowering) normSums(c *current, k *overRanks) (operand, error) {
	ch := k.space[1]
	dy, x := l.reshape(l.stored(c.in[0]), k.space), l.reshape(l.stored(c.in[1]), k.space)
	for i := range k.sums {
		k.sums[i] = l.fresh(tensor.F64, []int{ch})
		m := l.newCode(k.space)
		r := m.load(dy)
		if i == 1 {
			d := m.do(program.Sub, m.load(x), m.load(l.along(k.mean, k.space)))
			r = m.do(program.Mul, r, m.do(program.Mul, d, m.load(l.along(k.rstd, k.space))))
		}
		if err := l.sumTo(k.sums[i], m, k.counted(m, r), true, false, true); err != nil {
			return operand{}, err
		}
	}
	if !*k.Training {
		return number(0, tensor.F64, l.shapeOf(c.n)), nil
	}
	both := l.fresh(tensor.F64, []int{2 * ch})
	m := l.newCode([]int{ch})
	cost := m.load(k.cost)
	return both, l.store(m, []operand{part(both, 0, ch), part(both, ch, ch)},
		m.do(program.Mul, m.load(k.sums[0]), cost), m.do(program.Mul, m.load(k.sums[1]), cost))
}

// normInputGrad computes dx = scale/sqrt(variance+epsilon) * (dy - w*(sum(dy) +
// xhat*sum(dy*xhat))/n). w is the weight of the row, and n the sum of the weights of all rows of
// all ranks. The sums are those of all ranks, divided by the weight of this rank's cost.
func (l *lowering) normInputGrad(c *current, k *overRanks) (operand, error) {
	ch := k.space[1]
	dy, x := l.reshape(l.stored(c.in[0]), k.space), l.reshape(l.stored(c.in[1]), k.space)
	space := l.newCode(k.space)
	r := space.load(dy)
	if *k.Training {
		total := l.wholeOf(c.in[3])
		means := []operand{l.fresh(x.dtype, []int{ch}), l.fresh(x.dtype, []int{ch})}
		m := l.newCode([]int{ch})
		n, none := m.do(program.Mul, m.load(k.count), m.load(k.cost)), m.constant(0)
		some := m.do(program.Greater, n, none)
		var stores []int
		for i := range means {
			sum := m.load(part(total, i*ch, ch))
			stores = append(stores, m.do(program.Select, some, m.do(program.Div, sum, n), none))
		}
		if err := l.store(m, means, stores...); err != nil {
			return operand{}, err
		}
		away := space.do(program.Mul, l.normalized(k, space, x), space.load(l.along(means[1], k.space)))
		away = space.do(program.Add, space.load(l.along(means[0], k.space)), away)
		if k.Rows {
			away = space.do(program.Mul, away, space.load(k.rows))
		}
		r = space.do(program.Sub, r, away)
	}
	r = space.do(program.Mul, r, space.load(l.along(k.scale, k.space)))
	if k.Scale {
		r = space.do(program.Mul, r, space.load(l.along(c.in[len(c.in)-1], k.space)))
	}
	dx, err := space.result(k.counted(space, r), c.dtype)
	if err != nil {
		return dx, err
	}
	return l.reshape(dx, c.in[0].shape), nil
}

// normOwn returns this rank's part of the gradient of scale or bias.
func (l *lowering) normOwn(c *current, sum operand) (operand, error) {
	m := l.newCode(sum.shape)
	o, err := m.result(m.load(sum), c.dtype)
	if err != nil {
		return o, err
	}
	return l.reshape(o, l.shapeOf(c.n)), nil
}
