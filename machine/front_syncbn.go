package machine

import (
	"fmt"

	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// overRanks has the values that the nodes of an ops.BatchNorm share. Channels are (C).
type overRanks struct {
	work
	ops.BatchNormNode
	space []int   // (N, C, S)
	rows  operand // weights, over (N, 1, 1) of the space
	count operand // f64: sum of the weights of all rows of all ranks
	cost  operand // f64: weight of this rank's cost
	mean  operand // f64
	rstd  operand // f64
	high  operand // mean, rounded to the input's type
	low   operand // mean - high, rounded
	scale operand // 1/sqrt(variance+epsilon), rounded
	sums  [2]operand
}

// lower lowers the node that computes a part, except an exchange. Statistics are f64, so steps that
// make them compute in f64 for any dtype of the input. Steps from elements to elements compute in
// the input's dtype, with the mean in two parts.
func (k *overRanks) lower(c *current, part ops.BatchNormPart) (operand, error) {
	switch part {
	case ops.BatchNormMoments:
		return k.moments(c)
	case ops.BatchNormStatistics:
		return k.statistics(c)
	case ops.BatchNormApply:
		return k.apply(c)
	case ops.BatchNormSums:
		return k.makeSums(c)
	case ops.BatchNormInputGrad:
		return k.inputGrad(c)
	case ops.BatchNormScaleGrad:
		return k.own(c, k.sums[1])
	case ops.BatchNormBiasGrad:
		return k.own(c, k.sums[0])
	}
	return operand{}, fmt.Errorf("unknown part %v", part)
}

// along returns an operand (C) as a view over a space of samples.
func (k *overRanks) along(o operand, space []int) operand {
	if o.isNum {
		o.shape = space
		return o
	}
	o = k.reshape(o, space[1:2])
	o.view.Strides = []int{0, o.view.Strides[0], 0}
	o.shape = space
	return o
}

// counted returns register r in rows with a weight, and 0 in others.
func (k *overRanks) counted(m *code, r int) int {
	if !k.Rows {
		return r
	}
	none := m.constant(0)
	return m.do(program.Select, m.do(program.Greater, m.load(k.rows), none), r, none)
}

// weighted returns register r times the weight of the row, and 0 in rows without a weight.
func (k *overRanks) weighted(m *code, r int) int {
	if !k.Rows {
		return r
	}
	return k.counted(m, m.do(program.Mul, r, m.load(k.rows)))
}

// moments returns the record of this rank: weight of its rows, means, sums of squared
// distances.
func (k *overRanks) moments(c *current) (operand, error) {
	shape := c.in[0].shape
	if len(shape) < 2 {
		return operand{}, fmt.Errorf("a batch normalization of shape %v", shape)
	}
	k.space = []int{shape[0], shape[1], sizeOf(shape[2:])}
	n, ch, s := k.space[0], k.space[1], k.space[2]
	if k.Rows {
		w := k.reshape(k.stored(c.in[1]), []int{n})
		w.view.Strides, w.shape = []int{w.view.Strides[0], 0, 0}, k.space
		k.rows = w
	}
	if !*k.Training {
		return number(0, tensor.F64, k.sizes.of(c.n)), nil
	}
	record := k.fresh(tensor.F64, []int{1, 1 + 2*ch})
	weight, mean, squares := part(record, 0, 1), part(record, 1, ch), part(record, 1+ch, ch)
	weight.view.Strides, weight.shape = nil, nil
	if err := k.weight(weight, n, s); err != nil {
		return operand{}, err
	}
	x := k.reshape(k.stored(c.in[0]), k.space)
	sum := k.fresh(tensor.F64, []int{ch})
	m := k.newCode(k.space)
	if err := m.sumAlong(sum, k.weighted(m, m.load(x)), true, false, true); err != nil {
		return operand{}, err
	}
	m = k.newCode([]int{ch})
	total := m.load(weight)
	none := m.constant(0)
	r := m.do(program.Select, m.do(program.Greater, total, none), m.do(program.Div, m.load(sum), total), none)
	if err := m.store([]operand{mean}, r); err != nil {
		return operand{}, err
	}
	m = k.newCode(k.space)
	d := m.do(program.Sub, m.load(x), m.load(k.along(mean, k.space)))
	return record, m.sumAlong(squares, k.weighted(m, m.do(program.Mul, d, d)), true, false, true)
}

// weight stores the weight of this rank's rows: the number of elements of a channel, weighted.
func (k *overRanks) weight(to operand, n, s int) error {
	if !k.Rows {
		m := k.newCode(nil)
		return m.store([]operand{to}, m.constant(float64(n*s)))
	}
	w := k.rows
	w.view.Strides, w.shape = w.view.Strides[:1], []int{n}
	sum := k.fresh(tensor.F64, nil)
	m := k.newCode([]int{n})
	v, none := m.load(w), m.constant(0)
	if err := m.sumAlong(sum, m.do(program.Select, m.do(program.Greater, v, none), v, none), true); err != nil {
		return err
	}
	m = k.newCode(nil)
	return m.store([]operand{to}, m.do(program.Mul, m.load(sum), m.constant(float64(s))))
}

// statistics combines the records of all ranks and updates the running statistics. Only nodes
// of the layer read the node's value, so it stays empty.
func (k *overRanks) statistics(c *current) (operand, error) {
	ch := k.space[1]
	none := number(0, tensor.F64, k.sizes.of(c.n))
	mean, variance := k.Layer.Stats()
	runMean, err := k.state("running mean", mean)
	if err != nil {
		return operand{}, err
	}
	runVar, err := k.state("running variance", variance)
	if err != nil {
		return operand{}, err
	}
	k.mean, k.rstd = k.fresh(tensor.F64, []int{ch}), k.fresh(tensor.F64, []int{ch})
	if *k.Training {
		err = k.combine(c.in[0], runMean, runVar)
	} else {
		k.count, k.cost = number(1, tensor.F64, nil), number(1, tensor.F64, nil)
		m := k.newCode([]int{ch})
		err = m.store([]operand{k.mean, k.rstd}, m.load(runMean), k.inverse(m, m.load(runVar)))
	}
	if err != nil {
		return operand{}, err
	}
	dt := runMean.dtype
	k.high, k.low, k.scale = k.fresh(dt, []int{ch}), k.fresh(dt, []int{ch}), k.fresh(dt, []int{ch})
	m := k.newCode([]int{ch})
	if err := m.store([]operand{k.high, k.scale}, m.load(k.mean), m.load(k.rstd)); err != nil {
		return operand{}, err
	}
	m = k.newCode([]int{ch})
	return none, m.store([]operand{k.low}, m.do(program.Sub, m.load(k.mean), m.load(k.high)))
}

// inverse returns 1/sqrt(v + epsilon).
func (k *overRanks) inverse(m *code, v int) int {
	root := m.do(program.Sqrt, m.do(program.Add, v, m.constant(k.Layer.Config().Epsilon)))
	return m.do(program.Div, m.constant(1), root)
}

// combine computes statistics from the records (R, 1+2C). It takes distances from the mean of
// rank 0 first, then from the mean of all, so it subtracts no large numbers.
func (k *overRanks) combine(all, runMean, runVar operand) error {
	ranks, ch := all.shape[0], k.space[1]
	all = k.wholeOf(all)
	row := 1 + 2*ch
	column := func(from int, strides ...int) operand { // of the records, over (R, C) or (R)
		return operand{
			view:  program.View{Value: all.view.Value, Offset: from, Strides: strides},
			shape: []int{ranks, ch}[:len(strides)], dtype: tensor.F64,
		}
	}
	weight, means, squares := column(0, row, 0), column(1, row, 1), column(1+ch, row, 1)
	k.count = k.fresh(tensor.F64, nil)
	m := k.newCode([]int{ranks})
	if err := m.sumAlong(k.count, m.load(column(0, row)), true); err != nil {
		return err
	}
	k.cost = number(1, tensor.F64, nil)
	if !k.Layer.Config().SumOfCosts {
		k.cost = column(k.Layer.Rank() * row)
		k.cost.shape = nil
	}
	shift := k.fresh(tensor.F64, []int{ch})
	m = k.newCode([]int{ranks, ch})
	d := m.do(program.Sub, m.load(means), m.load(column(1, 0, 1)))
	if err := m.sumAlong(shift, m.do(program.Mul, m.load(weight), d), true, false); err != nil {
		return err
	}
	m = k.newCode([]int{ch})
	n, none := m.load(k.count), m.constant(0)
	first := column(1, 1)
	first.shape = []int{ch}
	r := m.do(program.Add, m.load(first), m.do(program.Div, m.load(shift), n))
	if err := m.store([]operand{k.mean}, m.do(program.Select, m.do(program.Greater, n, none), r, none)); err != nil {
		return err
	}
	sum := k.fresh(tensor.F64, []int{ch})
	m = k.newCode([]int{ranks, ch})
	mean := k.mean
	mean.view.Strides, mean.shape = []int{0, 1}, []int{ranks, ch}
	d = m.do(program.Sub, m.load(means), m.load(mean))
	r = m.do(program.Add, m.load(squares), m.do(program.Mul, m.load(weight), m.do(program.Mul, d, d)))
	if err := m.sumAlong(sum, r, true, false); err != nil {
		return err
	}
	return k.move(sum, runMean, runVar)
}

// move computes 1/sqrt(variance+epsilon) from the sums of squared distances. It updates the
// running statistics if any row of any rank has a weight.
func (k *overRanks) move(sum, runMean, runVar operand) error {
	m := k.newCode(sum.shape)
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
	return m.store([]operand{k.rstd, runMean, runVar}, k.inverse(m, variance), mean, running)
}

// normalized returns (x - mean) / sqrt(variance + epsilon), in the dtype of x.
func (k *overRanks) normalized(m *code, x operand) int {
	d := m.do(program.Sub, m.load(x), m.load(k.along(k.high, k.space)))
	if x.dtype != tensor.F64 { // the mean is high + low; f64 needs only high
		d = m.do(program.Sub, d, m.load(k.along(k.low, k.space)))
	}
	return m.do(program.Mul, d, m.load(k.along(k.scale, k.space)))
}

// apply computes y.
func (k *overRanks) apply(c *current) (operand, error) {
	x := k.reshape(k.stored(c.in[0]), k.space)
	rest := c.in[2:]
	if k.Rows {
		rest = rest[1:]
	}
	m := k.newCode(k.space)
	r := k.normalized(m, x)
	if k.Scale {
		r = m.do(program.Mul, r, m.load(k.along(rest[0], k.space)))
		rest = rest[1:]
	}
	if k.Bias {
		r = m.do(program.Add, r, m.load(k.along(rest[0], k.space)))
	}
	y, err := m.result(k.counted(m, r), c.dtype)
	if err != nil {
		return y, err
	}
	return k.reshape(y, c.in[0].shape), nil
}

// makeSums computes sum(dy) and sum(dy*xhat) of this rank, times the weight of its cost (k.cost).
// Without that weight they are the gradients of bias and scale.
func (k *overRanks) makeSums(c *current) (operand, error) {
	ch := k.space[1]
	dy, x := k.reshape(k.stored(c.in[0]), k.space), k.reshape(k.stored(c.in[1]), k.space)
	for i := range k.sums {
		k.sums[i] = k.fresh(tensor.F64, []int{ch})
		m := k.newCode(k.space)
		r := m.load(dy)
		if i == 1 {
			d := m.do(program.Sub, m.load(x), m.load(k.along(k.mean, k.space)))
			r = m.do(program.Mul, r, m.do(program.Mul, d, m.load(k.along(k.rstd, k.space))))
		}
		if err := m.sumAlong(k.sums[i], k.counted(m, r), true, false, true); err != nil {
			return operand{}, err
		}
	}
	if !*k.Training {
		return number(0, tensor.F64, k.sizes.of(c.n)), nil
	}
	both := k.fresh(tensor.F64, []int{2 * ch})
	m := k.newCode([]int{ch})
	cost := m.load(k.cost)
	return both, m.store([]operand{part(both, 0, ch), part(both, ch, ch)},
		m.do(program.Mul, m.load(k.sums[0]), cost), m.do(program.Mul, m.load(k.sums[1]), cost))
}

// inputGrad computes dx = scale/sqrt(variance+epsilon) * (dy - w*(sum(dy) +
// xhat*sum(dy*xhat))/n). w is the weight of the row, and n the sum of the weights of all rows of
// all ranks. The sums are those of all ranks, divided by the weight of this rank's cost.
func (k *overRanks) inputGrad(c *current) (operand, error) {
	ch := k.space[1]
	dy, x := k.reshape(k.stored(c.in[0]), k.space), k.reshape(k.stored(c.in[1]), k.space)
	space := k.newCode(k.space)
	r := space.load(dy)
	if *k.Training {
		total := k.wholeOf(c.in[3])
		means := []operand{k.fresh(x.dtype, []int{ch}), k.fresh(x.dtype, []int{ch})}
		m := k.newCode([]int{ch})
		n, none := m.do(program.Mul, m.load(k.count), m.load(k.cost)), m.constant(0)
		some := m.do(program.Greater, n, none)
		var stores []int
		for i := range means {
			sum := m.load(part(total, i*ch, ch))
			stores = append(stores, m.do(program.Select, some, m.do(program.Div, sum, n), none))
		}
		if err := m.store(means, stores...); err != nil {
			return operand{}, err
		}
		away := space.do(program.Mul, k.normalized(space, x), space.load(k.along(means[1], k.space)))
		away = space.do(program.Add, space.load(k.along(means[0], k.space)), away)
		if k.Rows {
			away = space.do(program.Mul, away, space.load(k.rows))
		}
		r = space.do(program.Sub, r, away)
	}
	r = space.do(program.Mul, r, space.load(k.along(k.scale, k.space)))
	if k.Scale {
		r = space.do(program.Mul, r, space.load(k.along(c.in[len(c.in)-1], k.space)))
	}
	dx, err := space.result(k.counted(space, r), c.dtype)
	if err != nil {
		return dx, err
	}
	return k.reshape(dx, c.in[0].shape), nil
}

// own returns this rank's part of the gradient of scale or bias.
func (k *overRanks) own(c *current, sum operand) (operand, error) {
	m := k.newCode(sum.shape)
	o, err := m.result(m.load(sum), c.dtype)
	if err != nil {
		return o, err
	}
	return k.reshape(o, k.sizes.of(c.n)), nil
}
