package transformer

import (
	"fmt"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// Ignored is a target that does not count, as ignore_index of PyTorch.
const Ignored = -100

// Options are the settings of a graph for a model.
type Options struct {
	Batch  int // samples
	Tokens int // of a sample; 0 means Config.Context

	// Weights are the values of the parameters, in the order of Config.Params, such as
	// Weights.Values. Parameters are new tensors over the same memory. nil means initial weights.
	Weights []*gtensor.Dense
	Seed    int64 // of initial weights
	Shapes  bool  // parameters have no values, for a graph that is planned and not run

	// Train adds targets and the loss, with the dropout of the configuration. A machine that is
	// compiled for the loss computes no logits of its own.
	Train bool
	// Positions is the number of tokens of the batch whose logits are computed: Model.Positions
	// selects them. 0 means all, without that input. Not with Train.
	Positions int
}

// Model is the graph of a model for a batch.
type Model struct {
	Tokens    *G.Node // (Batch, Tokens) of int, an input
	Targets   *G.Node // (Batch*Tokens) of int, an input: the next tokens, or Ignored; nil without Train
	Positions *G.Node // (Options.Positions) of int, an input: row*Tokens + number; nil for all

	Logits *G.Node // (Batch*Tokens, Vocabulary), or (Positions, Vocabulary)
	Cost   *G.Node // mean cross-entropy of the targets that are not Ignored; nil without Train
	Params G.Nodes // in the order of Config.Params, with the names of Hugging Face
}

// New returns the graph of a model.
//
// Errors: those of Validate; dist.ErrInvalid for options and weights that do not fit;
// dist.ErrUnsupported for attention dropout with Train.
func New(c Config, o Options) (*Model, error) {
	all, err := c.Params()
	if err != nil {
		return nil, err
	}
	c = c.filled()
	if o.Tokens == 0 {
		o.Tokens = c.Context
	}
	if err := o.check(c); err != nil {
		return nil, err
	}
	if o.Weights != nil {
		if err := checkValues(all, o.Weights); err != nil {
			return nil, err
		}
	}
	b := &builder{Config: c, o: o, g: G.NewGraph(), params: make(map[string]*G.Node, len(all))}
	m := &Model{Params: b.parameters(all)}
	b.network(m)
	if b.err != nil {
		return nil, fmt.Errorf("transformer: %w", b.err)
	}
	return m, nil
}

// check checks o for a model.
func (o Options) check(c Config) error {
	switch {
	case o.Batch < 1 || o.Batch > most:
		return fmt.Errorf("transformer: %w: Batch is %d; want 1 to %d", dist.ErrInvalid, o.Batch, most)
	case o.Tokens < 1 || o.Tokens > c.Context:
		return fmt.Errorf("transformer: %w: Tokens is %d; want 1 to the context, %d", dist.ErrInvalid, o.Tokens, c.Context)
	case o.Positions < 0 || o.Positions > o.Batch*o.Tokens:
		return fmt.Errorf("transformer: %w: Positions is %d of %d tokens", dist.ErrInvalid, o.Positions, o.Batch*o.Tokens)
	case o.Positions > 0 && o.Train:
		return fmt.Errorf("transformer: %w: Positions with Train: the loss is of all tokens", dist.ErrInvalid)
	case o.Weights != nil && o.Shapes:
		return fmt.Errorf("transformer: %w: Weights and Shapes: use one", dist.ErrInvalid)
	case o.Train && c.AttentionDropout > 0:
		return fmt.Errorf("transformer: %w: AttentionDropout is %v: training without it is possible, set it to 0 (attn_pdrop or attention_dropout of config.json)",
			dist.ErrUnsupported, c.AttentionDropout)
	}
	return nil
}

// builder builds a graph. After the first error it does nothing.
type builder struct {
	Config
	o      Options
	g      *G.ExprGraph
	params map[string]*G.Node
	err    error
}

// do returns the node of f, or nil after an error.
func (b *builder) do(f func() (*G.Node, error)) *G.Node {
	if b.err != nil {
		return nil
	}
	n, err := f()
	b.err = err
	return n
}

// parameters adds the parameters to the graph.
func (b *builder) parameters(all []Param) G.Nodes {
	nodes := make(G.Nodes, len(all))
	for i, p := range all {
		options := []G.NodeConsOpt{G.WithName(p.Name), G.WithShape(p.Shape...)}
		if !b.o.Shapes {
			options = append(options, G.WithValue(b.value(p, i)))
		}
		nodes[i] = G.NewTensor(b.g, gtensor.Float32, len(p.Shape), options...)
		b.params[p.Name] = nodes[i]
	}
	return nodes
}

// value returns the value of parameter i.
func (b *builder) value(p Param, i int) *gtensor.Dense {
	if b.o.Weights != nil {
		return gtensor.New(gtensor.WithShape(p.Shape...), gtensor.WithBacking(b.o.Weights[i].Float32s()))
	}
	v := dense(p)
	p.initial(v.Float32s(), b.o.Seed, i)
	return v
}

// input adds an input of zeros.
func (b *builder) input(name string, shape ...int) *G.Node {
	v := gtensor.New(gtensor.Of(gtensor.Int), gtensor.WithShape(shape...))
	return G.NewTensor(b.g, gtensor.Int, len(shape), G.WithName(name), G.WithShape(shape...), G.WithValue(v))
}
