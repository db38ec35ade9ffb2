package nnop

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// Slice takes the elements from Start on, up to End, of an axis. gorgonia.Slice writes only the low
// bytes of its bounds to its hash, so a graph takes 0:768 and 768:1536 of one node for the same
// node (op_tensor.go:626 of v0.9.18).
type Slice struct {
	result
	Axis, Start, End int
	Length           int // of the axis of the input
}

// NewSlice returns the node of a part of x.
func NewSlice(x *gorgonia.Node, axis, start, end int) (*gorgonia.Node, error) {
	shape := slices.Clone([]int(x.Shape()))
	shape[axis] = end - start
	s := &Slice{Axis: axis, Start: start, End: end, Length: x.Shape()[axis]}
	s.result = result{name: fmt.Sprintf("slice %d:%d of axis %d of %d", start, end, axis, s.Length), inputs: 1, dtype: x.Dtype(), shape: shape}
	return gorgonia.ApplyOp(s, x)
}

// Do returns a copy.
func (s *Slice) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	all, err := s.check(in)
	if err != nil {
		return nil, err
	}
	x := all[0]
	if len(x.Shape()) != len(s.shape) || x.Shape()[s.Axis] != s.Length {
		return nil, fmt.Errorf("%v: %w: the value has shape %v", s, dist.ErrCount, x.Shape())
	}
	shape := x.Shape().Clone()
	shape[s.Axis] = s.End - s.Start
	y := gtensor.New(gtensor.Of(s.dtype), gtensor.WithShape(shape...))
	return y, copyPart(y, x, x.Shape(), s, true)
}

// DiffWRT is true for numbers that are not integers.
func (s *Slice) DiffWRT(inputs int) []bool {
	if s.dtype != gtensor.Float32 && s.dtype != gtensor.Float64 {
		return make([]bool, inputs)
	}
	return first(1, inputs)
}

// SymDiff places the gradient in zeros.
func (s *Slice) SymDiff(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	g := &SliceGrad{Of: s}
	g.result = result{name: fmt.Sprintf("gradient of %v", s), inputs: 2, dtype: s.dtype, shape: in[0].Shape().Clone()}
	dx, err := gorgonia.ApplyOp(g, in[0], dy)
	return gorgonia.Nodes{dx}, err
}

// SliceGrad has the gradient of a Slice in the slice, and zeros elsewhere. Its inputs are those of
// the Slice and the gradient.
type SliceGrad struct {
	result
	Of *Slice
}

// Do returns the gradient of the slice's input.
func (g *SliceGrad) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	all, err := g.check(in)
	if err != nil {
		return nil, err
	}
	shape, part := all[0].Shape().Clone(), all[0].Shape().Clone()
	part[g.Of.Axis] = g.Of.End - g.Of.Start
	if !part.Eq(all[1].Shape()) {
		return nil, fmt.Errorf("%v: %w: the gradient has shape %v", g, dist.ErrCount, all[1].Shape())
	}
	x := gtensor.New(gtensor.Of(g.dtype), gtensor.WithShape(shape...))
	return x, copyPart(x, all[1], shape, g.Of, false)
}

// DiffWRT is false: there is no second derivative.
func (*SliceGrad) DiffWRT(inputs int) []bool { return make([]bool, inputs) }

// SymDiff is not there.
func (g *SliceGrad) SymDiff(gorgonia.Nodes, *gorgonia.Node, *gorgonia.Node) (gorgonia.Nodes, error) {
	return nil, fmt.Errorf("%v: %w: it has no derivative", g, dist.ErrUnsupported)
}

// copyPart copies the slice of a tensor of a shape to a tensor of the slice's size (out), or back.
func copyPart(to, from *gtensor.Dense, shape gtensor.Shape, s *Slice, out bool) error {
	switch t := to.Data().(type) {
	case []float32:
		copyBlocks(t, from.Float32s(), shape, s, out)
	case []float64:
		copyBlocks(t, from.Float64s(), shape, s, out)
	case []int:
		copyBlocks(t, from.Ints(), shape, s, out)
	default:
		return fmt.Errorf("%v: %w: elements of %v", s, dist.ErrDType, to.Dtype())
	}
	return nil
}

func copyBlocks[T any](to, from []T, shape gtensor.Shape, s *Slice, out bool) {
	inner := gtensor.Shape(shape[s.Axis+1:]).TotalSize()
	if s.Axis+1 == len(shape) {
		inner = 1
	}
	row, n := shape[s.Axis]*inner, (s.End-s.Start)*inner
	for i := 0; i*n < min(len(to), len(from)); i++ {
		part, whole := i*n, i*row+s.Start*inner
		if out {
			copy(to[part:part+n], from[whole:])
		} else {
			copy(to[whole:whole+n], from[part:])
		}
	}
}
