package machine

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/internal/program"
)

// The operators of gorgonia.linAlgBinOp (operatorLinAlg.go).
const (
	matMul = iota
	matVec
	dot
	outer
	batched
)

// product lowers a gorgonia.linAlgBinOp. Transposed operands are views.
func (l *lowering) product(c *current) (operand, error) {
	kind := c.f.code("āBinaryOperator")
	a, b := l.stored(c.in[0]), l.stored(c.in[1])
	transA, transB := c.f.bool("transA"), c.f.bool("transB")
	switch kind {
	case matMul, batched:
		return l.matrices(c, a, b, transA, transB)
	case matVec:
		n := b.len()
		o, err := l.matrices(c, a, l.reshape(b, []int{n, 1}), transA, false)
		if err != nil {
			return o, err
		}
		return l.reshape(o, o.shape[:len(o.shape)-1]), nil
	case dot:
		if a.len() != b.len() {
			return operand{}, fmt.Errorf("a product of %d and %d elements", a.len(), b.len())
		}
		m := l.newCode([]int{a.len()})
		m.do(program.Mul, m.load(a), m.load(b))
		return m.reduceTo([]bool{true}, program.Sum, l.fresh(c.dtype, nil))
	case outer:
		l.moved = l.moved || l.isResized(c.kids[1], b)
		m := l.newCode([]int{a.len(), b.len()})
		x, y := l.reshape(a, []int{a.len(), 1}), l.reshape(b, []int{1, b.len()})
		return m.result(m.do(program.Mul, m.load(stretch(x, 1, b.len())), m.load(stretch(y, 0, a.len()))), c.dtype)
	}
	return operand{}, fmt.Errorf("unknown product %d", kind)
}

// stretch returns o with an axis of length 1 repeated n times.
func stretch(o operand, axis, n int) operand {
	o.shape, o.view.Strides = slices.Clone(o.shape), slices.Clone(o.view.Strides)
	o.shape[axis] = n
	if !o.isNum {
		o.view.Strides[axis] = 0
	}
	return o
}

// matrices adds the product of a and b over their last two axes, for each of the others.
func (l *lowering) matrices(c *current, a, b operand, transA, transB bool) (operand, error) {
	n := len(a.shape)
	if n < 2 || len(b.shape) != n || !slices.Equal(a.shape[:n-2], b.shape[:n-2]) {
		return operand{}, fmt.Errorf("a product of shapes %v and %v", a.shape, b.shape)
	}
	outer := slices.Clone(a.shape[:n-2])
	batch := sizeOf(outer)
	a = l.reshape(a, []int{batch, a.shape[n-2], a.shape[n-1]})
	b = l.reshape(b, []int{batch, b.shape[n-2], b.shape[n-1]})
	if transA {
		a = permute(a, []int{0, 2, 1})
	}
	if transB {
		b = permute(b, []int{0, 2, 1})
	}
	if a.shape[2] != b.shape[1] {
		return operand{}, fmt.Errorf("a product of shapes %v and %v", c.in[0].shape, c.in[1].shape)
	}
	op := &program.MatMul{Batch: batch, M: a.shape[1], N: b.shape[2], K: a.shape[2], Alpha: 1}
	to := l.fresh(c.dtype, []int{batch, op.M, op.N})
	l.add(program.Step{Op: op, In: []program.View{a.view, b.view}, Out: []program.View{to.view}})
	return l.reshape(to, append(outer, op.M, op.N)), nil
}

// tensordot lowers gorgonia.Tensordot to a product of matrices. Its inner axis is the contracted
// axes.
func (l *lowering) tensordot(c *current) (operand, error) {
	a, b := l.stored(c.in[0]), l.stored(c.in[1])
	aAxes, bAxes := c.f.ints("aAxes"), c.f.ints("bAxes")
	x, aOuter, inner, err := l.matrixOf(a, aAxes, true)
	if err != nil {
		return operand{}, err
	}
	y, bOuter, other, err := l.matrixOf(b, bAxes, false)
	if err != nil {
		return operand{}, err
	}
	if inner != other {
		return operand{}, fmt.Errorf("axes %v of %v against axes %v of %v", aAxes, a.shape, bAxes, b.shape)
	}
	built := l.builtShape(c.kids[1])
	for axis := range min(len(built), len(b.shape)) {
		l.moved = l.moved || l.resized && built[axis] != b.shape[axis] && !slices.Contains(bAxes, axis)
	}
	o, err := l.matrices(c, x, y, false, false)
	if err != nil {
		return o, err
	}
	return l.reshape(o, append(aOuter, bOuter...)), nil
}

// matrixOf returns o as a matrix with the given axes last or first.
func (l *lowering) matrixOf(o operand, axes []int, last bool) (m operand, outer []int, inner int, err error) {
	var rest []int
	inner = 1
	for a, d := range o.shape {
		if slices.Contains(axes, a) {
			inner *= d
		} else {
			rest, outer = append(rest, a), append(outer, d)
		}
	}
	order := append(slices.Clone(rest), axes...)
	shape := []int{sizeOf(outer), inner}
	if !last {
		order = append(slices.Clone(axes), rest...)
		shape = []int{inner, sizeOf(outer)}
	}
	if !isPermutation(order, len(o.shape)) {
		return o, nil, 0, fmt.Errorf("axes %v of shape %v", axes, o.shape)
	}
	return l.reshape(permute(o, order), shape), outer, inner, nil
}
