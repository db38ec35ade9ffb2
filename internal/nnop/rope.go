package nnop

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// RoPE turns pairs of features of each head by an angle that grows with the token's position:
//
//	y1 = x1*cos(p*f) - x2*sin(p*f)
//	y2 = x2*cos(p*f) + x1*sin(p*f)
//
// for the token at position p, and f = Base^(-2i/depth) for pair i of depth/2 pairs. The elements
// of pair i are i and i+depth/2, or 2i and 2i+1 with Interleaved. Inputs are x (batch, tokens,
// heads, depth), and the cosines and sines of Angles. Inverse turns back: it is the gradient.
type RoPE struct {
	result
	Interleaved bool
	Inverse     bool
}

// NewRoPE returns the node of x turned by cosines and sines.
func NewRoPE(x, cos, sin *gorgonia.Node, interleaved, inverse bool) (*gorgonia.Node, error) {
	r := &RoPE{Interleaved: interleaved, Inverse: inverse}
	r.result = result{name: fmt.Sprintf("rope interleaved=%v inverse=%v", interleaved, inverse), inputs: 3, dtype: x.Dtype(), shape: x.Shape().Clone()}
	return gorgonia.ApplyOp(r, x, cos, sin)
}

// Angles returns cosines and sines for positions offset, offset+1, ..., each (tokens, depth): for
// both elements of a pair the same cosine, and the sine negated for the first. Pair i turns by
// base^(-2i/depth) a position.
func Angles(dt gtensor.Dtype, tokens, depth, offset int, base float64, interleaved bool) (cos, sin *gtensor.Dense) {
	cos = gtensor.New(gtensor.Of(dt), gtensor.WithShape(tokens, depth))
	sin = gtensor.New(gtensor.Of(dt), gtensor.WithShape(tokens, depth))
	for at := range tokens * depth {
		t, d := at/depth, at%depth
		pair, sign := d%(depth/2), -1.0
		if d >= depth/2 {
			sign = 1
		}
		if interleaved {
			pair, sign = d/2, float64(d%2*2-1)
		}
		s, c := math.Sincos(float64(t+offset) * math.Pow(base, -2*float64(pair)/float64(depth)))
		if dt == gtensor.Float32 {
			cos.Float32s()[at], sin.Float32s()[at] = float32(c), float32(sign*s)
		} else {
			cos.Float64s()[at], sin.Float64s()[at] = c, sign*s
		}
	}
	return cos, sin
}

// Do turns each pair.
func (r *RoPE) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	all, err := r.check(in)
	if err != nil {
		return nil, err
	}
	if !all[0].Shape().Eq(r.shape) {
		return nil, fmt.Errorf("%v: %w: the value has shape %v, the graph says %v", r, dist.ErrCount, all[0].Shape(), r.shape)
	}
	to := r.fresh()
	turn(r, elements[float32](to), elements[float32](all[0]), elements[float32](all[1]), elements[float32](all[2]))
	turn(r, elements[float64](to), elements[float64](all[0]), elements[float64](all[1]), elements[float64](all[2]))
	return to, nil
}

func turn[T real](r *RoPE, y, x, cos, sin []T) {
	tokens, heads, depth := r.shape[1], r.shape[2], r.shape[3]
	sign := T(1)
	if r.Inverse {
		sign = -1
	}
	for i := range x {
		d := i % depth
		angle := i / depth / heads % tokens * depth
		other := (d + depth/2) % depth
		if r.Interleaved {
			other = d ^ 1
		}
		y[i] = x[i]*cos[angle+d] + sign*x[i-d+other]*sin[angle+d]
	}
}

// DiffWRT is true for x.
func (*RoPE) DiffWRT(inputs int) []bool { return first(1, inputs) }

// SymDiff turns the gradient back.
func (r *RoPE) SymDiff(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	dx, err := NewRoPE(dy, in[1], in[2], r.Interleaved, !r.Inverse)
	return gorgonia.Nodes{dx, nil, nil}, err
}
