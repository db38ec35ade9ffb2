package nn

import (
	"fmt"
	"math"
	"slices"
	"strings"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/nnop"
)

// layer collects the checks and nodes of one function. After the first error it does nothing.
type layer struct {
	name string // of the function
	g    *G.ExprGraph
	dt   gtensor.Dtype
	err  error
}

// start returns the layer of a function whose main input is x, of float32 or float64 and of least
// to most axes.
func start(name string, x *G.Node, least, most int) *layer {
	l := &layer{name: name}
	switch {
	case x == nil || x.Graph() == nil:
		l.fail(dist.ErrInvalid, "no input, or one without a graph")
		return l
	case x.IsScalar() || len(x.Shape()) == 0:
		l.fail(dist.ErrCount, "input %q is a scalar, want %d to %d axes", called(x), least, most)
		return l
	}
	l.g, l.dt = x.Graph(), x.Dtype()
	switch dims := len(x.Shape()); {
	case l.dt != gtensor.Float32 && l.dt != gtensor.Float64:
		l.fail(dist.ErrDType, "input %q is %v, want float32 or float64", called(x), l.dt)
	case dims < least || dims > most:
		l.fail(dist.ErrCount, "input %q has shape %v, want %d to %d axes", called(x), x.Shape(), least, most)
	}
	return l
}

// fail keeps the first error.
func (l *layer) fail(kind error, format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf("nn.%s: %w: %s", l.name, kind, fmt.Sprintf(format, args...))
	}
}

// called returns the name of n, or "node" and its ID for an unnamed input, whose name in Gorgonia
// starts with "%!".
func called(n *G.Node) string {
	if name := n.Name(); !n.IsVar() || !strings.HasPrefix(name, "%!") {
		return name
	}
	return fmt.Sprintf("node %x", n.ID())
}

// needs checks an input of the same type as the main input, with the given shape.
func (l *layer) needs(what string, n *G.Node, shape ...int) {
	if l.joins(what, n, l.dt); l.err == nil && !slices.Equal([]int(n.Shape()), shape) {
		l.fail(dist.ErrCount, "%s %q has shape %v, want %v", what, called(n), n.Shape(), shape)
	}
}

// joins checks that an input exists, belongs to the graph or to none, and has a type.
func (l *layer) joins(what string, n *G.Node, dt gtensor.Dtype) {
	switch {
	case l.err != nil:
	case n == nil:
		l.fail(dist.ErrInvalid, "no %s", what)
	case n.Graph() != nil && n.Graph() != l.g:
		l.fail(dist.ErrInvalid, "%s %q is in another graph", what, called(n))
	case n.Dtype() != dt:
		l.fail(dist.ErrDType, "%s %q is %v, want %v", what, called(n), n.Dtype(), dt)
	}
}

// vector returns a parameter of n elements as a row that broadcasts over dims axes.
func (l *layer) vector(what string, p *G.Node, n, dims int) *G.Node {
	if l.joins(what, p, l.dt); l.err != nil {
		return nil
	}
	if p.IsScalar() || p.Shape().TotalSize() != n {
		l.fail(dist.ErrCount, "%s %q has shape %v, want %d elements", what, called(p), p.Shape(), n)
		return nil
	}
	shape := make([]int, dims)
	for i := range shape {
		shape[i] = 1
	}
	shape[dims-1] = n
	return l.reshape(p, shape...)
}

// epsilon checks the number that keeps a division finite.
func (l *layer) epsilon(e float64) {
	if l.err == nil && (!(e >= 0) || math.IsInf(e, 1)) {
		l.fail(dist.ErrInvalid, "epsilon %v, want a small number of at least 0", e)
	}
}

// mean returns the means of the rows of x, (..., 1).
func (l *layer) mean(x *G.Node) *G.Node {
	if l.err != nil {
		return nil
	}
	m := l.do(func() (*G.Node, error) { return G.Mean(x, len(x.Shape())-1) })
	return l.reshape(m, lastTo(x.Shape(), 1)...)
}

// channels returns a parameter of n elements as (1, n, 1, 1).
func (l *layer) channels(what string, p *G.Node, n int) *G.Node {
	if row := l.vector(what, p, n, 1); row != nil {
		return l.reshape(row, 1, n, 1, 1)
	}
	return nil
}

// do returns the node of f, or nil after an error.
func (l *layer) do(f func() (*G.Node, error)) *G.Node {
	if l.err != nil {
		return nil
	}
	n, err := f()
	if err != nil {
		l.err = fmt.Errorf("nn.%s: %w", l.name, err)
		return nil
	}
	return n
}

// of returns op of x.
func (l *layer) of(op func(*G.Node) (*G.Node, error), x *G.Node) *G.Node {
	return l.do(func() (*G.Node, error) { return op(x) })
}

// both returns op of a and b.
func (l *layer) both(op func(a, b *G.Node) (*G.Node, error), a, b *G.Node) *G.Node {
	return l.do(func() (*G.Node, error) { return op(a, b) })
}

// with returns op of x and a number.
func (l *layer) with(op func(a, b *G.Node) (*G.Node, error), x *G.Node, number float64) *G.Node {
	return l.both(op, x, nnop.Number(l.dt, number))
}

// over returns op of x and y, with y repeated along axes in which it has size 1.
func (l *layer) over(op func(a, b *G.Node, left, right []byte) (*G.Node, error), x, y *G.Node, axes ...byte) *G.Node {
	return l.do(func() (*G.Node, error) { return op(x, y, nil, axes) })
}

// leading returns the axes before the last one.
func leading(dims int) []byte {
	axes := make([]byte, dims-1)
	for i := range axes {
		axes[i] = byte(i)
	}
	return axes
}

// reshape returns x with another shape; x itself if it has that shape.
func (l *layer) reshape(x *G.Node, shape ...int) *G.Node {
	if l.err == nil && slices.Equal([]int(x.Shape()), shape) {
		return x
	}
	return l.do(func() (*G.Node, error) { return nnop.NewReshape(x, shape...) })
}

// slice returns a part of an axis.
func (l *layer) slice(x *G.Node, axis, start, end int) *G.Node {
	if l.err == nil && start == 0 && end == x.Shape()[axis] {
		return x
	}
	return l.do(func() (*G.Node, error) { return nnop.NewSlice(x, axis, start, end) })
}

// tagged returns x as the input of an op whose hash leaves out a setting.
func (l *layer) tagged(x *G.Node, format string, settings ...any) *G.Node {
	return l.do(func() (*G.Node, error) { return nnop.NewTagged(x, fmt.Sprintf(format, settings...)) })
}

// transpose returns x with its axes reordered.
func (l *layer) transpose(x *G.Node, axes ...int) *G.Node {
	return l.do(func() (*G.Node, error) { return G.Transpose(x, axes...) })
}

// constant returns a constant tensor. Gorgonia compares constants by name and by their first and
// last elements, so the name has all that the elements depend on.
func (l *layer) constant(name string, v *gtensor.Dense) *G.Node {
	if l.err != nil {
		return nil
	}
	return l.g.AddNode(G.NewConstant(v, G.WithName(name)))
}

// rows returns the product of all axes of a shape except the last.
func rows(shape gtensor.Shape) int { return gtensor.Shape(shape[:len(shape)-1]).TotalSize() }

// last returns the length of the last axis.
func last(shape gtensor.Shape) int { return shape[len(shape)-1] }

// lastTo returns a shape with another last axis.
func lastTo(shape gtensor.Shape, n int) []int {
	s := slices.Clone([]int(shape))
	s[len(s)-1] = n
	return s
}
