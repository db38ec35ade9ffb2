package ddp_test

import (
	"fmt"
	"math/rand/v2"
	"sync"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// model is a graph over a batch of some rows.
type model struct {
	x, y, cost *G.Node
	params     G.Nodes
}

// family is a kind of model: the shape of a sample, and a function that builds the graph. The cost
// is the mean over the rows.
type family struct {
	name   string
	in     []int // shape of a sample
	out    int   // elements of a target
	layers func(b *build, x *G.Node) *G.Node
}

// build makes parameters with values that depend on seed alone.
type build struct {
	g      *G.ExprGraph
	dt     gtensor.Dtype
	rng    *rand.Rand
	params G.Nodes
}

func (b *build) param(name string, shape ...int) *G.Node {
	v := make([]float64, gtensor.Shape(shape).TotalSize())
	for i := range v {
		v[i] = b.rng.NormFloat64() * 0.3
	}
	n := G.NewTensor(b.g, b.dt, len(shape), G.WithName(name), G.WithShape(shape...), G.WithValue(tensorOf(b.dt, v, shape...)))
	b.params = append(b.params, n)
	return n
}

// tensorOf is a tensor of float32 or float64.
func tensorOf(dt gtensor.Dtype, v []float64, shape ...int) *gtensor.Dense {
	if dt == gtensor.Float64 {
		return gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(append([]float64(nil), v...)))
	}
	single := make([]float32, len(v))
	for i, x := range v {
		single[i] = float32(x)
	}
	return gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(single))
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// building is held while a model is built: gorgonia.Conv2d counts its calls in a variable without a
// lock (v0.9.18, internal/encoding/groups.go:11), and the ranks of a test are goroutines of one
// process.
var building sync.Mutex

// make is the model over a batch of rows. Ranks give different seeds to start with different
// weights.
func (f family) make(dt gtensor.Dtype, rows int, seed uint64) *model {
	building.Lock()
	defer building.Unlock()
	b := &build{g: G.NewGraph(), dt: dt, rng: newRand(seed)}
	shape := append([]int{rows}, f.in...)
	x := G.NewTensor(b.g, dt, len(shape), G.WithName("x"), G.WithShape(shape...))
	y := G.NewMatrix(b.g, dt, G.WithName("y"), G.WithShape(rows, f.out))
	miss := G.Must(G.Sub(f.layers(b, x), y))
	return &model{x: x, y: y, cost: G.Must(G.Mean(G.Must(G.Square(miss)))), params: b.params}
}

// samples is x and y of the samples of the given indices.
func (f family) samples(dt gtensor.Dtype, indices []int) (x, y *gtensor.Dense) {
	size := gtensor.Shape(f.in).TotalSize()
	var xs, ys []float64
	for _, i := range indices {
		rng := rand.New(rand.NewPCG(uint64(i), 2))
		for range size {
			xs = append(xs, rng.NormFloat64())
		}
		for range f.out {
			ys = append(ys, rng.NormFloat64())
		}
	}
	return tensorOf(dt, xs, append([]int{len(indices)}, f.in...)...), tensorOf(dt, ys, len(indices), f.out)
}

// let binds the samples.
func (m *model) let(f family, indices []int) error {
	x, y := f.samples(m.x.Dtype(), indices)
	if err := G.Let(m.x, x); err != nil {
		return err
	}
	return G.Let(m.y, y)
}

func affine(b *build, x *G.Node, name string, in, out int) *G.Node {
	w, c := b.param("w"+name, in, out), b.param("b"+name, 1, out)
	return G.Must(G.BroadcastAdd(G.Must(G.Mul(x, w)), c, nil, []byte{0}))
}

var mlp = family{name: "mlp", in: []int{6}, out: 3, layers: func(b *build, x *G.Node) *G.Node {
	h := G.Must(G.Tanh(affine(b, x, "0", 6, 10)))
	h = G.Must(G.Tanh(affine(b, h, "1", 10, 7)))
	return affine(b, h, "2", 7, 3)
}}

var cnn = family{name: "cnn", in: []int{1, 8, 8}, out: 3, layers: func(b *build, x *G.Node) *G.Node {
	filter := b.param("filter", 4, 1, 3, 3)
	h := G.Must(G.Conv2d(x, filter, gtensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}))
	h = G.Must(G.MaxPool2D(G.Must(G.Rectify(h)), gtensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
	h = G.Must(G.Reshape(h, gtensor.Shape{x.Shape()[0], 4 * 4 * 4}))
	return affine(b, h, "", 64, 3)
}}

// tied uses one matrix twice, the second time transposed.
var tied = family{name: "tied weights", in: []int{6}, out: 6, layers: func(b *build, x *G.Node) *G.Node {
	w := b.param("w", 6, 4)
	h := G.Must(G.Tanh(G.Must(G.Mul(x, w))))
	return G.Must(G.Mul(h, G.Must(G.Transpose(w))))
}}

// norm normalizes each sample over its features, with a gain and an offset. The gain is the left
// operand of an elementwise op, and reshaped: both tempt the machine to write into it.
var norm = family{name: "layer norm", in: []int{6}, out: 6, layers: func(b *build, x *G.Node) *G.Node {
	h := affine(b, x, "0", 6, 6)
	rows := h.Shape()[0]
	mean := G.Must(G.Reshape(G.Must(G.Mean(h, 1)), gtensor.Shape{rows, 1}))
	h = G.Must(G.BroadcastSub(h, mean, nil, []byte{1}))
	variance := G.Must(G.Reshape(G.Must(G.Mean(G.Must(G.Square(h)), 1)), gtensor.Shape{rows, 1}))
	eps := G.NewConstant(1e-3)
	if b.dt == gtensor.Float32 {
		eps = G.NewConstant(float32(1e-3))
	}
	h = G.Must(G.BroadcastHadamardDiv(h, G.Must(G.Sqrt(G.Must(G.Add(variance, eps)))), nil, []byte{1}))
	gain, offset := b.param("gain", 6), b.param("offset", 1, 6)
	double := G.Must(G.Reshape(G.Must(G.Add(gain, gain)), gtensor.Shape{1, 6}))
	h = G.Must(G.BroadcastHadamardProd(double, h, []byte{0}, nil))
	return G.Must(G.BroadcastAdd(h, offset, nil, []byte{0}))
}}

var families = []family{mlp, cnn, tied, norm}

// elements is the elements of a value as float64, which holds a float32 exactly.
func elements(v G.Value) ([]float64, error) {
	b, err := ops.Elements(v)
	if err != nil {
		return nil, err
	}
	if d, err := tensor.Data[float64](b); err == nil {
		return append([]float64(nil), d...), nil
	}
	single, err := tensor.Data[float32](b)
	if err != nil {
		return nil, err
	}
	d := make([]float64, len(single))
	for i, x := range single {
		d[i] = float64(x)
	}
	return d, nil
}

// gradients is the gradients of the model, and weights its parameters, one after the other.
func gradients(params []G.ValueGrad) ([]float64, error) {
	var all []float64
	for i, p := range params {
		v, err := p.Grad()
		if err != nil {
			return nil, fmt.Errorf("parameter %d: %w", i, err)
		}
		d, err := elements(v)
		if err != nil {
			return nil, fmt.Errorf("parameter %d: %w", i, err)
		}
		all = append(all, d...)
	}
	return all, nil
}

func weights(params G.Nodes) ([]float64, error) {
	var all []float64
	for _, p := range params {
		d, err := elements(p.Value())
		if err != nil {
			return nil, err
		}
		all = append(all, d...)
	}
	return all, nil
}

// indices is the numbers from lo up to hi.
func indices(lo, hi int) []int {
	var all []int
	for i := lo; i < hi; i++ {
		all = append(all, i)
	}
	return all
}
