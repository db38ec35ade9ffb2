package lower

import (
	"fmt"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// overRanks has the values that the nodes of an ops.BatchNorm share. Channels are (C).
type overRanks struct {
	work
	ops.BatchNormNode
	space []int         // (N, C, S)
	rows  draft.Operand // weights, over (N, 1, 1) of the space
	count draft.Operand // f64: sum of the weights of all rows of all ranks
	cost  draft.Operand // f64: weight of this rank's cost
	mean  draft.Operand // f64
	rstd  draft.Operand // f64
	high  draft.Operand // mean, rounded to the input's type
	low   draft.Operand // mean - high, rounded
	scale draft.Operand // 1/sqrt(variance+epsilon), rounded
	sums  [2]draft.Operand
}

// lower lowers the node that computes a part, except an exchange. Statistics are f64, so steps that
// make them compute in f64 for any dtype of the input. Steps from elements to elements compute in
// the input's dtype, with the mean in two parts.
func (k *overRanks) lower(c *current, part ops.BatchNormPart) (draft.Operand, error) {
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
	return draft.Operand{}, fmt.Errorf("unknown part %v", part)
}

// along returns an operand (C) as a view over a space of samples.
func (k *overRanks) along(o draft.Operand, space []int) draft.Operand {
	if o.IsNum {
		o.Shape = space
		return o
	}
	o = k.Reshape(o, space[1:2])
	o.View.Strides = []int{0, o.View.Strides[0], 0}
	o.Shape = space
	return o
}

// counted returns register r in rows with a weight, and 0 in others.
func (k *overRanks) counted(m *draft.Code, r int) int {
	if !k.Rows {
		return r
	}
	none := m.Constant(0)
	return m.Do(program.Select, m.Do(program.Greater, m.Load(k.rows), none), r, none)
}

// weighted returns register r times the weight of the row, and 0 in rows without a weight.
func (k *overRanks) weighted(m *draft.Code, r int) int {
	if !k.Rows {
		return r
	}
	return k.counted(m, m.Do(program.Mul, r, m.Load(k.rows)))
}

// moments returns the record of this rank: weight of its rows, means, sums of squared
// distances.
func (k *overRanks) moments(c *current) (draft.Operand, error) {
	shape := c.in[0].Shape
	if len(shape) < 2 {
		return draft.Operand{}, fmt.Errorf("a batch normalization of shape %v", shape)
	}
	k.space = []int{shape[0], shape[1], draft.SizeOf(shape[2:])}
	n, ch, s := k.space[0], k.space[1], k.space[2]
	if k.Rows {
		w := k.Reshape(k.Stored(c.in[1]), []int{n})
		w.View.Strides, w.Shape = []int{w.View.Strides[0], 0, 0}, k.space
		k.rows = w
	}
	if !*k.Training {
		return draft.Number(0, tensor.F64, k.sizes.of(c.n)), nil
	}
	record := k.Fresh(tensor.F64, []int{1, 1 + 2*ch})
	weight, mean, squares := draft.Part(record, 0, 1), draft.Part(record, 1, ch), draft.Part(record, 1+ch, ch)
	weight.View.Strides, weight.Shape = nil, nil
	if err := k.weight(weight, n, s); err != nil {
		return draft.Operand{}, err
	}
	x := k.Reshape(k.Stored(c.in[0]), k.space)
	sum := k.Fresh(tensor.F64, []int{ch})
	m := k.NewCode(k.space)
	if err := m.SumAlong(sum, k.weighted(m, m.Load(x)), true, false, true); err != nil {
		return draft.Operand{}, err
	}
	m = k.NewCode([]int{ch})
	total := m.Load(weight)
	none := m.Constant(0)
	r := m.Do(program.Select, m.Do(program.Greater, total, none), m.Do(program.Div, m.Load(sum), total), none)
	if err := m.Store([]draft.Operand{mean}, r); err != nil {
		return draft.Operand{}, err
	}
	m = k.NewCode(k.space)
	d := m.Do(program.Sub, m.Load(x), m.Load(k.along(mean, k.space)))
	return record, m.SumAlong(squares, k.weighted(m, m.Do(program.Mul, d, d)), true, false, true)
}

// weight stores the weight of this rank's rows: the number of elements of a channel, weighted.
func (k *overRanks) weight(to draft.Operand, n, s int) error {
	if !k.Rows {
		m := k.NewCode(nil)
		return m.Store([]draft.Operand{to}, m.Constant(float64(n*s)))
	}
	w := k.rows
	w.View.Strides, w.Shape = w.View.Strides[:1], []int{n}
	sum := k.Fresh(tensor.F64, nil)
	m := k.NewCode([]int{n})
	v, none := m.Load(w), m.Constant(0)
	if err := m.SumAlong(sum, m.Do(program.Select, m.Do(program.Greater, v, none), v, none), true); err != nil {
		return err
	}
	m = k.NewCode(nil)
	return m.Store([]draft.Operand{to}, m.Do(program.Mul, m.Load(sum), m.Constant(float64(s))))
}

// statistics combines the records of all ranks and updates the running statistics. Only nodes
// of the layer read the node's value, so it stays empty.
func (k *overRanks) statistics(c *current) (draft.Operand, error) {
	ch := k.space[1]
	none := draft.Number(0, tensor.F64, k.sizes.of(c.n))
	mean, variance := k.Layer.Stats()
	runMean, err := k.state("running mean", mean)
	if err != nil {
		return draft.Operand{}, err
	}
	runVar, err := k.state("running variance", variance)
	if err != nil {
		return draft.Operand{}, err
	}
	k.mean, k.rstd = k.Fresh(tensor.F64, []int{ch}), k.Fresh(tensor.F64, []int{ch})
	if *k.Training {
		err = k.combine(c.in[0], runMean, runVar)
	} else {
		k.count, k.cost = draft.Number(1, tensor.F64, nil), draft.Number(1, tensor.F64, nil)
		m := k.NewCode([]int{ch})
		err = m.Store([]draft.Operand{k.mean, k.rstd}, m.Load(runMean), k.inverse(m, m.Load(runVar)))
	}
	if err != nil {
		return draft.Operand{}, err
	}
	dt := runMean.DType
	k.high, k.low, k.scale = k.Fresh(dt, []int{ch}), k.Fresh(dt, []int{ch}), k.Fresh(dt, []int{ch})
	m := k.NewCode([]int{ch})
	if err := m.Store([]draft.Operand{k.high, k.scale}, m.Load(k.mean), m.Load(k.rstd)); err != nil {
		return draft.Operand{}, err
	}
	m = k.NewCode([]int{ch})
	return none, m.Store([]draft.Operand{k.low}, m.Do(program.Sub, m.Load(k.mean), m.Load(k.high)))
}

// inverse returns 1/sqrt(v + epsilon).
func (k *overRanks) inverse(m *draft.Code, v int) int {
	root := m.Do(program.Sqrt, m.Do(program.Add, v, m.Constant(k.Layer.Config().Epsilon)))
	return m.Do(program.Div, m.Constant(1), root)
}

// combine computes statistics from the records (R, 1+2C). It takes distances from the mean of
// rank 0 first, then from the mean of all, so it subtracts no large numbers.
func (k *overRanks) combine(all, runMean, runVar draft.Operand) error {
	ranks, ch := all.Shape[0], k.space[1]
	all = k.WholeOf(all)
	row := 1 + 2*ch
	column := func(from int, strides ...int) draft.Operand { // of the records, over (R, C) or (R)
		return draft.Operand{
			View:  program.View{Value: all.View.Value, Offset: from, Strides: strides},
			Shape: []int{ranks, ch}[:len(strides)], DType: tensor.F64,
		}
	}
	weight, means, squares := column(0, row, 0), column(1, row, 1), column(1+ch, row, 1)
	k.count = k.Fresh(tensor.F64, nil)
	m := k.NewCode([]int{ranks})
	if err := m.SumAlong(k.count, m.Load(column(0, row)), true); err != nil {
		return err
	}
	k.cost = draft.Number(1, tensor.F64, nil)
	if !k.Layer.Config().SumOfCosts {
		k.cost = column(k.Layer.Rank() * row)
		k.cost.Shape = nil
	}
	shift := k.Fresh(tensor.F64, []int{ch})
	m = k.NewCode([]int{ranks, ch})
	d := m.Do(program.Sub, m.Load(means), m.Load(column(1, 0, 1)))
	if err := m.SumAlong(shift, m.Do(program.Mul, m.Load(weight), d), true, false); err != nil {
		return err
	}
	m = k.NewCode([]int{ch})
	n, none := m.Load(k.count), m.Constant(0)
	first := column(1, 1)
	first.Shape = []int{ch}
	r := m.Do(program.Add, m.Load(first), m.Do(program.Div, m.Load(shift), n))
	if err := m.Store([]draft.Operand{k.mean}, m.Do(program.Select, m.Do(program.Greater, n, none), r, none)); err != nil {
		return err
	}
	sum := k.Fresh(tensor.F64, []int{ch})
	m = k.NewCode([]int{ranks, ch})
	mean := k.mean
	mean.View.Strides, mean.Shape = []int{0, 1}, []int{ranks, ch}
	d = m.Do(program.Sub, m.Load(means), m.Load(mean))
	r = m.Do(program.Add, m.Load(squares), m.Do(program.Mul, m.Load(weight), m.Do(program.Mul, d, d)))
	if err := m.SumAlong(sum, r, true, false); err != nil {
		return err
	}
	return k.move(sum, runMean, runVar)
}

// move computes 1/sqrt(variance+epsilon) from the sums of squared distances. It updates the
// running statistics if any row of any rank has a weight.
func (k *overRanks) move(sum, runMean, runVar draft.Operand) error {
	m := k.NewCode(sum.Shape)
	n, one, none := m.Load(k.count), m.Constant(1), m.Constant(0)
	some := m.Do(program.Greater, n, none)
	s := m.Load(sum)
	variance := m.Do(program.Select, some, m.Do(program.Div, s, n), none)
	unbiased := m.Do(program.Select, m.Do(program.GreaterEqual, n, m.Constant(2)), m.Do(program.Div, s, m.Do(program.Sub, n, one)), variance)
	momentum := k.Layer.Config().Momentum
	toward := func(run draft.Operand, to int) int {
		old := m.Load(run)
		r := m.Do(program.Add, m.Do(program.Mul, old, m.Constant(1-momentum)), m.Do(program.Mul, to, m.Constant(momentum)))
		return m.Do(program.Select, some, r, old)
	}
	mean, running := toward(runMean, m.Load(k.mean)), toward(runVar, unbiased)
	return m.Store([]draft.Operand{k.rstd, runMean, runVar}, k.inverse(m, variance), mean, running)
}

// normalized returns (x - mean) / sqrt(variance + epsilon), in the dtype of x.
func (k *overRanks) normalized(m *draft.Code, x draft.Operand) int {
	d := m.Do(program.Sub, m.Load(x), m.Load(k.along(k.high, k.space)))
	if x.DType != tensor.F64 { // the mean is high + low; f64 needs only high
		d = m.Do(program.Sub, d, m.Load(k.along(k.low, k.space)))
	}
	return m.Do(program.Mul, d, m.Load(k.along(k.scale, k.space)))
}

// apply computes y.
func (k *overRanks) apply(c *current) (draft.Operand, error) {
	x := k.Reshape(k.Stored(c.in[0]), k.space)
	rest := c.in[2:]
	if k.Rows {
		rest = rest[1:]
	}
	m := k.NewCode(k.space)
	r := k.normalized(m, x)
	if k.Scale {
		r = m.Do(program.Mul, r, m.Load(k.along(rest[0], k.space)))
		rest = rest[1:]
	}
	if k.Bias {
		r = m.Do(program.Add, r, m.Load(k.along(rest[0], k.space)))
	}
	y, err := m.Result(k.counted(m, r), c.dtype)
	if err != nil {
		return y, err
	}
	return k.Reshape(y, c.in[0].Shape), nil
}

// makeSums computes sum(dy) and sum(dy*xhat) of this rank, times the weight of its cost (k.cost).
// Without that weight they are the gradients of bias and scale.
func (k *overRanks) makeSums(c *current) (draft.Operand, error) {
	ch := k.space[1]
	dy, x := k.Reshape(k.Stored(c.in[0]), k.space), k.Reshape(k.Stored(c.in[1]), k.space)
	for i := range k.sums {
		k.sums[i] = k.Fresh(tensor.F64, []int{ch})
		m := k.NewCode(k.space)
		r := m.Load(dy)
		if i == 1 {
			d := m.Do(program.Sub, m.Load(x), m.Load(k.along(k.mean, k.space)))
			r = m.Do(program.Mul, r, m.Do(program.Mul, d, m.Load(k.along(k.rstd, k.space))))
		}
		if err := m.SumAlong(k.sums[i], k.counted(m, r), true, false, true); err != nil {
			return draft.Operand{}, err
		}
	}
	if !*k.Training {
		return draft.Number(0, tensor.F64, k.sizes.of(c.n)), nil
	}
	both := k.Fresh(tensor.F64, []int{2 * ch})
	m := k.NewCode([]int{ch})
	cost := m.Load(k.cost)
	return both, m.Store([]draft.Operand{draft.Part(both, 0, ch), draft.Part(both, ch, ch)},
		m.Do(program.Mul, m.Load(k.sums[0]), cost), m.Do(program.Mul, m.Load(k.sums[1]), cost))
}

// inputGrad computes dx = scale/sqrt(variance+epsilon) * (dy - w*(sum(dy) +
// xhat*sum(dy*xhat))/n). w is the weight of the row, and n the sum of the weights of all rows of
// all ranks. The sums are those of all ranks, divided by the weight of this rank's cost.
func (k *overRanks) inputGrad(c *current) (draft.Operand, error) {
	ch := k.space[1]
	dy, x := k.Reshape(k.Stored(c.in[0]), k.space), k.Reshape(k.Stored(c.in[1]), k.space)
	space := k.NewCode(k.space)
	r := space.Load(dy)
	if *k.Training {
		total := k.WholeOf(c.in[3])
		means := []draft.Operand{k.Fresh(x.DType, []int{ch}), k.Fresh(x.DType, []int{ch})}
		m := k.NewCode([]int{ch})
		n, none := m.Do(program.Mul, m.Load(k.count), m.Load(k.cost)), m.Constant(0)
		some := m.Do(program.Greater, n, none)
		var stores []int
		for i := range means {
			sum := m.Load(draft.Part(total, i*ch, ch))
			stores = append(stores, m.Do(program.Select, some, m.Do(program.Div, sum, n), none))
		}
		if err := m.Store(means, stores...); err != nil {
			return draft.Operand{}, err
		}
		away := space.Do(program.Mul, k.normalized(space, x), space.Load(k.along(means[1], k.space)))
		away = space.Do(program.Add, space.Load(k.along(means[0], k.space)), away)
		if k.Rows {
			away = space.Do(program.Mul, away, space.Load(k.rows))
		}
		r = space.Do(program.Sub, r, away)
	}
	r = space.Do(program.Mul, r, space.Load(k.along(k.scale, k.space)))
	if k.Scale {
		r = space.Do(program.Mul, r, space.Load(k.along(c.in[len(c.in)-1], k.space)))
	}
	dx, err := space.Result(k.counted(space, r), c.dtype)
	if err != nil {
		return dx, err
	}
	return k.Reshape(dx, c.in[0].Shape), nil
}

// own returns this rank's part of the gradient of scale or bias.
func (k *overRanks) own(c *current, sum draft.Operand) (draft.Operand, error) {
	m := k.NewCode(sum.Shape)
	o, err := m.Result(m.Load(sum), c.dtype)
	if err != nil {
		return o, err
	}
	return k.Reshape(o, k.sizes.of(c.n)), nil
}
