package machinetest

import (
	"fmt"
	"math/rand/v2"
	"sync"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// Model is a graph with a cost, its gradients, and samples to train on.
type Model struct {
	Name       string
	Graph      *G.ExprGraph
	Inputs     G.Nodes // filled by Feed
	Learnables G.Nodes // with their initial weights
	Cost       *G.Node // a scalar
	Grads      G.Nodes // of Learnables, in order
	Drops      []Drop  // the dropouts
	Norms      []*G.BatchNormOp

	rows    int
	sources []source // of Inputs
}

// Drop is one dropout of a model.
type Drop struct {
	Input       *G.Node
	Output      *G.Node // 0 where an element was dropped
	Mask        *G.Node // an input instead of random numbers; nil without Config.Masked
	Probability float64 // of dropping an element
}

// Outputs returns the nodes whose values a test reads: the cost, the gradients, and the inputs and
// outputs of dropouts.
func (m *Model) Outputs() G.Nodes {
	all := append(G.Nodes{m.Cost}, m.Grads...)
	for _, d := range m.Drops {
		all = append(all, d.Input, d.Output)
	}
	return all
}

// Rows returns the number of samples in a batch.
func (m *Model) Rows() int { return m.rows }

// Config has the settings of a model.
type Config struct {
	Rows        int           // samples of a batch; 0 means the model's own small number
	DType       gtensor.Dtype // Float32 or Float64; the zero value means Float32
	Masked      bool          // dropout multiplies by a mask, which is an input, instead of drawing one
	Probability float64       // of dropout; 0 means 0.5, for which Gorgonia's backward pass is right
	TruePooling bool          // average pooling by other ops of Gorgonia, which are right
	NoGradients bool          // leave differentiation to ddp.Attach
}

// Builder is a kind of model.
type Builder struct {
	Name  string
	Rows  int // samples of a batch unless Config sets them
	build func(b *build) *G.Node
}

// building is locked while a graph is built: Gorgonia counts rectifiers, convolutions and poolings
// in a variable without a lock.
var building sync.Mutex

// New returns a model, with gradients unless Config.NoGradients, whose inputs hold the samples of
// step 0. Equal settings give equal models.
//
// Errors: those of Gorgonia, with the name of the model.
func (f Builder) New(c Config) (m *Model, err error) {
	building.Lock()
	defer building.Unlock()
	if c.Rows == 0 {
		c.Rows = f.Rows
	}
	if c.DType == (gtensor.Dtype{}) {
		c.DType = gtensor.Float32
	}
	if c.Probability == 0 {
		c.Probability = 0.5
	}
	b := &build{Config: c, rng: rand.New(rand.NewPCG(1, 0)), m: &Model{Name: f.Name, Graph: G.NewGraph(), rows: c.Rows}}
	m = b.m
	m.Cost = f.build(b)
	if b.err == nil && !c.NoGradients {
		m.Grads, b.err = G.Grad(m.Cost, m.Learnables...)
	}
	if b.err == nil {
		b.err = m.Feed(0)
	}
	if b.err != nil {
		return nil, fmt.Errorf("model %s: %w", f.Name, b.err)
	}
	return m, nil
}

// build makes nodes. After its first error it does nothing.
type build struct {
	Config
	rng *rand.Rand
	m   *Model
	err error
}

// do returns a node, or nil after an error.
func (b *build) do(f func() (*G.Node, error)) *G.Node {
	if b.err != nil {
		return nil
	}
	n, err := f()
	b.err = err
	return n
}

// apply returns op of x.
func (b *build) apply(op func(*G.Node) (*G.Node, error), x *G.Node) *G.Node {
	return b.do(func() (*G.Node, error) { return op(x) })
}

// both returns op of x and y.
func (b *build) both(op func(x, y *G.Node) (*G.Node, error), x, y *G.Node) *G.Node {
	return b.do(func() (*G.Node, error) { return op(x, y) })
}

// broadcast returns op of x and y, with the axes left of x and right of y repeated.
func (b *build) broadcast(op func(x, y *G.Node, left, right []byte) (*G.Node, error), x, y *G.Node, left, right []byte) *G.Node {
	return b.do(func() (*G.Node, error) { return op(x, y, left, right) })
}

func (b *build) reshape(x *G.Node, shape ...int) *G.Node {
	return b.do(func() (*G.Node, error) { return G.Reshape(x, gtensor.Shape(shape)) })
}

func (b *build) transpose(x *G.Node, axes ...int) *G.Node {
	return b.do(func() (*G.Node, error) { return G.Transpose(x, axes...) })
}

func (b *build) reduce(op func(x *G.Node, along ...int) (*G.Node, error), x *G.Node, along ...int) *G.Node {
	return b.do(func() (*G.Node, error) { return op(x, along...) })
}

// number returns a constant of the model's dtype.
func (b *build) number(v float64) *G.Node {
	if b.DType == gtensor.Float64 {
		return G.NewConstant(v)
	}
	return G.NewConstant(float32(v))
}

// param returns a parameter with normal values of the given deviation around a center.
func (b *build) param(name string, center, deviation float64, shape ...int) *G.Node {
	v := make([]float64, gtensor.Shape(shape).TotalSize())
	for i := range v {
		v[i] = center + deviation*b.rng.NormFloat64()
	}
	return b.do(func() (*G.Node, error) {
		n := b.leaf(name, b.DType, shape)
		b.m.Learnables = append(b.m.Learnables, n)
		return n, G.Let(n, dense(b.DType, v, shape))
	})
}

// input returns an input that Feed fills from a source.
func (b *build) input(name string, s source, shape ...int) *G.Node {
	return b.do(func() (*G.Node, error) {
		dt := b.DType
		if s.below > 0 {
			dt = gtensor.Int
		}
		n := b.leaf(name, dt, shape)
		b.m.Inputs, b.m.sources = append(b.m.Inputs, n), append(b.m.sources, s)
		return n, G.Let(n, gtensor.New(gtensor.Of(dt), gtensor.WithShape(shape...)))
	})
}

func (b *build) leaf(name string, dt gtensor.Dtype, shape []int) *G.Node {
	return G.NewTensor(b.m.Graph, dt, len(shape), G.WithName(name), G.WithShape(shape...))
}

// dense returns a tensor of float32 or float64 with the values v.
func dense(dt gtensor.Dtype, v []float64, shape []int) *gtensor.Dense {
	if dt == gtensor.Float64 {
		return gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(append([]float64(nil), v...)))
	}
	single := make([]float32, len(v))
	for i, x := range v {
		single[i] = float32(x)
	}
	return gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(single))
}
