package nn

import (
	"math"

	G "gorgonia.org/gorgonia"
)

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// convolved is the definition of Conv2D.
func convolved(x, f, b []float64, in, of []int, c Conv2DConfig) (y []float64) {
	size := func(axis int) int {
		return (in[2+axis]+2*c.Padding[axis]-c.Dilation[axis]*(of[2+axis]-1)-1)/c.Stride[axis] + 1
	}
	for n := range in[0] {
		for k := range of[0] {
			for i := range size(0) {
				for j := range size(1) {
					sum := 0.0
					if b != nil {
						sum = b[k]
					}
					for at := range in[1] * of[2] * of[3] {
						ch, r, s := at/(of[2]*of[3]), at/of[3]%of[2], at%of[3]
						h := i*c.Stride[0] + r*c.Dilation[0] - c.Padding[0]
						w := j*c.Stride[1] + s*c.Dilation[1] - c.Padding[1]
						if h >= 0 && h < in[2] && w >= 0 && w < in[3] {
							sum += x[((n*in[1]+ch)*in[2]+h)*in[3]+w] * f[((k*in[1]+ch)*of[2]+r)*of[3]+s]
						}
					}
					y = append(y, sum)
				}
			}
		}
	}
	return y
}

func convolution(name string, in, of []int, biased bool, c, full Conv2DConfig) example {
	e := example{
		name: name, shapes: [][]int{in, of},
		build: func(x []*G.Node, _ *G.Node) (*G.Node, error) { return Conv2D(x[0], x[1], nil, c) },
		want:  func(x [][]float64, _ []int) []float64 { return convolved(x[0], x[1], nil, in, of, full) },
	}
	if biased {
		e.shapes = append(e.shapes, []int{of[0]})
		e.build = func(x []*G.Node, _ *G.Node) (*G.Node, error) { return Conv2D(x[0], x[1], x[2], c) }
		e.want = func(x [][]float64, _ []int) []float64 { return convolved(x[0], x[1], x[2], in, of, full) }
	}
	return e
}

// batchNormed is the definition of BatchNorm2D in training, for (n, channels, rest).
func batchNormed(x, gain, offset []float64, n, channels, rest int, epsilon float64) []float64 {
	y := make([]float64, len(x))
	for c := range channels {
		mean, square, count := 0.0, 0.0, float64(n*rest)
		at := func(i int) int { return (i/rest*channels+c)*rest + i%rest }
		for i := range n * rest {
			mean += x[at(i)] / count
		}
		for i := range n * rest {
			square += (x[at(i)] - mean) * (x[at(i)] - mean) / count
		}
		for i := range n * rest {
			y[at(i)] = (x[at(i)]-mean)/math.Sqrt(square+epsilon)*gain[c] + offset[c]
		}
	}
	return y
}

// gatesOf returns x*w + b of one row.
func gatesOf(x, w, b []float64) []float64 {
	y := product(x, w, 1, len(x), len(w)/len(x))
	for i := range y {
		if b != nil {
			y[i] += b[i]
		}
	}
	return y
}

// lstmStep is the definition of LSTMCell for one row.
func lstmStep(x, h, c, wx, wh, bx, bh []float64) (hNext, next []float64) {
	a, b, n := gatesOf(x, wx, bx), gatesOf(h, wh, bh), len(h)
	for k := range n {
		gate := func(i int) float64 { return a[i*n+k] + b[i*n+k] }
		next = append(next, sigmoid(gate(1))*c[k]+sigmoid(gate(0))*math.Tanh(gate(2)))
		hNext = append(hNext, sigmoid(gate(3))*math.Tanh(next[k]))
	}
	return hNext, next
}

// gruStep is the definition of GRUCell for one row.
func gruStep(x, h, wx, wh, bx, bh []float64) (next []float64) {
	a, b, n := gatesOf(x, wx, bx), gatesOf(h, wh, bh), len(h)
	for k := range n {
		r, z := sigmoid(a[k]+b[k]), sigmoid(a[n+k]+b[n+k])
		next = append(next, (1-z)*math.Tanh(a[2*n+k]+r*b[2*n+k])+z*h[k])
	}
	return next
}

// sequences is an example of LSTM or GRU: of the inputs x, h, (cell,) and the weights.
func sequences(name string, batch, tokens, in, hidden int, lstm bool) example {
	gates := gruGates
	shapes := [][]int{{batch, tokens, in}, {batch, hidden}}
	if lstm {
		gates = lstmGates
		shapes = append(shapes, []int{batch, hidden})
	}
	at := len(shapes)
	shapes = append(shapes, []int{in, gates * hidden}, []int{hidden, gates * hidden}, []int{gates * hidden}, []int{gates * hidden})
	return example{
		name: name, shapes: shapes,
		build: func(x []*G.Node, _ *G.Node) (y *G.Node, err error) {
			w := CellWeights{x[at], x[at+1], x[at+2], x[at+3]}
			if lstm {
				y, _, _, err = LSTM(x[0], x[1], x[2], w)
			} else {
				y, _, err = GRU(x[0], x[1], w)
			}
			return y, err
		},
		want: func(x [][]float64, _ []int) (y []float64) {
			for b := range batch {
				h, c := x[1][b*hidden:(b+1)*hidden], x[at-1][b*hidden:(b+1)*hidden]
				for t := range tokens {
					row := x[0][(b*tokens+t)*in:][:in]
					if lstm {
						h, c = lstmStep(row, h, c, x[at], x[at+1], x[at+2], x[at+3])
					} else {
						h = gruStep(row, h, x[at], x[at+1], x[at+2], x[at+3])
					}
					y = append(y, h...)
				}
			}
			return y
		},
	}
}

// moreExamples are those of images and sequences.
func moreExamples() []example {
	one, two := [2]int{1, 1}, [2]int{2, 2}
	return []example{
		convolution("Conv2D", []int{2, 2, 4, 5}, []int{3, 2, 3, 3}, true, Conv2DConfig{Padding: one}, Conv2DConfig{one, one, one}),
		convolution("Conv2D with strides", []int{1, 2, 5, 6}, []int{2, 2, 2, 3}, false, Conv2DConfig{Stride: two, Padding: [2]int{0, 1}}, Conv2DConfig{two, [2]int{0, 1}, one}),
		convolution("Conv2D dilated", []int{2, 1, 5, 5}, []int{2, 1, 2, 2}, false, Conv2DConfig{Dilation: two}, Conv2DConfig{one, [2]int{}, two}),
		convolution("Conv2D of one element", []int{2, 3, 2, 2}, []int{4, 3, 1, 1}, true, Conv2DConfig{}, Conv2DConfig{one, [2]int{}, one}),
		{
			name: "BatchNorm2D", shapes: [][]int{{3, 2, 2, 3}, {2}, {1, 2}},
			build: func(x []*G.Node, _ *G.Node) (*G.Node, error) {
				y, _, err := BatchNorm2D(x[0], x[1], x[2], BatchNormConfig{})
				return y, err
			},
			want: func(x [][]float64, _ []int) []float64 { return batchNormed(x[0], x[1], x[2], 3, 2, 6, 1e-5) },
		},
		{
			name: "GlobalAvgPool", shapes: [][]int{{2, 3, 2, 4}},
			build: func(x []*G.Node, _ *G.Node) (*G.Node, error) { return GlobalAvgPool(x[0]) },
			want: func(x [][]float64, _ []int) []float64 {
				y := make([]float64, 6)
				for i, v := range x[0] {
					y[i/8] += v / 8
				}
				return y
			},
		},
		sequences("LSTM", 2, 3, 4, 3, true),
		sequences("LSTM of one feature", 1, 2, 2, 1, true),
		sequences("GRU", 2, 3, 4, 3, false),
		sequences("GRU of one token", 3, 1, 2, 2, false),
	}
}
