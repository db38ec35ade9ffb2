package machine

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/internal/program"
)

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
func (l *lowering) softmax(c *current) (operand, error) {
	x := c.in[0]
	axis, err := c.softmaxAxis(x.shape)
	if err != nil {
		return operand{}, err
	}
	op := &program.Softmax{Log: c.f.bool("isLog")}
	op.Outer, op.Axis, op.Inner = rowsOf(x.shape, axis)
	return l.alongRows(op, []operand{x}, c, []int{op.Outer, op.Axis, op.Inner}, x.shape)
}

// softmaxGrad lowers its gradient, from x, y and dy.
func (l *lowering) softmaxGrad(c *current) (operand, error) {
	y := c.in[1]
	axis, err := c.softmaxAxis(y.shape)
	if err != nil {
		return operand{}, err
	}
	op := &program.SoftmaxGrad{Log: c.f.bool("isLog")}
	op.Outer, op.Axis, op.Inner = rowsOf(y.shape, axis)
	return l.alongRows(op, c.in[1:3], c, []int{op.Outer, op.Axis, op.Inner}, y.shape)
}

// alongRows adds a step over operands reshaped to one space; the result is reshaped to shape.
func (l *lowering) alongRows(op program.Op, in []operand, c *current, space, shape []int) (operand, error) {
	var all []operand
	for _, o := range in {
		v, err := l.over(o, space)
		if err != nil {
			return operand{}, err
		}
		all = append(all, operand{view: v, shape: space, dtype: o.dtype})
	}
	o, err := l.through(op, all, c, space)
	if err != nil {
		return o, err
	}
	return l.reshape(o, shape), nil
}

// gather lowers gorgonia.ByIndices.
func (l *lowering) gather(c *current) (operand, error) {
	x, indices, axis := l.stored(c.in[0]), l.stored(c.in[1]), c.f.int("axis")
	if axis >= len(x.shape) {
		return operand{}, fmt.Errorf("axis %d of shape %v", axis, x.shape)
	}
	op := &program.Gather{Count: indices.len()}
	op.Outer, op.Axis, op.Inner = rowsOf(x.shape, axis)
	shape := slices.Clone(x.shape)
	shape[axis] = op.Count
	in := []operand{l.reshape(x, []int{op.Outer, op.Axis, op.Inner}), l.reshape(indices, []int{op.Count})}
	o, err := l.through(op, in, c, []int{op.Outer, op.Count, op.Inner})
	if err != nil {
		return o, err
	}
	return l.reshape(o, shape), nil
}

// gatherGrad lowers its gradient, from x, dy and the indices.
func (l *lowering) gatherGrad(c *current) (operand, error) {
	x, dy, indices, axis := c.in[0], l.stored(c.in[1]), l.stored(c.in[2]), c.f.int("axis")
	if axis >= len(x.shape) {
		return operand{}, fmt.Errorf("axis %d of shape %v", axis, x.shape)
	}
	op := &program.GatherGrad{Count: indices.len()}
	op.Outer, op.Axis, op.Inner = rowsOf(x.shape, axis)
	v, err := l.over(dy, []int{op.Outer, op.Count, op.Inner})
	if err != nil {
		return operand{}, err
	}
	dy = operand{view: v, shape: []int{op.Outer, op.Count, op.Inner}, dtype: dy.dtype}
	o, err := l.through(op, []operand{dy, l.reshape(indices, []int{op.Count})}, c, []int{op.Outer, op.Axis, op.Inner})
	if err != nil {
		return o, err
	}
	return l.reshape(o, x.shape), nil
}
