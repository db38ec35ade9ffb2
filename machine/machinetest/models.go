package machinetest

import (
	"fmt"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// Models returns ten kinds of models, which together have every op that the compiled machine has.
func Models() []Builder {
	return []Builder{
		{"mlp", 8, buildMLP},
		{"lenet", 4, func(b *build) *G.Node { return buildLeNet(b, false, false) }},
		{"lenet-batchnorm", 4, func(b *build) *G.Node { return buildLeNet(b, true, false) }},
		{"lenet-dropout", 4, func(b *build) *G.Node { return buildLeNet(b, false, true) }},
		{"layernorm", 6, buildLayerNorm},
		{"attention", 3, buildAttention},
		{"embedding", 5, buildEmbedding},
		{"conv", 3, buildConv},
		{"avgpool", 3, buildAveragePool},
		{"slice-concat", 4, buildSliceConcat},
	}
}

// Find returns the model of a name.
//
// Errors: an unknown name.
func Find(name string) (Builder, error) {
	var names []string
	for _, f := range Models() {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return Builder{}, fmt.Errorf("unknown model %q: use one of %v", name, names)
}

// buildMLP builds fully connected layers with a rectifier and a tanh between them.
func buildMLP(b *build) *G.Node {
	h := b.input("x", source{}, b.Rows, 6)
	h = b.apply(G.Rectify, b.affine("fc1", h, 6, 10))
	h = b.apply(G.Tanh, b.affine("fc2", h, 10, 7))
	return b.crossEntropy(b.affine("fc3", h, 7, 3), b.Rows, 3, false)
}

// buildLeNet builds a small LeNet: two convolutions with rectifiers and max pooling, then fully
// connected layers.
func buildLeNet(b *build, norm, drop bool) *G.Node {
	h := b.input("x", source{}, b.Rows, 1, 8, 8)
	h = b.conv("conv1", h, 1, 4, []int{5, 5}, []int{2, 2}, []int{1, 1}, []int{1, 1})
	if norm {
		h = b.batchNorm("norm1", h, 4)
	}
	h = b.maxPool(b.apply(G.Rectify, h), []int{2, 2}, []int{0, 0}, []int{2, 2})
	h = b.conv("conv2", h, 4, 6, []int{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1})
	if norm {
		h = b.batchNorm("norm2", h, 6)
	}
	h = b.maxPool(b.apply(G.Rectify, h), []int{2, 2}, []int{0, 0}, []int{2, 2})
	h = b.reshape(h, b.Rows, 24)
	if drop {
		h = b.dropout(h)
	}
	h = b.apply(G.Rectify, b.affine("fc1", h, 24, 10))
	if drop {
		h = b.dropout(h)
	}
	return b.crossEntropy(b.affine("fc2", h, 10, 3), b.Rows, 3, true)
}

// buildLayerNorm builds a perceptron with layer normalization.
func buildLayerNorm(b *build) *G.Node {
	h := b.input("x", source{}, b.Rows, 6)
	h = b.apply(G.Tanh, b.layerNorm("norm1", b.affine("fc1", h, 6, 9), b.Rows, 9))
	h = b.layerNorm("norm2", b.affine("fc2", h, 9, 5), b.Rows, 5)
	return b.squares(h)
}

// buildAttention builds a block of a transformer: attention with two heads, then a perceptron, each
// after a layer normalization and with a residual connection.
func buildAttention(b *build) *G.Node {
	const words, width, heads = 4, 6, 2
	const each = width / heads
	rows := b.Rows * words
	x := b.input("x", source{}, rows, width)
	h := b.layerNorm("norm1", x, rows, width)
	head := func(name string, axes ...int) *G.Node { // (batch*heads, words, each), or its transpose
		y := b.both(G.Mul, h, b.param(name, 0, 0.4, width, width))
		y = b.transpose(b.reshape(y, b.Rows, words, heads, each), axes...)
		if axes[2] == 3 {
			return b.reshape(y, b.Rows*heads, each, words)
		}
		return b.reshape(y, b.Rows*heads, words, each)
	}
	query, key, value := head("query", 0, 2, 1, 3), head("key", 0, 2, 3, 1), head("value", 0, 2, 1, 3)
	batched := func(x, y *G.Node) (*G.Node, error) { return G.BatchedMatMul(x, y) }
	scores := b.both(G.HadamardProd, b.both(batched, query, key), b.number(0.57735))
	p := b.do(func() (*G.Node, error) { return G.SoftMax(scores, 2) })
	h = b.reshape(b.both(batched, p, value), b.Rows, heads, words, each)
	h = b.reshape(b.transpose(h, 0, 2, 1, 3), rows, width)
	x = b.both(G.Add, x, b.both(G.Mul, h, b.param("out", 0, 0.4, width, width)))
	h = b.layerNorm("norm2", x, rows, width)
	h = b.affine("fc2", b.apply(G.Tanh, b.affine("fc1", h, width, 8)), 8, width)
	return b.squares(b.both(G.Add, x, h))
}

// buildEmbedding looks up words in a table, some more than once.
func buildEmbedding(b *build) *G.Node {
	const words, vocabulary, width = 4, 7, 5
	table := b.param("table", 0, 0.5, vocabulary, width)
	words1 := b.input("words", source{below: vocabulary}, b.Rows*words)
	h := b.do(func() (*G.Node, error) { return G.ByIndices(table, words1, 0) })
	h = b.apply(G.Tanh, b.affine("fc1", b.reshape(h, b.Rows, words*width), words*width, 8))
	return b.crossEntropy(b.affine("fc2", h, 8, vocabulary), b.Rows, vocabulary, false)
}

// buildConv builds convolutions with strides, dilations and paddings that differ between the axes,
// and a 1x1 convolution.
func buildConv(b *build) *G.Node {
	h := b.input("x", source{}, b.Rows, 2, 9, 8)
	h = b.apply(G.Tanh, b.conv("strided", h, 2, 3, []int{3, 2}, []int{1, 0}, []int{2, 1}, []int{1, 1})) // 5x7
	h = b.apply(G.Tanh, b.conv("dilated", h, 3, 4, []int{2, 3}, []int{0, 2}, []int{1, 1}, []int{2, 2})) // 3x7
	h = b.apply(G.Sigmoid, b.conv("both", h, 4, 3, []int{3, 3}, []int{2, 1}, []int{2, 2}, []int{2, 1})) // 2x4
	h = b.conv("point", h, 3, 2, []int{1, 1}, []int{0, 0}, []int{1, 1}, []int{1, 1})
	return b.squares(h)
}

// buildAveragePool builds average and max pooling, overlapping and padded.
func buildAveragePool(b *build) *G.Node {
	h := b.input("x", source{}, b.Rows, 1, 8, 8)
	h = b.conv("conv1", h, 1, 3, []int{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1})
	h = b.apply(G.Tanh, b.averagePool("pool1", h, []int{3, 3}, []int{1, 1}, []int{2, 2})) // 4x4
	h = b.conv("conv2", h, 3, 4, []int{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1})
	h = b.maxPool(h, []int{3, 3}, []int{1, 1}, []int{1, 1}) // 4x4
	h = b.averagePool("pool3", h, []int{2, 2}, []int{0, 0}, []int{2, 2})
	return b.crossEntropy(b.affine("fc", b.reshape(h, b.Rows, 16), 16, 3), b.Rows, 3, true)
}

// buildSliceConcat slices a matrix, applies another function to each part, and concatenates them.
func buildSliceConcat(b *build) *G.Node {
	h := b.affine("fc1", b.input("x", source{}, b.Rows, 5), 5, 10)
	cols := func(from, to int) *G.Node {
		return b.do(func() (*G.Node, error) { return G.Slice(h, nil, G.S(from, to)) })
	}
	leaky := func(x *G.Node) (*G.Node, error) { return G.LeakyRelu(x, 0.1) }
	parts := G.Nodes{
		b.apply(G.Sigmoid, cols(0, 3)),
		b.apply(G.Softplus, cols(3, 5)),
		b.apply(leaky, cols(5, 8)),
		b.apply(G.Exp, b.apply(G.Neg, b.apply(G.Square, cols(8, 10)))),
	}
	h2 := b.do(func() (*G.Node, error) { return G.Concat(1, parts...) })
	h2 = b.affine("fc2", h2, 10, 4)
	first := b.do(func() (*G.Node, error) { return G.Slice(h2, gtensor.Slice(nil), G.S(1)) }) // a column, as a vector
	last := b.do(func() (*G.Node, error) { return G.Slice(h2, G.S(b.Rows-1)) })               // a row
	sum := b.both(G.Add, b.reduce(G.Mean, b.apply(G.Cube, first)), b.reduce(G.Sum, b.apply(G.Abs, last)))
	return b.both(G.Add, b.squares(h2), b.both(G.HadamardProd, sum, b.number(0.05)))
}
