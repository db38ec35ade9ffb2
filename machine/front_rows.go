package machine

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/internal/program"
)

// rows has the rules of ops along one axis.
type rows struct {
	work
}

func (rw *rows) rules() map[string]rule {
	return map[string]rule{
		"*gorgonia.softmaxOp":         {inputs: 1, lower: rw.softmax},
		"*gorgonia.softmaxDiffOp":     {inputs: 3, lower: rw.softmaxGrad},
		"*gorgonia.byIndicesOp":       {inputs: 2, lower: rw.gather, moves: true},
		"*gorgonia.byIndicesOpDiffOp": {inputs: 3, lower: rw.gatherGrad},
		"*gorgonia.sparsemaxOp":       {inputs: 1, lower: rw.sparsemax},
		"*gorgonia.sparsemaxDiffOp":   {inputs: 2, lower: rw.sparsemaxGrad},
	}
}

// rowsOf returns a shape as (outer, axis, inner).
func rowsOf(shape []int, axis int) (outer, length, inner int) {
	return sizeOf(shape[:axis]), shape[axis], sizeOf(shape[axis+1:])
}

// softmaxAxis returns the axis of a gorgonia.softmaxOp over a shape (op_softmax.go:105). The
// default is the last one, or the first one of a column.
func (c *current) softmaxAxis(shape []int) (int, error) {
	axis := c.f.int("axis")
	switch {
	case len(shape) == 0:
		return 0, fmt.Errorf("softmax of a scalar")
	case axis == -1 && len(shape) == 2 && shape[1] == 1 && shape[0] > 1:
		return 0, nil
	case axis < 0:
		axis += len(shape)
	}
	if axis < 0 || axis >= len(shape) {
		return 0, fmt.Errorf("axis %d of shape %v", axis, shape)
	}
	return axis, nil
}

// softmax lowers gorgonia.SoftMax and gorgonia.LogSoftMax.
func (rw *rows) softmax(c *current) (operand, error) {
	x := c.in[0]
	axis, err := c.softmaxAxis(x.shape)
	if err != nil {
		return operand{}, err
	}
	op := &program.Softmax{Log: c.f.bool("isLog")}
	op.Outer, op.Axis, op.Inner = rowsOf(x.shape, axis)
	return rw.alongRows(op, []operand{x}, c, []int{op.Outer, op.Axis, op.Inner}, x.shape)
}

// softmaxGrad lowers its gradient, from x, y and dy.
func (rw *rows) softmaxGrad(c *current) (operand, error) {
	y := c.in[1]
	axis, err := c.softmaxAxis(y.shape)
	if err != nil {
		return operand{}, err
	}
	op := &program.SoftmaxGrad{Log: c.f.bool("isLog")}
	op.Outer, op.Axis, op.Inner = rowsOf(y.shape, axis)
	return rw.alongRows(op, c.in[1:3], c, []int{op.Outer, op.Axis, op.Inner}, y.shape)
}

// alongRows adds a step over operands reshaped to one space; the result is reshaped to shape.
func (rw *rows) alongRows(op program.Op, in []operand, c *current, space, shape []int) (operand, error) {
	var all []operand
	for _, o := range in {
		v, err := rw.over(o, space)
		if err != nil {
			return operand{}, err
		}
		all = append(all, operand{view: v, shape: space, dtype: o.dtype})
	}
	o, err := rw.through(op, all, c, space)
	if err != nil {
		return o, err
	}
	return rw.reshape(o, shape), nil
}

// gather lowers gorgonia.ByIndices.
func (rw *rows) gather(c *current) (operand, error) {
	x, indices, axis := rw.stored(c.in[0]), rw.stored(c.in[1]), c.f.int("axis")
	if axis >= len(x.shape) {
		return operand{}, fmt.Errorf("axis %d of shape %v", axis, x.shape)
	}
	op := &program.Gather{Count: indices.len()}
	op.Outer, op.Axis, op.Inner = rowsOf(x.shape, axis)
	shape := slices.Clone(x.shape)
	shape[axis] = op.Count
	in := []operand{rw.reshape(x, []int{op.Outer, op.Axis, op.Inner}), rw.reshape(indices, []int{op.Count})}
	o, err := rw.through(op, in, c, []int{op.Outer, op.Count, op.Inner})
	if err != nil {
		return o, err
	}
	return rw.reshape(o, shape), nil
}

// gatherGrad lowers its gradient, from x, dy and the indices.
func (rw *rows) gatherGrad(c *current) (operand, error) {
	x, dy, indices, axis := c.in[0], rw.stored(c.in[1]), rw.stored(c.in[2]), c.f.int("axis")
	if axis >= len(x.shape) {
		return operand{}, fmt.Errorf("axis %d of shape %v", axis, x.shape)
	}
	op := &program.GatherGrad{Count: indices.len()}
	op.Outer, op.Axis, op.Inner = rowsOf(x.shape, axis)
	v, err := rw.over(dy, []int{op.Outer, op.Count, op.Inner})
	if err != nil {
		return operand{}, err
	}
	dy = operand{view: v, shape: []int{op.Outer, op.Count, op.Inner}, dtype: dy.dtype}
	o, err := rw.through(op, []operand{dy, rw.reshape(indices, []int{op.Count})}, c, []int{op.Outer, op.Axis, op.Inner})
	if err != nil {
		return o, err
	}
	return rw.reshape(o, x.shape), nil
}

// sparsemaxRows returns the operand of a sparsemax as (outer, axis, inner). gorgonia.Sparsemax uses
// the last axis by default (op_sparsemax.go:18).
func (rw *rows) sparsemaxRows(o operand, axis int) (operand, error) {
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
	return rw.reshape(rw.stored(o), []int{outer, length, inner}), nil
}

// sparsemax lowers gorgonia.Sparsemax of rows x: max(x-tau, 0), with tau such that a row sums to 1
// (Martins and Astudillo 2016). x_i is in the support if the sum over j of max(x_j-x_i, 0) is below
// 1. That needs no sorting, but Axis times as much arithmetic.
func (rw *rows) sparsemax(c *current) (operand, error) {
	x, err := rw.sparsemaxRows(c.in[0], c.f.int("axis"))
	if err != nil {
		return operand{}, err
	}
	outer, n, inner := x.shape[0], x.shape[1], x.shape[2]
	rows, space := []int{outer, 1, inner}, x.shape
	along := []bool{false, true, false}
	reduce := func(red program.Reduction, value func(m *code) int) operand {
		m := rw.newCode(space)
		value(m)
		to, failed := m.reduceTo(along, red, rw.fresh(c.dtype, []int{outer, inner}))
		if failed != nil && err == nil {
			err = failed
		}
		return stretch(rw.reshape(to, rows), 1, n)
	}
	top := reduce(program.Max, func(m *code) int { return m.load(x) })

	pairs := rw.newCode([]int{outer, n, n, inner}) // outer, i, j, inner
	xi := stretch(rw.reshape(x, []int{outer, n, 1, inner}), 2, n)
	xj := stretch(rw.reshape(x, []int{outer, 1, n, inner}), 1, n)
	pairs.do(program.Maximum, pairs.do(program.Sub, pairs.load(xj), pairs.load(xi)), pairs.constant(0))
	above, failed := pairs.reduceTo([]bool{false, false, true, false}, program.Sum, rw.fresh(c.dtype, space))
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
	m := rw.newCode(space)
	tau := m.do(program.Div, m.do(program.Sub, m.load(sum), m.constant(1)), m.load(size))
	y, err := m.result(m.do(program.Maximum, m.do(program.Sub, m.do(program.Sub, m.load(x), m.load(top)), tau), m.constant(0)), c.dtype)
	if err != nil {
		return y, err
	}
	return rw.reshape(y, c.in[0].shape), nil
}

// sparsemaxGrad lowers its gradient, from y and dy: dy less its mean over the row's support, on the
// support.
func (rw *rows) sparsemaxGrad(c *current) (operand, error) {
	axis := -1
	if f := fieldsOf(c.kids[0].Op()); typeName(c.kids[0].Op()) == "*gorgonia.sparsemaxOp" { // the gradient's op has no axis
		axis = f.int("axis")
	}
	y, err := rw.sparsemaxRows(c.in[0], axis)
	if err != nil {
		return operand{}, err
	}
	dy, err := rw.sparsemaxRows(c.in[1], axis)
	if err != nil {
		return operand{}, err
	}
	outer, n, inner := y.shape[0], y.shape[1], y.shape[2]
	along := []bool{false, true, false}
	sum := func(value func(m *code, in int)) (operand, error) {
		m := rw.newCode(y.shape)
		value(m, m.do(program.NotEqual, m.load(y), m.constant(0)))
		to, err := m.reduceTo(along, program.Sum, rw.fresh(c.dtype, []int{outer, inner}))
		return stretch(rw.reshape(to, []int{outer, 1, inner}), 1, n), err
	}
	total, err := sum(func(m *code, in int) { m.do(program.Select, in, m.load(dy), m.constant(0)) })
	if err != nil {
		return operand{}, err
	}
	size, err := sum(func(*code, int) {})
	if err != nil {
		return operand{}, err
	}
	m := rw.newCode(y.shape)
	in := m.do(program.NotEqual, m.load(y), m.constant(0))
	less := m.do(program.Sub, m.load(dy), m.do(program.Div, m.load(total), m.load(size)))
	dx, err := m.result(m.do(program.Select, in, less, m.constant(0)), c.dtype)
	if err != nil {
		return dx, err
	}
	return rw.reshape(dx, c.in[0].shape), nil
}
