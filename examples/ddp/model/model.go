// Package model builds the two classifiers of the MNIST example, a multilayer perceptron and a
// LeNet-like convolutional network, as plain Gorgonia graphs. They are independent of ranks: that
// is the point of the example.
package model

import (
	"fmt"
	"math"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/examples/internal/graph"
)

// Config defines the model to build.
type Config struct {
	Name     string // "mlp" or "cnn"
	Hidden   []int  // widths of the hidden layers: of the mlp, or after the convolutions of the cnn
	Channels []int  // output channels of each convolution of the cnn; each is followed by 2x2 max pooling
	Kernel   int    // rows and columns of a convolution, an odd number
	Rows     int    // of an image
	Cols     int
	Classes  int
	Batch    int   // rows of X; fixed in the graph
	Seed     int64 // of the initial weights
	Shapes   bool  // parameters without values, for a plan
}

// Model is a classifier with its loss. Inputs are set with gorgonia.Let.
type Model struct {
	X, Y, W *G.Node // images (Batch, Rows*Cols), one-hot labels (Batch, Classes), sample weights (Batch)
	LogProb *G.Node // (Batch, Classes)
	Cost    *G.Node // sum over samples of W times the cross-entropy
	Params  G.Nodes // in the order of the layers
}

// New returns the model of cfg. With weights, one per parameter in the order of Params, parameters
// are new tensors over the same memory. Without, initial weights are normally distributed with a
// variance that layers preserve, and biases are zero.
//
// The perceptron has tanh between its layers, the convolutional network rectifiers and max pooling.
// Those have kinks. Two runs that add in another order differ in the last bit, and may fall on
// different sides of a kink. Then their gradients differ in the third digit, and soon their losses,
// usually within a hundred steps. Tanh is smooth, so the losses of any number of ranks agree to six
// digits.
//
// Errors: an unknown name, a non-positive width, more poolings than an image can be halved, weights
// of the wrong shape.
func New(cfg Config, weights []*gtensor.Dense) (*Model, error) {
	b := &builder{Builder: graph.New(cfg.Seed, weights), cfg: cfg, activate: G.Rectify, gain: 2}
	if cfg.Shapes {
		b.WithoutValues()
	}
	var logits *G.Node
	switch cfg.Name {
	case "mlp":
		b.activate, b.gain = G.Tanh, 1
		logits = b.mlp()
	case "cnn":
		logits = b.cnn()
	default:
		b.Fail(fmt.Errorf("unknown model: use mlp or cnn"))
	}
	m := b.loss(logits)
	if err := b.Done(); err != nil {
		return nil, fmt.Errorf("model %q: %w", cfg.Name, err)
	}
	return m, nil
}

// builder is a graph.Builder of one of the models.
type builder struct {
	*graph.Builder
	cfg Config
	x   *G.Node

	activate func(*G.Node) (*G.Node, error) // between layers
	gain     float64                        // variance of a weight times its fan-in; depends on activate
}

func (b *builder) mlp() *G.Node {
	b.x = b.input("x", b.cfg.Batch, b.cfg.Rows*b.cfg.Cols)
	return b.dense(b.x, b.cfg.Rows*b.cfg.Cols)
}

func (b *builder) cnn() *G.Node {
	rows, cols, in := b.cfg.Rows, b.cfg.Cols, 1
	b.x = b.input("x", b.cfg.Batch, rows*cols)
	h := b.Do(func() (*G.Node, error) { return G.Reshape(b.x, gtensor.Shape{b.cfg.Batch, 1, rows, cols}) })
	kernel, pad := b.cfg.Kernel, b.cfg.Kernel/2
	for i, out := range b.cfg.Channels {
		if rows < 2 || cols < 2 {
			b.Fail(fmt.Errorf("%d channels: the pooling of %d convolutions halves an image of %dx%d to %dx%d, which has no half: use %d at most",
				len(b.cfg.Channels), i, b.cfg.Rows, b.cfg.Cols, rows, cols, i))
			return nil
		}
		w := b.param(fmt.Sprintf("conv%d.weight", i+1), in*kernel*kernel, out, in, kernel, kernel)
		h = b.Do(func() (*G.Node, error) {
			return G.Conv2d(h, w, gtensor.Shape{kernel, kernel}, []int{pad, pad}, []int{1, 1}, []int{1, 1})
		})
		h = b.Do(func() (*G.Node, error) { return b.activate(h) })
		h = b.Do(func() (*G.Node, error) { return G.MaxPool2D(h, gtensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}) })
		rows, cols, in = rows/2, cols/2, out
	}
	h = b.Do(func() (*G.Node, error) { return G.Reshape(h, gtensor.Shape{b.cfg.Batch, in * rows * cols}) })
	return b.dense(h, in*rows*cols)
}

// dense returns the fully connected layers from width in to the classes, with activations between
// them.
func (b *builder) dense(h *G.Node, in int) *G.Node {
	widths := append(append([]int(nil), b.cfg.Hidden...), b.cfg.Classes)
	for i, out := range widths {
		w := b.param(fmt.Sprintf("fc%d.weight", i+1), in, in, out)
		bias := b.param(fmt.Sprintf("fc%d.bias", i+1), 0, 1, out)
		h = b.Do(func() (*G.Node, error) { return G.Mul(h, w) })
		h = b.Do(func() (*G.Node, error) { return G.BroadcastAdd(h, bias, nil, []byte{0}) })
		if i+1 < len(widths) {
			h = b.Do(func() (*G.Node, error) { return b.activate(h) })
		}
		in = out
	}
	return h
}

func (b *builder) loss(logits *G.Node) *Model {
	m := &Model{X: b.x, Y: b.input("y", b.cfg.Batch, b.cfg.Classes), W: b.input("w", b.cfg.Batch)}
	m.Cost, m.LogProb = b.CrossEntropy(logits, m.Y, m.W)
	m.Params = b.Params
	return m
}

func (b *builder) input(name string, shape ...int) *G.Node {
	return b.Input(name, gtensor.Float32, shape...)
}

// param returns a weight with its initial value: normal with variance gain/fanIn, or zero for fanIn
// 0.
// Sources: gain 1 for tanh, LeCun et al., Efficient BackProp, 1998, section 4.6; 2 for rectifiers,
// He et al., Delving Deep into Rectifiers, 2015, equation 10.
func (b *builder) param(name string, fanIn int, shape ...int) *G.Node {
	if fanIn == 0 {
		return b.Param(name, 0, 0, shape...)
	}
	return b.Param(name, 0, math.Sqrt(b.gain/float64(fanIn)), shape...)
}
