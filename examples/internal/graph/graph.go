// Package graph makes it short to write a model as a Gorgonia graph: errors are kept until the end,
// and parameters get their initial values from a seed, or are those of another model.
//
//	b := graph.New(seed, nil)
//	x := b.Input("x", gtensor.Float32, batch, 784)
//	w := b.Param("w", 0, 0.05, 784, 10)
//	y := b.Do(func() (*gorgonia.Node, error) { return gorgonia.Mul(x, w) })
//	err := b.Done()
package graph

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// building is held while a graph is built, so that ranks which are goroutines of one process build
// one after the other: Gorgonia numbers rectifiers, convolutions and poolings (for its drawings of
// graphs) with a global counter that has no lock.
var building sync.Mutex

// Builder makes nodes and keeps the first error, after which it does nothing.
type Builder struct {
	Params gorgonia.Nodes // in the order in which they were made

	g       *gorgonia.ExprGraph
	seed    int64
	weights []*gtensor.Dense
	shapes  bool // parameters have no values
	err     error
}

// New is a builder of a new graph. With weights, one per parameter in their order, parameters are
// other headers over the same memory; without, they are drawn from the seed.
//
// Owns: no other graph is built until Done.
func New(seed int64, weights []*gtensor.Dense) *Builder {
	building.Lock()
	return &Builder{g: gorgonia.NewGraph(), seed: seed, weights: weights}
}

// WithoutValues leaves out the values of parameters, for a graph that is planned and not run: they
// may be more than memory holds.
func (b *Builder) WithoutValues() { b.shapes = true }

// Done ends the building.
//
// Errors: the first; a number of weights that is not that of the parameters.
func (b *Builder) Done() error {
	building.Unlock()
	if b.err == nil && b.weights != nil && len(b.weights) != len(b.Params) {
		return fmt.Errorf("%d weights for %d parameters", len(b.weights), len(b.Params))
	}
	return b.err
}

// Fail keeps an error.
func (b *Builder) Fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Do is the node of f, or nil after an error.
func (b *Builder) Do(f func() (*gorgonia.Node, error)) *gorgonia.Node {
	if b.err != nil {
		return nil
	}
	n, err := f()
	b.err = err
	return n
}

// Apply is op of x.
func (b *Builder) Apply(op func(*gorgonia.Node) (*gorgonia.Node, error), x *gorgonia.Node) *gorgonia.Node {
	return b.Do(func() (*gorgonia.Node, error) { return op(x) })
}

// Both is op of x and y.
func (b *Builder) Both(op func(x, y *gorgonia.Node) (*gorgonia.Node, error), x, y *gorgonia.Node) *gorgonia.Node {
	return b.Do(func() (*gorgonia.Node, error) { return op(x, y) })
}

// Rows is op of x and y, with y repeated along the given axis, in which it has size 1.
func (b *Builder) Rows(op func(x, y *gorgonia.Node, left, right []byte) (*gorgonia.Node, error), x, y *gorgonia.Node, axis byte) *gorgonia.Node {
	return b.Do(func() (*gorgonia.Node, error) { return op(x, y, nil, []byte{axis}) })
}

// Reshape is x in another shape.
func (b *Builder) Reshape(x *gorgonia.Node, shape ...int) *gorgonia.Node {
	return b.Do(func() (*gorgonia.Node, error) { return gorgonia.Reshape(x, gtensor.Shape(shape)) })
}

// Input is an input with zeros.
func (b *Builder) Input(name string, dt gtensor.Dtype, shape ...int) *gorgonia.Node {
	if !b.fits(name, dt, shape) {
		return nil
	}
	return b.node(name, gtensor.New(gtensor.Of(dt), gtensor.WithShape(shape...)))
}

// Constant returns a node of numbers that never change. They are a part of the program, so they are
// not copied to a device in each step, as inputs are. fill gets zeros. Two constants that differ
// only in the middle are an error.
func (b *Builder) Constant(name string, fill func(data []float32), shape ...int) *gorgonia.Node {
	if !b.fits(name, gtensor.Float32, shape) {
		return nil
	}
	value := gtensor.New(gtensor.Of(gtensor.Float32), gtensor.WithShape(shape...))
	fill(value.Float32s())
	n := b.g.AddNode(gorgonia.NewConstant(value, gorgonia.WithName(name)))
	if there, ok := n.Value().(*gtensor.Dense); !ok || !slices.Equal(there.Float32s(), value.Float32s()) { // it looks at names and at the ends
		b.Fail(fmt.Errorf("constant %s: gorgonia takes it for another one of this graph: use an input, or another name", name))
		return nil
	}
	return n
}

// mostBytes is the addresses that a process has on amd64. Go panics when it is to make more.
const mostBytes = 1 << 47

// fits reports whether there is no error yet, and notes one if a tensor of this shape is none, or
// more than can be addressed.
func (b *Builder) fits(name string, dt gtensor.Dtype, shape gtensor.Shape) bool {
	room := mostBytes / int(dt.Size())
	for _, d := range shape {
		if d < 1 {
			b.Fail(fmt.Errorf("%s has shape %v", name, shape))
			return false
		}
		if room /= d; room == 0 {
			b.Fail(fmt.Errorf("%s has shape %v, which is more than memory holds", name, shape))
			return false
		}
	}
	return b.err == nil
}

// Param is a parameter of float32: normal with the given deviation around a center, unless weights
// were given.
func (b *Builder) Param(name string, center, deviation float64, shape ...int) *gorgonia.Node {
	s := gtensor.Shape(shape)
	if !b.fits(name, gtensor.Float32, s) {
		return nil
	}
	if b.shapes {
		n := gorgonia.NewTensor(b.g, gtensor.Float32, len(shape), gorgonia.WithName(name), gorgonia.WithShape(shape...))
		b.Params = append(b.Params, n)
		return n
	}
	value := gtensor.New(gtensor.Of(gtensor.Float32), gtensor.WithShape(shape...))
	switch i := len(b.Params); {
	case i < len(b.weights):
		w := b.weights[i]
		if !w.Shape().Eq(s) {
			b.err = fmt.Errorf("%s has shape %v, the given weight %v", name, s, w.Shape())
			return nil
		}
		value = gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(w.Float32s()))
	case deviation != 0 || center != 0:
		rng := rand.New(rand.NewPCG(uint64(b.seed), uint64(i)))
		data := value.Float32s()
		for j := range data {
			data[j] = float32(center + deviation*rng.NormFloat64())
		}
	}
	n := b.node(name, value)
	b.Params = append(b.Params, n)
	return n
}

func (b *Builder) node(name string, value *gtensor.Dense) *gorgonia.Node {
	if b.err != nil {
		return nil
	}
	return gorgonia.NewTensor(b.g, value.Dtype(), value.Dims(), gorgonia.WithName(name), gorgonia.WithShape(value.Shape()...), gorgonia.WithValue(value))
}

// CrossEntropy is the sum over rows of w times the cross-entropy of logits and the one-hot rows of
// y.
//
// Returns: the logarithms of the probabilities, too.
func (b *Builder) CrossEntropy(logits, y, w *gorgonia.Node) (cost, logProb *gorgonia.Node) {
	logProb = b.Do(func() (*gorgonia.Node, error) { return gorgonia.LogSoftMax(logits, 1) })
	picked := b.Both(gorgonia.HadamardProd, y, logProb)
	perRow := b.Do(func() (*gorgonia.Node, error) { return gorgonia.Sum(picked, 1) })
	weighted := b.Both(gorgonia.HadamardProd, w, perRow)
	total := b.Do(func() (*gorgonia.Node, error) { return gorgonia.Sum(weighted) })
	return b.Apply(gorgonia.Neg, total), logProb
}
