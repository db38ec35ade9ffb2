// Package model builds a decoder-only transformer as a plain Gorgonia graph: embeddings of tokens
// and positions, blocks of causal attention and a perceptron, and an output layer. Each attention
// and perceptron follows a layer normalization and is added to its input.
//
// Sources: Vaswani et al., Attention Is All You Need, 2017; Radford et al., Language Models are
// Unsupervised Multitask Learners, 2019 (normalization first, tied output, smaller weights where
// residuals add up).
package model

import (
	"fmt"
	"math"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/examples/internal/graph"
)

// Config defines the network to build.
type Config struct {
	Vocabulary int   // number of different tokens
	Context    int   // tokens of a sample
	Layers     int   // blocks
	Heads      int   // per attention; a divisor of Width
	Width      int   // features of a token
	Hidden     []int // widths inside the perceptron of a block
	Tied       bool  // the output layer is the embedding, transposed
	Batch      int   // samples; fixed in the graph
	Seed       int64 // of the initial weights
	Shapes     bool  // parameters without values, for a plan
}

// Model is a network with its loss.
type Model struct {
	Inputs  G.Nodes // tokens (Batch*Context) of int, one-hot next tokens (Batch*Context, Vocabulary), weights (Batch*Context)
	LogProb *G.Node // (Batch*Context, Vocabulary)
	Cost    *G.Node // sum over tokens of the weight times the cross-entropy
	Params  G.Nodes
}

// epsilon keeps the normalization of a constant row finite, as in torch.nn.LayerNorm.
const epsilon = 1e-5

// masked is added to the score of a later token. Its exponential is zero.
var masked = float32(math.Inf(-1))

// New returns the model of cfg. With weights, one per parameter in the order of Params, parameters
// are new tensors over the same memory. Without, initial weights are drawn from the seed.
//
// Errors: sizes that are not positive or do not fit; weights that do not fit.
func New(cfg Config, weights []*gtensor.Dense) (*Model, error) {
	if cfg.Heads < 1 || cfg.Width%cfg.Heads != 0 {
		return nil, fmt.Errorf("transformer: %d heads do not divide the width, %d", cfg.Heads, cfg.Width)
	}
	b := &builder{Builder: graph.New(cfg.Seed, weights), Config: cfg, rows: cfg.Batch * cfg.Context}
	if cfg.Shapes {
		b.WithoutValues()
	}
	m := b.network()
	if err := b.Done(); err != nil {
		return nil, fmt.Errorf("transformer: %w", err)
	}
	return m, nil
}

// builder is a graph.Builder of the network.
type builder struct {
	*graph.Builder
	Config
	rows int     // tokens of a batch
	mask *G.Node // (1, Context, Context): 0 for visible tokens, masked for later ones
}

func (b *builder) network() *Model {
	m := &Model{Inputs: G.Nodes{
		b.Input("tokens", gtensor.Int, b.rows),
		b.Input("next", gtensor.Float32, b.rows, b.Vocabulary),
		b.Input("weights", gtensor.Float32, b.rows),
	}}
	b.mask = b.causal()
	table := b.Param("embedding", 0, 1/math.Sqrt(float64(b.Width)), b.Vocabulary, b.Width)
	x := b.Do(func() (*G.Node, error) { return G.ByIndices(table, m.Inputs[0], 0) })
	positions := b.Param("positions", 0, 0.02, 1, b.Context, b.Width)
	x = b.Rows(G.BroadcastAdd, b.Reshape(x, b.Batch, b.Context, b.Width), positions, 0)
	x = b.Reshape(x, b.rows, b.Width)
	for i := range b.Layers {
		name := fmt.Sprintf("layer%d.", i+1)
		x = b.Both(G.Add, x, b.attention(name+"attention.", b.norm(name+"norm1", x)))
		x = b.Both(G.Add, x, b.perceptron(name+"fc", b.norm(name+"norm2", x)))
	}
	x = b.norm("norm", x)
	var logits *G.Node
	if b.Tied {
		logits = b.Both(G.Mul, x, b.Do(func() (*G.Node, error) { return G.Transpose(table, 1, 0) }))
	} else {
		logits = b.Both(G.Mul, x, b.weight("head", b.Width, b.Vocabulary, 1))
	}
	m.Cost, m.LogProb = b.CrossEntropy(logits, m.Inputs[1], m.Inputs[2])
	m.Params = b.Params
	return m
}

// causal returns the mask.
func (b *builder) causal() *G.Node {
	return b.Constant("mask", func(data []float32) {
		for i := range b.Context {
			for j := i + 1; j < b.Context; j++ {
				data[i*b.Context+j] = masked
			}
		}
	}, 1, b.Context, b.Context)
}

// weight returns a matrix that preserves the variance, times scale.
func (b *builder) weight(name string, in, out int, scale float64) *G.Node {
	return b.Param(name, 0, scale/math.Sqrt(float64(in)), in, out)
}

// residual returns the scale of the 2 parts per layer that are added to the residual stream.
func (b *builder) residual() float64 { return 1 / math.Sqrt(float64(2*b.Layers)) }

// norm returns the normalized rows of x, with a gain and an offset per column.
func (b *builder) norm(name string, x *G.Node) *G.Node {
	mean := func(x *G.Node) *G.Node { return b.Do(func() (*G.Node, error) { return G.Mean(x, 1) }) }
	x = b.Rows(G.BroadcastSub, x, b.Reshape(mean(x), b.rows, 1), 1)
	variance := mean(b.Apply(G.Square, x))
	deviation := b.Apply(G.Sqrt, b.Both(G.Add, variance, G.NewConstant(float32(epsilon))))
	x = b.Rows(G.BroadcastHadamardDiv, x, b.Reshape(deviation, b.rows, 1), 1)
	x = b.Rows(G.BroadcastHadamardProd, x, b.Param(name+".gain", 1, 0, 1, b.Width), 0)
	return b.Rows(G.BroadcastAdd, x, b.Param(name+".offset", 0, 0, 1, b.Width), 0)
}

// attention returns causal self-attention: each token attends to itself and those before it.
func (b *builder) attention(name string, x *G.Node) *G.Node {
	each := b.Width / b.Heads
	head := func(what string) *G.Node { // (Batch*Heads, Context, each)
		y := b.Both(G.Mul, x, b.weight(name+what, b.Width, b.Width, 1))
		y = b.Reshape(y, b.Batch, b.Context, b.Heads, each)
		y = b.Do(func() (*G.Node, error) { return G.Transpose(y, 0, 2, 1, 3) })
		return b.Reshape(y, b.Batch*b.Heads, b.Context, each)
	}
	query, key, value := head("query"), head("key"), head("value")
	scores := b.Do(func() (*G.Node, error) { return G.BatchedMatMul(query, key, false, true) })
	scores = b.Both(G.HadamardProd, scores, G.NewConstant(float32(1/math.Sqrt(float64(each)))))
	scores = b.Rows(G.BroadcastAdd, scores, b.mask, 0)
	shares := b.Do(func() (*G.Node, error) { return G.SoftMax(scores, 2) })
	y := b.Do(func() (*G.Node, error) { return G.BatchedMatMul(shares, value) })
	y = b.Reshape(y, b.Batch, b.Heads, b.Context, each)
	y = b.Do(func() (*G.Node, error) { return G.Transpose(y, 0, 2, 1, 3) })
	return b.Both(G.Mul, b.Reshape(y, b.rows, b.Width), b.weight(name+"out", b.Width, b.Width, b.residual()))
}

// perceptron returns fully connected layers with x*sigmoid(x) between them. That is smooth, so any
// number of ranks learns the same.
func (b *builder) perceptron(name string, x *G.Node) *G.Node {
	in := b.Width
	widths := append(append([]int(nil), b.Hidden...), b.Width)
	for i, out := range widths {
		scale := 1.0
		if i == len(widths)-1 {
			scale = b.residual()
		}
		x = b.Both(G.Mul, x, b.weight(fmt.Sprintf("%s%d.weight", name, i+1), in, out, scale))
		x = b.Rows(G.BroadcastAdd, x, b.Param(fmt.Sprintf("%s%d.bias", name, i+1), 0, 0, 1, out), 0)
		if i < len(widths)-1 {
			x = b.Both(G.HadamardProd, x, b.Apply(G.Sigmoid, x))
		}
		in = out
	}
	return x
}
