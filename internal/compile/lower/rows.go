package lower

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
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
	return draft.SizeOf(shape[:axis]), shape[axis], draft.SizeOf(shape[axis+1:])
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
func (rw *rows) softmax(c *current) (draft.Operand, error) {
	x := c.in[0]
	axis, err := c.softmaxAxis(x.Shape)
	if err != nil {
		return draft.Operand{}, err
	}
	op := &program.Softmax{Log: c.f.bool("isLog")}
	op.Outer, op.Axis, op.Inner = rowsOf(x.Shape, axis)
	return rw.alongRows(op, []draft.Operand{x}, c, []int{op.Outer, op.Axis, op.Inner}, x.Shape)
}

// softmaxGrad lowers its gradient, from x, y and dy.
func (rw *rows) softmaxGrad(c *current) (draft.Operand, error) {
	y := c.in[1]
	axis, err := c.softmaxAxis(y.Shape)
	if err != nil {
		return draft.Operand{}, err
	}
	op := &program.SoftmaxGrad{Log: c.f.bool("isLog")}
	op.Outer, op.Axis, op.Inner = rowsOf(y.Shape, axis)
	return rw.alongRows(op, c.in[1:3], c, []int{op.Outer, op.Axis, op.Inner}, y.Shape)
}

// alongRows adds a step over operands reshaped to one space; the result is reshaped to shape.
func (rw *rows) alongRows(op program.Op, in []draft.Operand, c *current, space, shape []int) (draft.Operand, error) {
	var all []draft.Operand
	for _, o := range in {
		v, err := rw.Over(o, space)
		if err != nil {
			return draft.Operand{}, err
		}
		all = append(all, draft.Operand{View: v, Shape: space, DType: o.DType})
	}
	o, err := rw.through(op, all, c, space)
	if err != nil {
		return o, err
	}
	return rw.Reshape(o, shape), nil
}

// gather lowers gorgonia.ByIndices.
func (rw *rows) gather(c *current) (draft.Operand, error) {
	x, indices, axis := rw.Stored(c.in[0]), rw.Stored(c.in[1]), c.f.int("axis")
	if axis >= len(x.Shape) {
		return draft.Operand{}, fmt.Errorf("axis %d of shape %v", axis, x.Shape)
	}
	op := &program.Gather{Count: indices.Len()}
	op.Outer, op.Axis, op.Inner = rowsOf(x.Shape, axis)
	shape := slices.Clone(x.Shape)
	shape[axis] = op.Count
	in := []draft.Operand{rw.Reshape(x, []int{op.Outer, op.Axis, op.Inner}), rw.Reshape(indices, []int{op.Count})}
	o, err := rw.through(op, in, c, []int{op.Outer, op.Count, op.Inner})
	if err != nil {
		return o, err
	}
	return rw.Reshape(o, shape), nil
}

// gatherGrad lowers its gradient, from x, dy and the indices.
func (rw *rows) gatherGrad(c *current) (draft.Operand, error) {
	x, dy, indices, axis := c.in[0], rw.Stored(c.in[1]), rw.Stored(c.in[2]), c.f.int("axis")
	if axis >= len(x.Shape) {
		return draft.Operand{}, fmt.Errorf("axis %d of shape %v", axis, x.Shape)
	}
	op := &program.GatherGrad{Count: indices.Len()}
	op.Outer, op.Axis, op.Inner = rowsOf(x.Shape, axis)
	v, err := rw.Over(dy, []int{op.Outer, op.Count, op.Inner})
	if err != nil {
		return draft.Operand{}, err
	}
	dy = draft.Operand{View: v, Shape: []int{op.Outer, op.Count, op.Inner}, DType: dy.DType}
	o, err := rw.through(op, []draft.Operand{dy, rw.Reshape(indices, []int{op.Count})}, c, []int{op.Outer, op.Axis, op.Inner})
	if err != nil {
		return o, err
	}
	return rw.Reshape(o, x.Shape), nil
}

// sparsemaxRows returns the operand of a sparsemax as (outer, axis, inner). gorgonia.Sparsemax uses
// the last axis by default (op_sparsemax.go:18).
func (rw *rows) sparsemaxRows(o draft.Operand, axis int) (draft.Operand, error) {
	if len(o.Shape) == 0 {
		return o, fmt.Errorf("a sparsemax of a scalar")
	}
	if axis < 0 {
		axis += len(o.Shape)
	}
	if axis < 0 || axis >= len(o.Shape) {
		return o, fmt.Errorf("axis %d of shape %v", axis, o.Shape)
	}
	outer, length, inner := rowsOf(o.Shape, axis)
	return rw.Reshape(rw.Stored(o), []int{outer, length, inner}), nil
}

// sparsemax lowers gorgonia.Sparsemax of rows x: max(x-tau, 0), with tau such that a row sums to 1
// (Martins and Astudillo 2016). x_i is in the support if the sum over j of max(x_j-x_i, 0) is below
// 1. That needs no sorting, but Axis times as much arithmetic.
func (rw *rows) sparsemax(c *current) (draft.Operand, error) {
	x, err := rw.sparsemaxRows(c.in[0], c.f.int("axis"))
	if err != nil {
		return draft.Operand{}, err
	}
	outer, n, inner := x.Shape[0], x.Shape[1], x.Shape[2]
	rows, space := []int{outer, 1, inner}, x.Shape
	along := []bool{false, true, false}
	reduce := func(red program.Reduction, value func(m *draft.Code) int) draft.Operand {
		m := rw.NewCode(space)
		value(m)
		to, failed := m.ReduceTo(along, red, rw.Fresh(c.dtype, []int{outer, inner}))
		if failed != nil && err == nil {
			err = failed
		}
		return draft.Stretch(rw.Reshape(to, rows), 1, n)
	}
	top := reduce(program.Max, func(m *draft.Code) int { return m.Load(x) })

	pairs := rw.NewCode([]int{outer, n, n, inner}) // outer, i, j, inner
	xi := draft.Stretch(rw.Reshape(x, []int{outer, n, 1, inner}), 2, n)
	xj := draft.Stretch(rw.Reshape(x, []int{outer, 1, n, inner}), 1, n)
	pairs.Do(program.Maximum, pairs.Do(program.Sub, pairs.Load(xj), pairs.Load(xi)), pairs.Constant(0))
	above, failed := pairs.ReduceTo([]bool{false, false, true, false}, program.Sum, rw.Fresh(c.dtype, space))
	if failed != nil {
		return draft.Operand{}, failed
	}
	size := reduce(program.Sum, func(m *draft.Code) int { return m.Do(program.Less, m.Load(above), m.Constant(1)) })
	sum := reduce(program.Sum, func(m *draft.Code) int {
		in := m.Do(program.Less, m.Load(above), m.Constant(1))
		return m.Do(program.Select, in, m.Do(program.Sub, m.Load(x), m.Load(top)), m.Constant(0))
	})
	if err != nil {
		return draft.Operand{}, err
	}
	m := rw.NewCode(space)
	tau := m.Do(program.Div, m.Do(program.Sub, m.Load(sum), m.Constant(1)), m.Load(size))
	y, err := m.Result(m.Do(program.Maximum, m.Do(program.Sub, m.Do(program.Sub, m.Load(x), m.Load(top)), tau), m.Constant(0)), c.dtype)
	if err != nil {
		return y, err
	}
	return rw.Reshape(y, c.in[0].Shape), nil
}

// sparsemaxGrad lowers its gradient, from y and dy: dy less its mean over the row's support, on the
// support.
func (rw *rows) sparsemaxGrad(c *current) (draft.Operand, error) {
	axis := -1
	if f := fieldsOf(c.kids[0].Op()); typeName(c.kids[0].Op()) == "*gorgonia.sparsemaxOp" { // the gradient's op has no axis
		axis = f.int("axis")
	}
	y, err := rw.sparsemaxRows(c.in[0], axis)
	if err != nil {
		return draft.Operand{}, err
	}
	dy, err := rw.sparsemaxRows(c.in[1], axis)
	if err != nil {
		return draft.Operand{}, err
	}
	outer, n, inner := y.Shape[0], y.Shape[1], y.Shape[2]
	along := []bool{false, true, false}
	sum := func(value func(m *draft.Code, in int)) (draft.Operand, error) {
		m := rw.NewCode(y.Shape)
		value(m, m.Do(program.NotEqual, m.Load(y), m.Constant(0)))
		to, err := m.ReduceTo(along, program.Sum, rw.Fresh(c.dtype, []int{outer, inner}))
		return draft.Stretch(rw.Reshape(to, []int{outer, 1, inner}), 1, n), err
	}
	total, err := sum(func(m *draft.Code, in int) { m.Do(program.Select, in, m.Load(dy), m.Constant(0)) })
	if err != nil {
		return draft.Operand{}, err
	}
	size, err := sum(func(*draft.Code, int) {})
	if err != nil {
		return draft.Operand{}, err
	}
	m := rw.NewCode(y.Shape)
	in := m.Do(program.NotEqual, m.Load(y), m.Constant(0))
	less := m.Do(program.Sub, m.Load(dy), m.Do(program.Div, m.Load(total), m.Load(size)))
	dx, err := m.Result(m.Do(program.Select, in, less, m.Constant(0)), c.dtype)
	if err != nil {
		return dx, err
	}
	return rw.Reshape(dx, c.in[0].Shape), nil
}
