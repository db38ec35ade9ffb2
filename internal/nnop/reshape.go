package nnop

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// Reshape gives a tensor another shape. On a tape machine the result is a copy: Gorgonia's own
// reshape shares memory with its input, and a later elementwise op may then write over either
// (Gorgonia issue 511). Package machine makes a view.
type Reshape struct {
	result
	from, to []int // internal/compile/lower reads them as those of gorgonia.Reshape
}

// NewReshape returns the node of x with another shape of as many elements.
func NewReshape(x *gorgonia.Node, to ...int) (*gorgonia.Node, error) {
	from := slices.Clone([]int(x.Shape()))
	r := &Reshape{from: from, to: slices.Clone(to)}
	r.result = result{name: fmt.Sprintf("reshape %v to %v", from, to), inputs: 1, dtype: x.Dtype(), shape: slices.Clone(to)}
	return gorgonia.ApplyOp(r, x)
}

// NewTagged returns x as a node of its own. Ops whose hashes leave out a setting, such as the
// probability of gorgonia.Dropout, take inputs with the setting as the tag: on one input a graph
// would take two of them for the same node.
func NewTagged(x *gorgonia.Node, tag string) (*gorgonia.Node, error) {
	shape := slices.Clone([]int(x.Shape()))
	r := &Reshape{from: shape, to: slices.Clone(shape)}
	r.result = result{name: fmt.Sprintf("input of %s, %v", tag, shape), inputs: 1, dtype: x.Dtype(), shape: slices.Clone(shape)}
	return gorgonia.ApplyOp(r, x)
}

// Do returns a copy.
func (r *Reshape) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	all, err := r.check(in)
	if err != nil {
		return nil, err
	}
	if all[0].Shape().TotalSize() != r.shape.TotalSize() {
		return nil, fmt.Errorf("%v: the value has shape %v", r, all[0].Shape())
	}
	d, ok := all[0].Clone().(*gtensor.Dense)
	if !ok {
		return nil, fmt.Errorf("%v: no copy of a %T", r, in[0])
	}
	return d, d.Reshape(r.to...)
}

// DiffWRT is true for numbers that are not integers.
func (r *Reshape) DiffWRT(inputs int) []bool {
	if r.dtype != gtensor.Float32 && r.dtype != gtensor.Float64 {
		return make([]bool, inputs)
	}
	return first(1, inputs)
}

// SymDiff reshapes the gradient back.
func (r *Reshape) SymDiff(_ gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	dx, err := NewReshape(dy, r.from...)
	return gorgonia.Nodes{dx}, err
}
