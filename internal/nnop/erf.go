package nnop

import (
	"math"

	"gorgonia.org/gorgonia"
)

// Erf is the error function of each element: 2/√π times the integral of exp(-t²) from 0 to x.
type Erf struct{ result }

// NewErf returns the node of the error function of x.
func NewErf(x *gorgonia.Node) (*gorgonia.Node, error) {
	return gorgonia.ApplyOp(&Erf{result{name: "erf", inputs: 1, dtype: x.Dtype(), shape: x.Shape().Clone()}}, x)
}

// Do computes in float64.
func (e *Erf) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	all, err := e.check(in)
	if err != nil {
		return nil, err
	}
	if len(e.shape) == 0 {
		return scalar(e.dtype, math.Erf(numberOf(all[0]))), nil
	}
	to := e.fresh()
	for i, x := range elements[float64](all[0]) {
		elements[float64](to)[i] = math.Erf(x)
	}
	for i, x := range elements[float32](all[0]) {
		elements[float32](to)[i] = float32(math.Erf(float64(x)))
	}
	return to, nil
}

// DiffWRT is true.
func (*Erf) DiffWRT(inputs int) []bool { return first(1, inputs) }

// SymDiff returns dy * 2/√π * exp(-x²).
func (e *Erf) SymDiff(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	d, err := gorgonia.Square(in[0])
	if err == nil {
		d, err = gorgonia.Neg(d)
	}
	if err == nil {
		d, err = gorgonia.Exp(d)
	}
	if err == nil {
		d, err = gorgonia.HadamardProd(d, Number(e.dtype, 2/math.SqrtPi))
	}
	if err == nil {
		d, err = gorgonia.HadamardProd(dy, d)
	}
	return gorgonia.Nodes{d}, err
}
