package machine

import (
	"fmt"
	"math"
	"slices"

	"github.com/symgrad/symgrad/internal/program"
)

// sparsemaxRows returns the operand of a sparsemax as (outer, axis, inner). gorgonia.Sparsemax uses
// the last axis by default (op_sparsemax.go:18).
func (l *lowering) sparsemaxRows(o operand, axis int) (operand, error) {
	if len(o.shape) == 0 {
		return o, fmt.Errorf("a sparsemax of a scalar")
	}
	if axis < 0 {
		axis += len(o.shape)
	}
	if axis < 0 || axis >= len(o.shape) {
		return o, fmt.Errorf("axis %d of shape %v", axis, o.shape)
	}
	outer, length, inner := rowsOf(o.shape, axis)
	return l.reshape(l.stored(o), []int{outer, length, inner}), nil
}

// sparsemax lowers gorgonia.Sparsemax of rows x: max(x-tau, 0), with tau such that a row sums to 1
// (Martins and Astudillo 2016). x_i is in the support if the sum over j of max(x_j-x_i, 0) is below
// 1. That needs no sorting, but Axis times as much arithmetic.
func (l *lowering) sparsemax(c *current) (operand, error) {
	x, err := l.sparsemaxRows(c.in[0], c.f.int("axis"))
	if err != nil {
		return operand{}, err
	}
	outer, n, inner := x.shape[0], x.shape[1], x.shape[2]
	rows, space := []int{outer, 1, inner}, x.shape
	along := []bool{false, true, false}
	reduce := func(red program.Reduction, value func(m *code) int) operand {
		m := l.newCode(space)
		value(m)
		to, failed := m.reduceTo(along, red, l.fresh(c.dtype, []int{outer, inner}))
		if failed != nil && err == nil {
			err = failed
		}
		return stretch(l.reshape(to, rows), 1, n)
	}
	top := reduce(program.Max, func(m *code) int { return m.load(x) })

	pairs := l.newCode([]int{outer, n, n, inner}) // outer, i, j, inner
	xi := stretch(l.reshape(x, []int{outer, n, 1, inner}), 2, n)
	xj := stretch(l.reshape(x, []int{outer, 1, n, inner}), 1, n)
	pairs.do(program.Maximum, pairs.do(program.Sub, pairs.load(xj), pairs.load(xi)), pairs.constant(0))
	above, failed := pairs.reduceTo([]bool{false, false, true, false}, program.Sum, l.fresh(c.dtype, space))
	if failed != nil {
		return operand{}, failed
	}
	size := reduce(program.Sum, func(m *code) int { return m.do(program.Less, m.load(above), m.constant(1)) })
	sum := reduce(program.Sum, func(m *code) int {
		in := m.do(program.Less, m.load(above), m.constant(1))
		return m.do(program.Select, in, m.do(program.Sub, m.load(x), m.load(top)), m.constant(0))
	})
	if err != nil {
		return operand{}, err
	}
	m := l.newCode(space)
	tau := m.do(program.Div, m.do(program.Sub, m.load(sum), m.constant(1)), m.load(size))
	y, err := m.result(m.do(program.Maximum, m.do(program.Sub, m.do(program.Sub, m.load(x), m.load(top)), tau), m.constant(0)), c.dtype)
	if err != nil {
		return y, err
	}
	return l.reshape(y, c.in[0].shape), nil
}

// sparsemaxGrad lowers its gradient, from y and dy: dy less its mean over the row's support, on the
// support.
func (l *lowering) sparsemaxGrad(c *current) (operand, error) {
	axis := -1
	if f := fieldsOf(c.kids[0].Op()); typeName(c.kids[0].Op()) == "*gorgonia.sparsemaxOp" { // the gradient's op has no axis
		axis = f.int("axis")
	}
	y, err := l.sparsemaxRows(c.in[0], axis)
	if err != nil {
		return operand{}, err
	}
	dy, err := l.sparsemaxRows(c.in[1], axis)
	if err != nil {
		return operand{}, err
	}
	outer, n, inner := y.shape[0], y.shape[1], y.shape[2]
	along := []bool{false, true, false}
	sum := func(value func(m *code, in int)) (operand, error) {
		m := l.newCode(y.shape)
		value(m, m.do(program.NotEqual, m.load(y), m.constant(0)))
		to, err := m.reduceTo(along, program.Sum, l.fresh(c.dtype, []int{outer, inner}))
		return stretch(l.reshape(to, []int{outer, 1, inner}), 1, n), err
	}
	total, err := sum(func(m *code, in int) { m.do(program.Select, in, m.load(dy), m.constant(0)) })
	if err != nil {
		return operand{}, err
	}
	size, err := sum(func(*code, int) {})
	if err != nil {
		return operand{}, err
	}
	m := l.newCode(y.shape)
	in := m.do(program.NotEqual, m.load(y), m.constant(0))
	less := m.do(program.Sub, m.load(dy), m.do(program.Div, m.load(total), m.load(size)))
	dx, err := m.result(m.do(program.Select, in, less, m.constant(0)), c.dtype)
	if err != nil {
		return dx, err
	}
	return l.reshape(dx, c.in[0].shape), nil
}

// normGroups returns the operand of a gorgonia.GroupNorm as (groups of all samples, elements of a
// group).
func (l *lowering) normGroups(c *current, o operand) (operand, error) {
	n, channels := c.f.int("numGroups"), 0
	if len(o.shape) > 1 {
		channels = o.shape[1]
	}
	if c.f.err != nil {
		return o, c.f.err
	}
	if n < 1 || channels == 0 || channels%n != 0 {
		return o, fmt.Errorf("%d groups of the channels of shape %v", n, o.shape)
	}
	all := o.shape[0] * n
	return l.reshape(l.stored(o), []int{all, o.len() / max(all, 1)}), nil
}

// moments returns mean and 1/sqrt(variance+epsilon) of each group of x, over the space of x.
func (l *lowering) moments(c *current, x operand) (mean, rstd operand, err error) {
	n, along := x.shape[1], []bool{false, true}
	epsilon := c.f.float("epsilon")
	each := func(o operand) operand { return stretch(l.reshape(o, []int{x.shape[0], 1}), 1, n) }
	m := l.newCode(x.shape)
	m.do(program.Div, m.load(x), m.constant(float64(n)))
	if mean, err = m.reduceTo(along, program.Sum, l.fresh(c.dtype, x.shape[:1])); err != nil {
		return mean, rstd, err
	}
	mean = each(mean)
	m = l.newCode(x.shape)
	m.do(program.Div, m.do(program.Square, m.do(program.Sub, m.load(x), m.load(mean))), m.constant(float64(n)))
	variance, err := m.reduceTo(along, program.Sum, l.fresh(c.dtype, x.shape[:1]))
	if err != nil {
		return mean, rstd, err
	}
	m = l.newCode(x.shape[:1])
	rstd, err = m.result(m.do(program.Inverse, m.do(program.Sqrt, m.do(program.Add, m.load(variance), m.constant(epsilon)))), c.dtype)
	return mean, each(rstd), err
}

// groupNorm lowers the op of gorgonia.GroupNorm: x less the mean of its group, divided by the
// group's standard deviation.
func (l *lowering) groupNorm(c *current) (operand, error) {
	x, err := l.normGroups(c, c.in[0])
	if err != nil {
		return operand{}, err
	}
	mean, rstd, err := l.moments(c, x)
	if err != nil {
		return operand{}, err
	}
	m := l.newCode(x.shape)
	y, err := m.result(m.do(program.Mul, m.do(program.Sub, m.load(x), m.load(mean)), m.load(rstd)), c.dtype)
	if err != nil {
		return y, err
	}
	return l.reshape(y, c.in[0].shape), nil
}

// groupNormGrad lowers its gradient, from x and dy: (dy - mean(dy) - xhat*mean(dy*xhat)) * rstd.
// The moments repeat those of the forward pass, whose steps an optimized program shares.
func (l *lowering) groupNormGrad(c *current) (operand, error) {
	x, err := l.normGroups(c, c.in[0])
	if err != nil {
		return operand{}, err
	}
	dy, err := l.normGroups(c, c.in[1])
	if err != nil {
		return operand{}, err
	}
	mean, rstd, err := l.moments(c, x)
	if err != nil {
		return operand{}, err
	}
	n := x.shape[1]
	normal := func(m *code) int { return m.do(program.Mul, m.do(program.Sub, m.load(x), m.load(mean)), m.load(rstd)) }
	average := func(value func(m *code) int) (operand, error) {
		m := l.newCode(x.shape)
		m.do(program.Div, value(m), m.constant(float64(n)))
		to, err := m.reduceTo([]bool{false, true}, program.Sum, l.fresh(c.dtype, x.shape[:1]))
		return stretch(l.reshape(to, []int{x.shape[0], 1}), 1, n), err
	}
	of, err := average(func(m *code) int { return m.load(dy) })
	if err != nil {
		return operand{}, err
	}
	ofProduct, err := average(func(m *code) int { return m.do(program.Mul, m.load(dy), normal(m)) })
	if err != nil {
		return operand{}, err
	}
	m := l.newCode(x.shape)
	r := m.do(program.Sub, m.do(program.Sub, m.load(dy), m.load(of)), m.do(program.Mul, normal(m), m.load(ofProduct)))
	dx, err := m.result(m.do(program.Mul, r, m.load(rstd)), c.dtype)
	if err != nil {
		return dx, err
	}
	return l.reshape(dx, c.in[0].shape), nil
}

// scaled returns the shape of a gorgonia.Upsample2D with its repetitions as axes: (N, C, H, scale,
// W, scale).
func (c *current) scaled(shape []int) ([]int, error) {
	scale := c.f.int("stride") + 1
	if c.f.err != nil {
		return nil, c.f.err
	}
	if len(shape) != 4 || scale < 1 {
		return nil, fmt.Errorf("%d times shape %v", scale, shape)
	}
	return []int{shape[0], shape[1], shape[2], scale, shape[3], scale}, nil
}

// upsampled lowers gorgonia.Upsample2D.
func (l *lowering) upsampled(c *current) (operand, error) {
	x := c.in[0]
	space, err := c.scaled(x.shape)
	if err != nil {
		return operand{}, err
	}
	y := l.reshape(l.stored(x), []int{space[0], space[1], space[2], 1, space[4], 1})
	y = stretch(stretch(y, 3, space[3]), 5, space[5])
	return l.reshape(y, []int{space[0], space[1], space[2] * space[3], space[4] * space[5]}), nil
}

// upsampleGrad lowers its gradient, from x, y and dy: the sum over the copies of each element.
func (l *lowering) upsampleGrad(c *current) (operand, error) {
	space, err := c.scaled(c.in[0].shape)
	if err != nil {
		return operand{}, err
	}
	if c.in[2].len() != sizeOf(space) {
		return operand{}, fmt.Errorf("a gradient of shape %v for %v", c.in[2].shape, space)
	}
	m := l.newCode(space)
	m.load(l.reshape(l.stored(c.in[2]), space))
	return m.reduceTo([]bool{false, false, false, true, false, true}, program.Sum, l.fresh(c.dtype, slices.Clone(c.in[0].shape)))
}

// diagonal lowers gorgonia.DiagFlat.
func (l *lowering) diagonal(c *current) (operand, error) {
	x, n := l.stored(c.in[0]), c.in[0].len()
	to := l.fresh(c.dtype, []int{n, n})
	l.copyTo(to, number(0, c.dtype, to.shape))
	line := to
	line.shape, line.view.Strides = []int{n}, []int{n + 1}
	l.copyTo(line, l.reshape(x, []int{n}))
	return to, nil
}

// binomial lowers gorgonia.BinomialRandomNode: it counts the trials whose random number is below p.
func (l *lowering) binomial(c *current, key int, trials, p float64) (operand, error) {
	if trials < 0 || trials != math.Trunc(trials) || !(p >= 0 && p <= 1) {
		return operand{}, fmt.Errorf("%v trials of probability %v", trials, p)
	}
	shape := l.shapeOf(c.n)
	m := l.newCode(append(slices.Clone(shape), int(trials)))
	m.do(program.Less, m.rand(binomialKey, key), m.constant(p))
	reduced := make([]bool, len(m.space))
	reduced[len(shape)] = true
	return m.reduceTo(reduced, program.Sum, l.fresh(c.dtype, shape))
}
