package machinetest

import (
	"fmt"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// affine returns x times a matrix, plus a row.
func (b *build) affine(name string, x *G.Node, in, out int) *G.Node {
	w, c := b.param(name+".weight", 0, 0.4, in, out), b.param(name+".bias", 0, 0.1, 1, out)
	return b.broadcast(G.BroadcastAdd, b.both(G.Mul, x, w), c, nil, []byte{0})
}

// conv returns a convolution without a bias.
func (b *build) conv(name string, x *G.Node, in, out int, kernel, pad, stride, dilation []int) *G.Node {
	w := b.param(name, 0, 0.3, out, in, kernel[0], kernel[1])
	return b.do(func() (*G.Node, error) { return G.Conv2d(x, w, gtensor.Shape(kernel), pad, stride, dilation) })
}

func (b *build) maxPool(x *G.Node, kernel, pad, stride []int) *G.Node {
	return b.do(func() (*G.Node, error) { return G.MaxPool2D(x, gtensor.Shape(kernel), pad, stride) })
}

// averagePool returns gorgonia.AveragePool2D or, with TruePooling, a convolution of each channel
// with a constant.
func (b *build) averagePool(name string, x *G.Node, kernel, pad, stride []int) *G.Node {
	if b.err != nil {
		return nil
	}
	if !b.TruePooling {
		return b.do(func() (*G.Node, error) { return G.AveragePool2D(x, gtensor.Shape(kernel), pad, stride) })
	}
	s := x.Shape().Clone()
	share := b.input(name, source{all: 1 / float64(kernel[0]*kernel[1])}, 1, 1, kernel[0], kernel[1])
	y := b.reshape(x, s[0]*s[1], 1, s[2], s[3])
	y = b.do(func() (*G.Node, error) { return G.Conv2d(y, share, gtensor.Shape(kernel), pad, stride, []int{1, 1}) })
	if b.err != nil {
		return nil
	}
	return b.reshape(y, s[0], s[1], y.Shape()[2], y.Shape()[3])
}

// batchNorm returns x normalized over the batch, with a gain and an offset for each channel.
func (b *build) batchNorm(name string, x *G.Node, channels int) *G.Node {
	shape := []int{1, channels, 1, 1}
	gain, offset := b.param(name+".gain", 1, 0.2, shape...), b.param(name+".offset", 0, 0.2, shape...)
	return b.do(func() (*G.Node, error) {
		y, _, _, op, err := G.BatchNorm(x, gain, offset, 0.1, 1e-3)
		b.m.Norms = append(b.m.Norms, op)
		return y, err
	})
}

// layerNorm returns a matrix with normalized rows, with a gain and an offset for each column.
func (b *build) layerNorm(name string, x *G.Node, rows, cols int) *G.Node {
	mean := b.reshape(b.reduce(G.Mean, x, 1), rows, 1)
	x = b.broadcast(G.BroadcastSub, x, mean, nil, []byte{1})
	variance := b.reduce(G.Mean, b.apply(G.Square, x), 1)
	deviation := b.apply(G.Sqrt, b.both(G.Add, variance, b.number(1e-3)))
	x = b.broadcast(G.BroadcastHadamardDiv, x, b.reshape(deviation, rows, 1), nil, []byte{1})
	gain, offset := b.param(name+".gain", 1, 0.2, 1, cols), b.param(name+".offset", 0, 0.2, 1, cols)
	x = b.broadcast(G.BroadcastHadamardProd, x, gain, nil, []byte{0})
	return b.broadcast(G.BroadcastAdd, x, offset, nil, []byte{0})
}

// dropout returns x with elements dropped by gorgonia.Dropout, or by a mask that is an input.
func (b *build) dropout(x *G.Node) *G.Node {
	if b.err != nil {
		return nil
	}
	d := Drop{Input: x, Probability: b.Probability}
	if b.Masked {
		d.Mask = b.input(fmt.Sprintf("mask%d", len(b.m.Drops)), source{mask: true}, x.Shape().Clone()...)
		d.Output = b.both(G.HadamardProd, x, d.Mask)
	} else {
		d.Output = b.do(func() (*G.Node, error) { return G.Dropout(x, b.Probability) })
	}
	b.m.Drops = append(b.m.Drops, d)
	return d.Output
}

// crossEntropy returns the mean cross-entropy of logits over a batch, by LogSoftMax (fused), or by
// SoftMax and Log.
func (b *build) crossEntropy(logits *G.Node, rows, classes int, fused bool) *G.Node {
	y := b.input("y", source{classes: classes}, rows, classes)
	var logarithm *G.Node
	if fused {
		logarithm = b.do(func() (*G.Node, error) { return G.LogSoftMax(logits, 1) })
	} else {
		p := b.do(func() (*G.Node, error) { return G.SoftMax(logits, 1) })
		logarithm = b.apply(G.Log, p)
	}
	perRow := b.reduce(G.Sum, b.both(G.HadamardProd, y, logarithm), 1)
	return b.apply(G.Neg, b.reduce(G.Mean, perRow))
}

// squares returns the mean squared distance of y to a target.
func (b *build) squares(y *G.Node) *G.Node {
	if b.err != nil {
		return nil
	}
	target := b.input("target", source{}, y.Shape().Clone()...)
	return b.reduce(G.Mean, b.apply(G.Square, b.both(G.Sub, y, target)))
}
