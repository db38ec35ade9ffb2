package lower

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
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
func (pr *products) product(c *current) (draft.Operand, error) {
	kind := c.f.code("āBinaryOperator")
	a, b := pr.Stored(c.in[0]), pr.Stored(c.in[1])
	transA, transB := c.f.bool("transA"), c.f.bool("transB")
	switch kind {
	case matMul, batched:
		return pr.matrices(c, a, b, transA, transB)
	case matVec:
		n := b.Len()
		o, err := pr.matrices(c, a, pr.Reshape(b, []int{n, 1}), transA, false)
		if err != nil {
			return o, err
		}
		return pr.Reshape(o, o.Shape[:len(o.Shape)-1]), nil
	case dot:
		if a.Len() != b.Len() {
			return draft.Operand{}, fmt.Errorf("a product of %d and %d elements", a.Len(), b.Len())
		}
		m := pr.NewCode([]int{a.Len()})
		m.Do(program.Mul, m.Load(a), m.Load(b))
		return m.ReduceTo([]bool{true}, program.Sum, pr.Fresh(c.dtype, nil))
	case outer:
		pr.sizes.moved = pr.sizes.moved || pr.sizes.isResized(c.kids[1], b)
		m := pr.NewCode([]int{a.Len(), b.Len()})
		x, y := pr.Reshape(a, []int{a.Len(), 1}), pr.Reshape(b, []int{1, b.Len()})
		return m.Result(m.Do(program.Mul, m.Load(draft.Stretch(x, 1, b.Len())), m.Load(draft.Stretch(y, 0, a.Len()))), c.dtype)
	}
	return draft.Operand{}, fmt.Errorf("unknown product %d", kind)
}

// matrices adds the product of a and b over their last two axes, for each of the others.
func (pr *products) matrices(c *current, a, b draft.Operand, transA, transB bool) (draft.Operand, error) {
	n := len(a.Shape)
	if n < 2 || len(b.Shape) != n || !slices.Equal(a.Shape[:n-2], b.Shape[:n-2]) {
		return draft.Operand{}, fmt.Errorf("a product of shapes %v and %v", a.Shape, b.Shape)
	}
	outer := slices.Clone(a.Shape[:n-2])
	batch := draft.SizeOf(outer)
	a = pr.Reshape(a, []int{batch, a.Shape[n-2], a.Shape[n-1]})
	b = pr.Reshape(b, []int{batch, b.Shape[n-2], b.Shape[n-1]})
	if transA {
		a = draft.Permute(a, []int{0, 2, 1})
	}
	if transB {
		b = draft.Permute(b, []int{0, 2, 1})
	}
	if a.Shape[2] != b.Shape[1] {
		return draft.Operand{}, fmt.Errorf("a product of shapes %v and %v", c.in[0].Shape, c.in[1].Shape)
	}
	op := &program.MatMul{Batch: batch, M: a.Shape[1], N: b.Shape[2], K: a.Shape[2], Alpha: 1}
	to := pr.Fresh(c.dtype, []int{batch, op.M, op.N})
	pr.Add(program.Step{Op: op, In: []program.View{a.View, b.View}, Out: []program.View{to.View}})
	return pr.Reshape(to, append(outer, op.M, op.N)), nil
}

// tensordot lowers gorgonia.Tensordot to a product of matrices. Its inner axis is the contracted
// axes.
func (pr *products) tensordot(c *current) (draft.Operand, error) {
	a, b := pr.Stored(c.in[0]), pr.Stored(c.in[1])
	aAxes, bAxes := c.f.ints("aAxes"), c.f.ints("bAxes")
	x, aOuter, inner, err := pr.matrixOf(a, aAxes, true)
	if err != nil {
		return draft.Operand{}, err
	}
	y, bOuter, other, err := pr.matrixOf(b, bAxes, false)
	if err != nil {
		return draft.Operand{}, err
	}
	if inner != other {
		return draft.Operand{}, fmt.Errorf("axes %v of %v against axes %v of %v", aAxes, a.Shape, bAxes, b.Shape)
	}
	built := pr.sizes.builtShape(c.kids[1])
	for axis := range min(len(built), len(b.Shape)) {
		pr.sizes.moved = pr.sizes.moved || pr.sizes.resized && built[axis] != b.Shape[axis] && !slices.Contains(bAxes, axis)
	}
	o, err := pr.matrices(c, x, y, false, false)
	if err != nil {
		return o, err
	}
	return pr.Reshape(o, append(aOuter, bOuter...)), nil
}

// matrixOf returns o as a matrix with the given axes last or first.
func (pr *products) matrixOf(o draft.Operand, axes []int, last bool) (m draft.Operand, outer []int, inner int, err error) {
	var rest []int
	inner = 1
	for a, d := range o.Shape {
		if slices.Contains(axes, a) {
			inner *= d
		} else {
			rest, outer = append(rest, a), append(outer, d)
		}
	}
	order := append(slices.Clone(rest), axes...)
	shape := []int{draft.SizeOf(outer), inner}
	if !last {
		order = append(slices.Clone(axes), rest...)
		shape = []int{inner, draft.SizeOf(outer)}
	}
	if !isPermutation(order, len(o.Shape)) {
		return o, nil, 0, fmt.Errorf("axes %v of shape %v", axes, o.Shape)
	}
	return pr.Reshape(draft.Permute(o, order), shape), outer, inner, nil
}
