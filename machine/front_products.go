package machine

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/internal/program"
)

// products has the rules of products of matrices and vectors.
type products struct {
	work
}

func (pr *products) rules() map[string]rule {
	return map[string]rule{
		"gorgonia.linAlgBinOp": {inputs: 2, lower: pr.product},
		"gorgonia.tensordotOp": {inputs: 2, lower: pr.tensordot},
	}
}

// The operators of gorgonia.linAlgBinOp (operatorLinAlg.go).
const (
	matMul = iota
	matVec
	dot
	outer
	batched
)

// product lowers a gorgonia.linAlgBinOp. Transposed operands are views.
func (pr *products) product(c *current) (operand, error) {
	kind := c.f.code("āBinaryOperator")
	a, b := pr.stored(c.in[0]), pr.stored(c.in[1])
	transA, transB := c.f.bool("transA"), c.f.bool("transB")
	switch kind {
	case matMul, batched:
		return pr.matrices(c, a, b, transA, transB)
	case matVec:
		n := b.len()
		o, err := pr.matrices(c, a, pr.reshape(b, []int{n, 1}), transA, false)
		if err != nil {
			return o, err
		}
		return pr.reshape(o, o.shape[:len(o.shape)-1]), nil
	case dot:
		if a.len() != b.len() {
			return operand{}, fmt.Errorf("a product of %d and %d elements", a.len(), b.len())
		}
		m := pr.newCode([]int{a.len()})
		m.do(program.Mul, m.load(a), m.load(b))
		return m.reduceTo([]bool{true}, program.Sum, pr.fresh(c.dtype, nil))
	case outer:
		pr.sizes.moved = pr.sizes.moved || pr.sizes.isResized(c.kids[1], b)
		m := pr.newCode([]int{a.len(), b.len()})
		x, y := pr.reshape(a, []int{a.len(), 1}), pr.reshape(b, []int{1, b.len()})
		return m.result(m.do(program.Mul, m.load(stretch(x, 1, b.len())), m.load(stretch(y, 0, a.len()))), c.dtype)
	}
	return operand{}, fmt.Errorf("unknown product %d", kind)
}

// matrices adds the product of a and b over their last two axes, for each of the others.
func (pr *products) matrices(c *current, a, b operand, transA, transB bool) (operand, error) {
	n := len(a.shape)
	if n < 2 || len(b.shape) != n || !slices.Equal(a.shape[:n-2], b.shape[:n-2]) {
		return operand{}, fmt.Errorf("a product of shapes %v and %v", a.shape, b.shape)
	}
	outer := slices.Clone(a.shape[:n-2])
	batch := sizeOf(outer)
	a = pr.reshape(a, []int{batch, a.shape[n-2], a.shape[n-1]})
	b = pr.reshape(b, []int{batch, b.shape[n-2], b.shape[n-1]})
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
	to := pr.fresh(c.dtype, []int{batch, op.M, op.N})
	pr.add(program.Step{Op: op, In: []program.View{a.view, b.view}, Out: []program.View{to.view}})
	return pr.reshape(to, append(outer, op.M, op.N)), nil
}

// tensordot lowers gorgonia.Tensordot to a product of matrices. Its inner axis is the contracted
// axes.
func (pr *products) tensordot(c *current) (operand, error) {
	a, b := pr.stored(c.in[0]), pr.stored(c.in[1])
	aAxes, bAxes := c.f.ints("aAxes"), c.f.ints("bAxes")
	x, aOuter, inner, err := pr.matrixOf(a, aAxes, true)
	if err != nil {
		return operand{}, err
	}
	y, bOuter, other, err := pr.matrixOf(b, bAxes, false)
	if err != nil {
		return operand{}, err
	}
	if inner != other {
		return operand{}, fmt.Errorf("axes %v of %v against axes %v of %v", aAxes, a.shape, bAxes, b.shape)
	}
	built := pr.sizes.builtShape(c.kids[1])
	for axis := range min(len(built), len(b.shape)) {
		pr.sizes.moved = pr.sizes.moved || pr.sizes.resized && built[axis] != b.shape[axis] && !slices.Contains(bAxes, axis)
	}
	o, err := pr.matrices(c, x, y, false, false)
	if err != nil {
		return o, err
	}
	return pr.reshape(o, append(aOuter, bOuter...)), nil
}

// matrixOf returns o as a matrix with the given axes last or first.
func (pr *products) matrixOf(o operand, axes []int, last bool) (m operand, outer []int, inner int, err error) {
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
	return pr.reshape(permute(o, order), shape), outer, inner, nil
}
