package machine

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// overRanks has the values that the nodes of an ops.BatchNorm share. Channels are (C).
type overRanks struct {
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

// syncBatchNorm lowers a node of an ops.BatchNorm. Statistics are f64, so steps that make them
// compute in f64 for any dtype of the input. Steps from elements to elements compute in the input's
// dtype, with the mean in two parts.
func (l *lowering) syncBatchNorm(c *current) (operand, error) {
	d, ok := ops.DescribeBatchNorm(c.n)
	if !ok {
		return operand{}, fmt.Errorf("%T is not an op of a batch normalization over ranks", c.n.Op())
	}
	l.marks = append(l.marks, markFlag(d.Training))
	key := uintptr(unsafe.Pointer(d.Layer))
	if d.Part == ops.BatchNormMoments {
		l.norms[key] = &norm{over: &overRanks{BatchNormNode: d}}
	}
	n := l.norms[key]
	if n == nil {
		return operand{}, errors.New("the batch normalization that it belongs to has not run")
	}
	k := n.over
	switch d.Part {
	case ops.BatchNormMoments:
		return l.normMoments(c, k)
	case ops.BatchNormGather, ops.BatchNormReduce:
		if !*d.Training {
			return number(0, tensor.F64, l.shapeOf(c.n)), nil
		}
		return l.collective(c, d.Exchange)
	case ops.BatchNormStatistics:
		return l.normStatistics(c, k)
	case ops.BatchNormApply:
		return l.normApply(c, k)
	case ops.BatchNormSums:
		return l.normSums(c, k)
	case ops.BatchNormInputGrad:
		return l.normInputGrad(c, k)
	case ops.BatchNormScaleGrad:
		return l.normOwn(c, k.sums[1])
	case ops.BatchNormBiasGrad:
		return l.normOwn(c, k.sums[0])
	}
	return operand{}, fmt.Errorf("unknown part %v", d.Part)
}

// along returns an operand (C) as a view over a space of samples.
func (l *lowering) along(o operand, space []int) operand {
	if o.isNum {
		o.shape = space
		return o
	}
	o = l.reshape(o, space[1:2])
	o.view.Strides = []int{0, o.view.Strides[0], 0}
	o.shape = space
	return o
}

// part returns n elements of a row of statistics, starting at from.
func part(o operand, from, n int) operand {
	o.view.Offset += from
	o.view.Strides, o.shape = []int{1}, []int{n}
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

// sumTo adds a step that sums register r over some axes of its space into an operand over the other
// axes.
func (l *lowering) sumTo(to operand, m *code, r int, reduced ...bool) error {
	if m.err != nil {
		return m.err
	}
	if r != len(m.code)-1 { // the last register is reduced
		none := m.constant(0)
		m.code = append(m.code, program.Instr{Op: program.Add, A: r, B: none})
	}
	strides := make([]int, len(reduced))
	for a, k := 0, 0; a < len(reduced); a++ {
		if !reduced[a] {
			strides[a] = to.view.Strides[k]
			k++
		}
	}
	l.add(program.Step{
		Op:  &program.Reduce{Space: slices.Clone(m.space), Reduced: reduced, Code: m.code},
		In:  m.in,
		Out: []program.View{{Value: to.view.Value, Offset: to.view.Offset, Strides: strides}},
	})
	return nil
}

// store adds a Map that stores registers in operands of its space.
func (l *lowering) store(m *code, to []operand, r ...int) error {
	if m.err != nil {
		return m.err
	}
	s := program.Step{Op: &program.Map{Space: m.space, Code: m.code, Stores: r}, In: m.in}
	for _, o := range to {
		s.Out = append(s.Out, o.view)
	}
	l.add(s)
	return nil
}

// normMoments returns the record of this rank: weight of its rows, means, sums of squared
// distances.
func (l *lowering) normMoments(c *current, k *overRanks) (operand, error) {
	shape := c.in[0].shape
	if len(shape) < 2 {
		return operand{}, fmt.Errorf("a batch normalization of shape %v", shape)
	}
	k.space = []int{shape[0], shape[1], sizeOf(shape[2:])}
	n, ch, s := k.space[0], k.space[1], k.space[2]
	if k.Rows {
		w := l.reshape(l.stored(c.in[1]), []int{n})
		w.view.Strides, w.shape = []int{w.view.Strides[0], 0, 0}, k.space
		k.rows = w
	}
	if !*k.Training {
		return number(0, tensor.F64, l.shapeOf(c.n)), nil
	}
	record := l.fresh(tensor.F64, []int{1, 1 + 2*ch})
	weight, mean, squares := part(record, 0, 1), part(record, 1, ch), part(record, 1+ch, ch)
	weight.view.Strides, weight.shape = nil, nil
	if err := l.normWeight(k, weight, n, s); err != nil {
		return operand{}, err
	}
	x := l.reshape(l.stored(c.in[0]), k.space)
	sum := l.fresh(tensor.F64, []int{ch})
	m := l.newCode(k.space)
	if err := l.sumTo(sum, m, k.weighted(m, m.load(x)), true, false, true); err != nil {
		return operand{}, err
	}
	m = l.newCode([]int{ch})
	total := m.load(weight)
	none := m.constant(0)
	r := m.do(program.Select, m.do(program.Greater, total, none), m.do(program.Div, m.load(sum), total), none)
	if err := l.store(m, []operand{mean}, r); err != nil {
		return operand{}, err
	}
	m = l.newCode(k.space)
	d := m.do(program.Sub, m.load(x), m.load(l.along(mean, k.space)))
	return record, l.sumTo(squares, m, k.weighted(m, m.do(program.Mul, d, d)), true, false, true)
}

// normWeight stores the weight of this rank's rows: the number of elements of a channel, weighted.
func (l *lowering) normWeight(k *overRanks, to operand, n, s int) error {
	if !k.Rows {
		m := l.newCode(nil)
		return l.store(m, []operand{to}, m.constant(float64(n*s)))
	}
	w := k.rows
	w.view.Strides, w.shape = w.view.Strides[:1], []int{n}
	sum := l.fresh(tensor.F64, nil)
	m := l.newCode([]int{n})
	v, none := m.load(w), m.constant(0)
	if err := l.sumTo(sum, m, m.do(program.Select, m.do(program.Greater, v, none), v, none), true); err != nil {
		return err
	}
	m = l.newCode(nil)
	return l.store(m, []operand{to}, m.do(program.Mul, m.load(sum), m.constant(float64(s))))
}

// normStatistics combines the records of all ranks and updates the running statistics. Only nodes
// of the layer read the node's value, so it stays empty.
func (l *lowering) normStatistics(c *current, k *overRanks) (operand, error) {
	ch := k.space[1]
	none := number(0, tensor.F64, l.shapeOf(c.n))
	mean, variance := k.Layer.Stats()
	runMean, err := l.state("running mean", mean)
	if err != nil {
		return operand{}, err
	}
	runVar, err := l.state("running variance", variance)
	if err != nil {
		return operand{}, err
	}
	k.mean, k.rstd = l.fresh(tensor.F64, []int{ch}), l.fresh(tensor.F64, []int{ch})
	if *k.Training {
		err = l.normCombine(k, c.in[0], runMean, runVar)
	} else {
		k.count, k.cost = number(1, tensor.F64, nil), number(1, tensor.F64, nil)
		m := l.newCode([]int{ch})
		err = l.store(m, []operand{k.mean, k.rstd}, m.load(runMean), k.inverse(m, m.load(runVar)))
	}
	if err != nil {
		return operand{}, err
	}
	dt := runMean.dtype
	k.high, k.low, k.scale = l.fresh(dt, []int{ch}), l.fresh(dt, []int{ch}), l.fresh(dt, []int{ch})
	m := l.newCode([]int{ch})
	if err := l.store(m, []operand{k.high, k.scale}, m.load(k.mean), m.load(k.rstd)); err != nil {
		return operand{}, err
	}
	m = l.newCode([]int{ch})
	return none, l.store(m, []operand{k.low}, m.do(program.Sub, m.load(k.mean), m.load(k.high)))
}

// inverse returns 1/sqrt(v + epsilon).
func (k *overRanks) inverse(m *code, v int) int {
	root := m.do(program.Sqrt, m.do(program.Add, v, m.constant(k.Layer.Config().Epsilon)))
	return m.do(program.Div, m.constant(1), root)
}

// normCombine computes statistics from the records (R, 1+2C). It takes distances from the mean of
// rank 0 first, then from the mean of all, so it subtracts no large numbers.
func (l *lowering) normCombine(k *overRanks, all, runMean, runVar operand) error {
	ranks, ch := all.shape[0], k.space[1]
	all = l.wholeOf(all)
	row := 1 + 2*ch
	column := func(from int, strides ...int) operand { // of the records, over (R, C) or (R)
		return operand{
			view:  program.View{Value: all.view.Value, Offset: from, Strides: strides},
			shape: []int{ranks, ch}[:len(strides)], dtype: tensor.F64,
		}
	}
	weight, means, squares := column(0, row, 0), column(1, row, 1), column(1+ch, row, 1)
	k.count = l.fresh(tensor.F64, nil)
	m := l.newCode([]int{ranks})
	if err := l.sumTo(k.count, m, m.load(column(0, row)), true); err != nil {
		return err
	}
	k.cost = number(1, tensor.F64, nil)
	if !k.Layer.Config().SumOfCosts {
		k.cost = column(k.Layer.Rank() * row)
		k.cost.shape = nil
	}
	shift := l.fresh(tensor.F64, []int{ch})
	m = l.newCode([]int{ranks, ch})
	d := m.do(program.Sub, m.load(means), m.load(column(1, 0, 1)))
	if err := l.sumTo(shift, m, m.do(program.Mul, m.load(weight), d), true, false); err != nil {
		return err
	}
	m = l.newCode([]int{ch})
	n, none := m.load(k.count), m.constant(0)
	first := column(1, 1)
	first.shape = []int{ch}
	r := m.do(program.Add, m.load(first), m.do(program.Div, m.load(shift), n))
	if err := l.store(m, []operand{k.mean}, m.do(program.Select, m.do(program.Greater, n, none), r, none)); err != nil {
		return err
	}
	sum := l.fresh(tensor.F64, []int{ch})
	m = l.newCode([]int{ranks, ch})
	mean := k.mean
	mean.view.Strides, mean.shape = []int{0, 1}, []int{ranks, ch}
	d = m.do(program.Sub, m.load(means), m.load(mean))
	r = m.do(program.Add, m.load(squares), m.do(program.Mul, m.load(weight), m.do(program.Mul, d, d)))
	if err := l.sumTo(sum, m, r, true, false); err != nil {
		return err
	}
	return l.normMove(k, sum, runMean, runVar)
}
