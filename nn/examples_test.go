package nn

import (
	"math"

	G "gorgonia.org/gorgonia"
)

// mapped returns f of each number.
func mapped(x []float64, f func(float64) float64) []float64 {
	y := make([]float64, len(x))
	for i := range x {
		y[i] = f(x[i])
	}
	return y
}

func gelu(x float64) float64 { return x * (1 + math.Erf(x/math.Sqrt2)) / 2 }
func silu(x float64) float64 { return x / (1 + math.Exp(-x)) }

func geluTanh(x float64) float64 {
	return x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) / 2
}

// product returns a (m, k) times b (k, n).
func product(a, b []float64, m, k, n int) []float64 {
	y := make([]float64, m*n)
	for i := range m {
		for j := range n {
			for p := range k {
				y[i*n+j] += a[i*k+p] * b[p*n+j]
			}
		}
	}
	return y
}

// normalized returns rows of n numbers less their mean, if centered, divided by their deviation.
func normalized(x []float64, n int, centered bool, epsilon float64) []float64 {
	y := make([]float64, len(x))
	for at := 0; at < len(x); at += n {
		mean, square := 0.0, 0.0
		for _, v := range x[at : at+n] {
			mean += v / float64(n)
		}
		if !centered {
			mean = 0
		}
		for _, v := range x[at : at+n] {
			square += (v - mean) * (v - mean) / float64(n)
		}
		for i := at; i < at+n; i++ {
			y[i] = (x[i] - mean) / math.Sqrt(square+epsilon)
		}
	}
	return y
}

// attended is the definition of Attention.
func attended(q, k, v []float64, batch, tokens, keys, heads, kvHeads, depth int, scale float64, causal bool) []float64 {
	y := make([]float64, batch*tokens*heads*depth)
	for b := range batch {
		for h := range heads {
			kv := h / (heads / kvHeads)
			query := func(t int) []float64 { return q[((b*tokens+t)*heads+h)*depth:][:depth] }
			of := func(x []float64, t int) []float64 { return x[((b*keys+t)*kvHeads+kv)*depth:][:depth] }
			for t := range tokens {
				sum, weights := 0.0, make([]float64, keys)
				for j := range keys {
					if causal && j > t {
						continue
					}
					weights[j] = math.Exp(scale * dot(query(t), of(k, j)))
					sum += weights[j]
				}
				for j := range keys {
					for d := range depth {
						y[((b*tokens+t)*heads+h)*depth+d] += weights[j] / sum * of(v, j)[d]
					}
				}
			}
		}
	}
	return y
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// rotated is the definition of RoPE.
func rotated(x []float64, batch, tokens, heads, depth int, c RoPEConfig) []float64 {
	y := make([]float64, len(x))
	for row := range batch * tokens * heads {
		position := float64(row/heads%tokens + c.Offset)
		for i := range depth / 2 {
			a, b := row*depth+i, row*depth+i+depth/2
			if c.Interleaved {
				a, b = row*depth+2*i, row*depth+2*i+1
			}
			sin, cos := math.Sincos(position * math.Pow(c.Base, -2*float64(i)/float64(depth)))
			y[a], y[b] = x[a]*cos-x[b]*sin, x[b]*cos+x[a]*sin
		}
	}
	return y
}

// unary is an example of a function of each element.
func unary(name string, f func(*G.Node) (*G.Node, error), want func(float64) float64) example {
	return example{
		name: name, shapes: [][]int{{2, 3, 4}},
		build: func(x []*G.Node, _ *G.Node) (*G.Node, error) { return f(x[0]) },
		want:  func(x [][]float64, _ []int) []float64 { return mapped(x[0], want) },
	}
}

// attention is an example of Attention.
func attention(name string, batch, tokens, keys, depth int, c AttentionConfig) example {
	kvHeads := c.KVHeads
	if kvHeads == 0 {
		kvHeads = c.Heads
	}
	return example{
		name: name, shapes: [][]int{{batch, tokens, c.Heads * depth}, {batch, keys, kvHeads * depth}, {batch, keys, kvHeads * depth}},
		build: func(x []*G.Node, _ *G.Node) (*G.Node, error) { return Attention(x[0], x[1], x[2], c) },
		want: func(x [][]float64, _ []int) []float64 {
			scale := c.Scale
			if scale == 0 {
				scale = 1 / math.Sqrt(float64(depth))
			}
			return attended(x[0], x[1], x[2], batch, tokens, keys, c.Heads, kvHeads, depth, scale, c.Causal)
		},
	}
}

func rope(name string, c RoPEConfig) example {
	return example{
		name: name, shapes: [][]int{{2, 3, c.Heads * 4}},
		build: func(x []*G.Node, _ *G.Node) (*G.Node, error) { return RoPE(x[0], c) },
		want: func(x [][]float64, _ []int) []float64 {
			if c.Base == 0 {
				c.Base = 10000
			}
			return rotated(x[0], 2, 3, c.Heads, 4, c)
		},
	}
}

// entropyOf is the definition of SparseCrossEntropy.
func entropyOf(x []float64, targets []int, classes, ignore int, smoothing float64) float64 {
	loss, counted := 0.0, 0.0
	for row, target := range targets {
		if target == ignore {
			continue
		}
		counted++
		sum, mean := 0.0, 0.0
		for _, v := range x[row*classes : (row+1)*classes] {
			sum += math.Exp(v)
			mean += v / float64(classes)
		}
		loss += (1-smoothing)*(math.Log(sum)-x[row*classes+target]) + smoothing*(math.Log(sum)-mean)
	}
	return loss / max(counted, 1)
}

// entropy is an example of SparseCrossEntropy.
func entropy(name string, shape []int, targets []int, c CrossEntropyConfig) example {
	return example{
		name: name, shapes: [][]int{shape}, ints: targets, bare: true,
		build: func(x []*G.Node, ints *G.Node) (*G.Node, error) { return SparseCrossEntropy(x[0], ints, c) },
		want: func(x [][]float64, ints []int) []float64 {
			return []float64{entropyOf(x[0], ints, shape[len(shape)-1], c.ignore(), c.LabelSmoothing)}
		},
	}
}

// linearEntropy is an example of LinearCrossEntropy, of 5 rows of 3 features and 4 classes. With
// tied the weight is a transposed table.
func linearEntropy(name string, targets []int, tied bool, c CrossEntropyConfig) example {
	e := example{
		name: name, shapes: [][]int{{5, 3}, {3, 4}}, ints: targets, bare: true,
		build: func(x []*G.Node, ints *G.Node) (*G.Node, error) { return LinearCrossEntropy(x[0], x[1], ints, c) },
		want: func(x [][]float64, ints []int) []float64 {
			return []float64{entropyOf(product(x[0], x[1], 5, 3, 4), ints, 4, c.ignore(), c.LabelSmoothing)}
		},
	}
	if !tied {
		return e
	}
	e.shapes[1] = []int{4, 3}
	e.build = func(x []*G.Node, ints *G.Node) (*G.Node, error) {
		w, err := G.Transpose(x[1], 1, 0)
		if err != nil {
			return nil, err
		}
		return LinearCrossEntropy(x[0], w, ints, c)
	}
	e.want = func(x [][]float64, ints []int) []float64 {
		w := make([]float64, 12)
		for i := range 4 {
			for j := range 3 {
				w[j*4+i] = x[1][i*3+j]
			}
		}
		return []float64{entropyOf(product(x[0], w, 5, 3, 4), ints, 4, c.ignore(), c.LabelSmoothing)}
	}
	return e
}

// squared is an example whose cost is the square of another cost, so that the gradient of the loss
// is no constant.
func squared(e example) example {
	build, want := e.build, e.want
	e.name += " squared"
	e.build = func(x []*G.Node, ints *G.Node) (*G.Node, error) {
		y, err := build(x, ints)
		if err != nil {
			return nil, err
		}
		return G.HadamardProd(y, y)
	}
	e.want = func(x [][]float64, ints []int) []float64 {
		y := want(x, ints)[0]
		return []float64{y * y}
	}
	return e
}

func examples() []example {
	affine := func(y, gain, offset []float64) []float64 {
		for i := range y {
			y[i] *= gain[i%len(gain)]
			if offset != nil {
				y[i] += offset[i%len(offset)]
			}
		}
		return y
	}
	return []example{
		{
			name: "Linear", shapes: [][]int{{2, 3, 4}, {4, 5}, {5}},
			build: func(x []*G.Node, _ *G.Node) (*G.Node, error) { return Linear(x[0], x[1], x[2]) },
			want: func(x [][]float64, _ []int) []float64 {
				y := product(x[0], x[1], 6, 4, 5)
				for i := range y {
					y[i] += x[2][i%5]
				}
				return y
			},
		},
		{ // the sum must not be written over x, which the gradient of the weight reads
			name: "Linear in a residual", shapes: [][]int{{2, 3, 4}, {4, 4}},
			build: func(x []*G.Node, _ *G.Node) (*G.Node, error) {
				h, err := G.Tanh(x[0])
				if err != nil {
					return nil, err
				}
				y, err := Linear(h, x[1], nil)
				if err != nil {
					return nil, err
				}
				return G.Add(h, y)
			},
			want: func(x [][]float64, _ []int) []float64 {
				h := mapped(x[0], math.Tanh)
				y := product(h, x[1], 6, 4, 4)
				for i := range y {
					y[i] += h[i]
				}
				return y
			},
		},
		{
			name: "Linear of one row without bias", shapes: [][]int{{1, 4}, {4, 5}},
			build: func(x []*G.Node, _ *G.Node) (*G.Node, error) { return Linear(x[0], x[1], nil) },
			want:  func(x [][]float64, _ []int) []float64 { return product(x[0], x[1], 1, 4, 5) },
		},
		{
			name: "Embedding", shapes: [][]int{{5, 3}}, ints: []int{4, 0, 4, 1, 2, 4},
			build: func(x []*G.Node, ints *G.Node) (*G.Node, error) {
				tokens, err := Reshape(ints, 2, 3)
				if err != nil {
					return nil, err
				}
				return Embedding(x[0], tokens)
			},
			want: func(x [][]float64, ints []int) (y []float64) {
				for _, token := range ints {
					y = append(y, x[0][token*3:token*3+3]...)
				}
				return y
			},
		},
		{
			name: "LayerNorm", shapes: [][]int{{2, 3, 4}, {4}, {1, 4}},
			build: func(x []*G.Node, _ *G.Node) (*G.Node, error) { return LayerNorm(x[0], x[1], x[2], 1e-5) },
			want: func(x [][]float64, _ []int) []float64 {
				return affine(normalized(x[0], 4, true, 1e-5), x[1], x[2])
			},
		},
		{
			name: "LayerNorm of one row", shapes: [][]int{{1, 4}},
			build: func(x []*G.Node, _ *G.Node) (*G.Node, error) { return LayerNorm(x[0], nil, nil, 1e-5) },
			want:  func(x [][]float64, _ []int) []float64 { return normalized(x[0], 4, true, 1e-5) },
		},
		{
			name: "RMSNorm", shapes: [][]int{{2, 3, 4}, {4}},
			build: func(x []*G.Node, _ *G.Node) (*G.Node, error) { return RMSNorm(x[0], x[1], 1e-6) },
			want: func(x [][]float64, _ []int) []float64 {
				return affine(normalized(x[0], 4, false, 1e-6), x[1], nil)
			},
		},
		unary("GELU", GELU, gelu),
		unary("GELUTanh", GELUTanh, geluTanh),
		unary("SiLU", SiLU, silu),
		{
			name: "SwiGLU", shapes: [][]int{{3, 4}, {3, 4}},
			build: func(x []*G.Node, _ *G.Node) (*G.Node, error) { return SwiGLU(x[0], x[1]) },
			want: func(x [][]float64, _ []int) []float64 {
				y := mapped(x[0], silu)
				for i := range y {
					y[i] *= x[1][i]
				}
				return y
			},
		},
		attention("Attention", 2, 3, 4, 2, AttentionConfig{Heads: 2}),
		attention("Attention causal", 2, 4, 4, 2, AttentionConfig{Heads: 2, Causal: true}),
		attention("Attention causal with groups", 2, 3, 3, 2, AttentionConfig{Heads: 4, KVHeads: 2, Causal: true, Scale: 0.7}),
		attention("Attention of one head of keys", 1, 3, 3, 2, AttentionConfig{Heads: 3, KVHeads: 1}),
		entropy("SparseCrossEntropy", []int{3, 5}, []int{4, 0, 2}, CrossEntropyConfig{}),
		entropy("SparseCrossEntropy of tokens", []int{2, 3, 5}, []int{4, -100, 2, 0, 0, -100}, CrossEntropyConfig{LabelSmoothing: 0.1}),
		entropy("SparseCrossEntropy ignoring a class", []int{3, 40}, []int{7, 0, 7}, CrossEntropyConfig{IgnoreIndex: new(7)}),
		entropy("SparseCrossEntropy of nothing", []int{2, 5}, []int{-100, -100}, CrossEntropyConfig{}),
		squared(entropy("SparseCrossEntropy", []int{3, 5}, []int{4, -100, 2}, CrossEntropyConfig{})),
		linearEntropy("LinearCrossEntropy", []int{3, 0, -100, 2, 2}, false, CrossEntropyConfig{}),
		linearEntropy("LinearCrossEntropy in chunks", []int{3, 0, -100, 2, 2}, false, CrossEntropyConfig{ChunkRows: 2, LabelSmoothing: 0.2}),
		linearEntropy("LinearCrossEntropy with a tied weight", []int{3, 0, 1, 2, 2}, true, CrossEntropyConfig{ChunkRows: 3}),
		squared(linearEntropy("LinearCrossEntropy", []int{3, 0, -100, 2, 2}, false, CrossEntropyConfig{ChunkRows: 2})),
		rope("RoPE", RoPEConfig{Heads: 2}),
		rope("RoPE interleaved", RoPEConfig{Heads: 2, Base: 100, Offset: 5, Interleaved: true}),
	}
}
