package nn

import (
	G "gorgonia.org/gorgonia"
)

// LayerNorm normalizes each row of x, of n features:
//
//	y = (x - mean) / sqrt(variance + epsilon) * gain + offset
//
// with the variance divided by n. That is torch.nn.LayerNorm over the last axis (Ba, Kiros and
// Hinton, Layer Normalization, 2016); PyTorch's epsilon is 1e-5.
//
// Shapes: x is (..., n) of 2 to 4 axes; gain and offset have n elements; nil means 1 and 0. Errors:
// as for Linear; dist.ErrInvalid for an epsilon that is negative or not finite.
func LayerNorm(x, gain, offset *G.Node, epsilon float64) (*G.Node, error) {
	l := start("LayerNorm", x, 2, maxAxes)
	l.epsilon(epsilon)
	if l.err != nil {
		return nil, l.err
	}
	axis := byte(len(x.Shape()) - 1)
	y := l.over(G.BroadcastSub, x, l.mean(x), axis)
	deviation := l.of(G.Sqrt, l.with(G.Add, l.mean(l.of(G.Square, y)), epsilon))
	y = l.over(G.BroadcastHadamardDiv, y, deviation, axis)
	return affine(l, y, gain, offset), l.err
}

// RMSNorm divides each row of x, of n features, by its root mean square:
//
//	y = x / sqrt(mean(x²) + epsilon) * gain
//
// That is torch.nn.RMSNorm over the last axis, and LlamaRMSNorm (Zhang and Sennrich, Root Mean
// Square Layer Normalization, 2019).
//
// Shapes: x is (..., n) of 2 to 4 axes; gain has n elements; nil means 1. Errors: as for LayerNorm.
func RMSNorm(x, gain *G.Node, epsilon float64) (*G.Node, error) {
	l := start("RMSNorm", x, 2, maxAxes)
	l.epsilon(epsilon)
	if l.err != nil {
		return nil, l.err
	}
	root := l.of(G.Sqrt, l.with(G.Add, l.mean(l.of(G.Square, x)), epsilon))
	y := l.over(G.BroadcastHadamardDiv, x, root, byte(len(x.Shape())-1))
	return affine(l, y, gain, nil), l.err
}

// affine returns x times a gain plus an offset for each column; each may be nil.
func affine(l *layer, x, gain, offset *G.Node) *G.Node {
	if l.err != nil {
		return nil
	}
	n, dims := last(x.Shape()), len(x.Shape())
	if gain != nil {
		x = l.over(G.BroadcastHadamardProd, x, l.vector("gain", gain, n, dims), leading(dims)...)
	}
	if offset != nil {
		x = l.over(G.BroadcastAdd, x, l.vector("offset", offset, n, dims), leading(dims)...)
	}
	return x
}
