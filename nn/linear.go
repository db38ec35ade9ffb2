package nn

import (
	"slices"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// maxAxes is the most axes that gorgonia.Broadcast supports (broadcast.go:10).
const maxAxes = 4

// Linear returns x times w plus b, for each row of x:
//
//	y[..., j] = sum over i of x[..., i] * w[i, j] + b[j]
//
// That is torch.nn.Linear, whose weight is wᵀ. A tied output layer passes the transposed embedding
// (gorgonia.Transpose(table, 1, 0)), which package machine multiplies without a copy.
//
// Shapes: x is (..., in) of 2 to 4 axes, w (in, out), b has out elements, or is nil; the result is
// (..., out). Errors: dist.ErrCount, dist.ErrDType, dist.ErrInvalid.
func Linear(x, w, b *G.Node) (*G.Node, error) {
	l := start("Linear", x, 2, maxAxes)
	l.joins("weight", w, l.dt)
	if l.err != nil {
		return nil, l.err
	}
	in := last(x.Shape())
	if len(w.Shape()) != 2 || w.Shape()[0] != in {
		l.fail(dist.ErrCount, "weight %q has shape %v, want (%d, out) for input %q of shape %v", called(w), w.Shape(), in, called(x), x.Shape())
		return nil, l.err
	}
	y := l.both(G.Mul, l.reshape(x, rows(x.Shape()), in), w)
	if b != nil {
		y = l.over(G.BroadcastAdd, y, l.vector("bias", b, w.Shape()[1], 2), 0)
	}
	return l.reshape(y, lastTo(x.Shape(), w.Shape()[1])...), l.err
}

// Embedding returns rows of a table: y[..., j] = table[tokens[...], j]. That is
// torch.nn.Embedding. Rows with several tokens add up their gradients.
//
// Shapes: table is (vocabulary, width), tokens of int, 1 to 3 axes; the result is (tokens...,
// width). Errors: as for Linear; a token outside the table is an error of the run.
func Embedding(table, tokens *G.Node) (*G.Node, error) {
	l := start("Embedding", table, 2, 2)
	l.joins("tokens", tokens, gtensor.Int)
	if l.err == nil && (tokens.IsScalar() || len(tokens.Shape()) > maxAxes-1) {
		l.fail(dist.ErrCount, "tokens %q have shape %v, want 1 to %d axes", called(tokens), tokens.Shape(), maxAxes-1)
	}
	if l.err != nil {
		return nil, l.err
	}
	shape := tokens.Shape()
	flat := l.reshape(tokens, shape.TotalSize())
	y := l.do(func() (*G.Node, error) { return G.ByIndices(table, flat, 0) })
	return l.reshape(y, append(slices.Clone([]int(shape)), last(table.Shape()))...), l.err
}

// Reshape returns x with another shape of as many elements. On a tape machine the result has memory
// of its own. Gorgonia's Reshape shares memory, and an elementwise op on either node may write over
// the other (Gorgonia issue 511). Package machine makes a view.
//
// Errors: dist.ErrCount for another number of elements; dist.ErrInvalid without x.
func Reshape(x *G.Node, shape ...int) (*G.Node, error) {
	l := &layer{name: "Reshape"}
	switch {
	case x == nil || x.Graph() == nil:
		l.fail(dist.ErrInvalid, "no input, or one without a graph")
	case len(shape) == 0 || slices.Min(shape) < 1 || gtensor.Shape(shape).TotalSize() != x.Shape().TotalSize():
		l.fail(dist.ErrCount, "input %q of shape %v to shape %v", called(x), x.Shape(), shape)
	}
	return l.reshape(x, shape...), l.err
}

// Slice returns the elements from start on, up to end, of an axis of x. Use it instead of
// gorgonia.Slice: a graph takes two of those of one node for the same node if their bounds are
// equal modulo 256, such as 0:768 and 768:1536.
//
// Shapes: that of x, with end-start for the axis, which stays if it is 1. Errors: dist.ErrCount for
// an axis or a bound outside of the shape; dist.ErrInvalid without x.
func Slice(x *G.Node, axis, start, end int) (*G.Node, error) {
	l := &layer{name: "Slice"}
	switch {
	case x == nil || x.Graph() == nil:
		l.fail(dist.ErrInvalid, "no input, or one without a graph")
	case axis < 0 || axis >= len(x.Shape()) || start < 0 || end <= start || end > x.Shape()[axis]:
		l.fail(dist.ErrCount, "%d:%d of axis %d of input %q of shape %v", start, end, axis, called(x), x.Shape())
	}
	return l.slice(x, axis, start, end), l.err
}

// Dropout returns x with each element set to 0 with probability p, and the others divided by 1-p,
// as torch.nn.Dropout. In evaluation mode (gorgonia.EvalMode, machine.Config.Eval) it returns x.
// It is gorgonia.Dropout, whose gradient on a tape machine is right only after ops.Grad or
// ddp.Attach; package machine's is right always.
//
// Errors: as for Linear; dist.ErrInvalid for a p outside [0, 1).
func Dropout(x *G.Node, p float64) (*G.Node, error) {
	l := start("Dropout", x, 1, maxAxes)
	if l.err == nil && !(p >= 0 && p < 1) {
		l.fail(dist.ErrInvalid, "probability %v is not in [0, 1)", p)
	}
	if l.err == nil && p == 0 {
		return x, nil
	}
	return l.do(func() (*G.Node, error) { return G.Dropout(l.tagged(x, "dropout %v", p), p) }), l.err
}
