// Package graph shortens the code of a model as a Gorgonia graph. It keeps errors until the end,
// and initializes parameters from a seed or from another model.
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
	"strings"
	"sync"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// building is held while a graph is built, so that ranks that are goroutines of one process build
// one after the other. Gorgonia numbers rectifiers, convolutions and poolings (for its drawings of
// graphs) with a global counter without a lock.
var building sync.Mutex

// Builder creates nodes and keeps the first error, after which it does nothing.
type Builder struct {
	Params gorgonia.Nodes // in the order of creation

	g       *gorgonia.ExprGraph
	seed    int64
	weights []*gtensor.Dense
	shapes  bool // parameters have no values
	err     error
}

// New returns a builder of a new graph. With weights, one per parameter in order, parameters are
// new tensors over the same memory. Without, they are drawn from the seed.
//
// Owns: no other graph can be built until Done.
func New(seed int64, weights []*gtensor.Dense) *Builder {
	building.Lock()
	return &Builder{g: gorgonia.NewGraph(), seed: seed, weights: weights}
}

// WithoutValues omits the values of parameters, for a graph that is planned and not run: they may
// not fit into memory.
func (b *Builder) WithoutValues() { b.shapes = true }

// Done ends the building.
//
// Errors: the first error; a wrong number of weights.
func (b *Builder) Done() error {
	building.Unlock()
	if b.err == nil && b.weights != nil && len(b.weights) != len(b.Params) {
		return fmt.Errorf("%d weights for %d parameters", len(b.weights), len(b.Params))
	}
	return b.err
}

// Fail keeps err if it is the first error.
func (b *Builder) Fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Do returns the node of f, or nil after an error.
func (b *Builder) Do(f func() (*gorgonia.Node, error)) *gorgonia.Node {
	if b.err != nil {
		return nil
	}
	n, err := f()
	b.err = err
	return n
}

// Apply returns op of x.
func (b *Builder) Apply(op func(*gorgonia.Node) (*gorgonia.Node, error), x *gorgonia.Node) *gorgonia.Node {
	return b.Do(func() (*gorgonia.Node, error) { return op(x) })
}

// Both returns op of x and y.
func (b *Builder) Both(op func(x, y *gorgonia.Node) (*gorgonia.Node, error), x, y *gorgonia.Node) *gorgonia.Node {
	return b.Do(func() (*gorgonia.Node, error) { return op(x, y) })
}

// Rows returns op of x and y, with y broadcast along the given axis, in which it has size 1.
func (b *Builder) Rows(op func(x, y *gorgonia.Node, left, right []byte) (*gorgonia.Node, error), x, y *gorgonia.Node, axis byte) *gorgonia.Node {
	return b.Do(func() (*gorgonia.Node, error) { return op(x, y, nil, []byte{axis}) })
}

// Reshape returns x with another shape.
func (b *Builder) Reshape(x *gorgonia.Node, shape ...int) *gorgonia.Node {
	return b.Do(func() (*gorgonia.Node, error) { return gorgonia.Reshape(x, gtensor.Shape(shape)) })
}

// Input returns an input of zeros.
func (b *Builder) Input(name string, dt gtensor.Dtype, shape ...int) *gorgonia.Node {
	if !b.fits(name, dt, shape) {
		return nil
	}
	return b.node(name, gtensor.New(gtensor.Of(dt), gtensor.WithShape(shape...)))
}

// Constant returns constant numbers, set by fill. They are part of the program and are not copied
// to a device in each step, unlike inputs. Gorgonia may confuse two constants that differ only in
// the middle; that is an error.
func (b *Builder) Constant(name string, fill func(data []float32), shape ...int) *gorgonia.Node {
	if !b.fits(name, gtensor.Float32, shape) {
		return nil
	}
	value := gtensor.New(gtensor.Of(gtensor.Float32), gtensor.WithShape(shape...))
	fill(value.Float32s())
	n := b.g.AddNode(gorgonia.NewConstant(value, gorgonia.WithName(name)))
	if there, ok := n.Value().(*gtensor.Dense); !ok || !slices.Equal(there.Float32s(), value.Float32s()) { // gorgonia compares only names and first and last elements
		b.Fail(fmt.Errorf("constant %s: gorgonia confuses it with another constant of this graph: use an input, or another name", name))
		return nil
	}
	return n
}

// mostBytes is the address space of a process on amd64. Go panics on larger allocations.
const mostBytes = 1 << 47

// fits reports whether there is no error yet. It records an error if a shape is invalid or too
// large to address.
func (b *Builder) fits(name string, dt gtensor.Dtype, shape gtensor.Shape) bool {
	room := mostBytes / int(dt.Size())
	for _, d := range shape {
		if d < 1 {
			b.Fail(fmt.Errorf("%s has shape %v", name, shape))
			return false
		}
		if room /= d; room == 0 {
			b.Fail(fmt.Errorf("%s has shape %v, which does not fit into memory", name, shape))
			return false
		}
	}
	return b.err == nil
}

// Param returns a float32 parameter. Its values are the given weights, or normally distributed with
// the given deviation around center.
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

// CrossEntropy returns the sum over rows of w times the cross-entropy of logits and the one-hot
// rows of y.
//
// Returns: also the logarithms of the probabilities.
func (b *Builder) CrossEntropy(logits, y, w *gorgonia.Node) (cost, logProb *gorgonia.Node) {
	logProb = b.Do(func() (*gorgonia.Node, error) { return gorgonia.LogSoftMax(logits, 1) })
	picked := b.Both(gorgonia.HadamardProd, y, logProb)
	perRow := b.Do(func() (*gorgonia.Node, error) { return gorgonia.Sum(picked, 1) })
	weighted := b.Both(gorgonia.HadamardProd, w, perRow)
	total := b.Do(func() (*gorgonia.Node, error) { return gorgonia.Sum(weighted) })
	return b.Apply(gorgonia.Neg, total), logProb
}

// Widths returns the widths of layers as "784-512-10".
func Widths(widths ...int) string {
	texts := make([]string, len(widths))
	for i, w := range widths {
		texts[i] = fmt.Sprint(w)
	}
	return strings.Join(texts, "-")
}
