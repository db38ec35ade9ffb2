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
// heads, depth), and the cosines and sines (tokens, depth/2). Inverse turns back: it is the
// gradient.
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

// Angles returns the cosines and sines for positions offset, offset+1, ..., each (tokens, depth/2).
// Pair i turns by base^(-2i/depth) a position.
func Angles(dt gtensor.Dtype, tokens, depth, offset int, base float64) (cos, sin *gtensor.Dense) {
	half := depth / 2
	cos = gtensor.New(gtensor.Of(dt), gtensor.WithShape(tokens, half))
	sin = gtensor.New(gtensor.Of(dt), gtensor.WithShape(tokens, half))
	for t := range tokens {
		for i := range half {
			s, c := math.Sincos(float64(t+offset) * math.Pow(base, -2*float64(i)/float64(depth)))
			if dt == gtensor.Float32 {
				cos.Float32s()[t*half+i], sin.Float32s()[t*half+i] = float32(c), float32(s)
			} else {
				cos.Float64s()[t*half+i], sin.Float64s()[t*half+i] = c, s
			}
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
	half := depth / 2
	first, second, step := 0, half, 1 // of pair 0, and from a pair to the next
	if r.Interleaved {
		first, second, step = 0, 1, 2
	}
	for row := range len(x) / depth {
		angle := row / heads % tokens * half
		x, y := x[row*depth:(row+1)*depth], y[row*depth:(row+1)*depth]
		for i := range half {
			a, b, c, s := x[first+i*step], x[second+i*step], cos[angle+i], sin[angle+i]
			if r.Inverse {
				s = -s
			}
			y[first+i*step], y[second+i*step] = a*c-b*s, b*c+a*s
		}
	}
}

// DiffWRT is true for x.
func (*RoPE) DiffWRT(inputs int) []bool { return first(1, inputs) }

// SymDiff turns the gradient back.
func (r *RoPE) SymDiff(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	dx, err := NewRoPE(dy, in[1], in[2], r.Interleaved, !r.Inverse)
	return gorgonia.Nodes{dx, nil, nil}, err
}
