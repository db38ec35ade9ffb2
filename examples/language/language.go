// Package language has the problem of predicting the next token with a transformer, for the
// programs that train language models: characters in examples/lm, byte pairs in examples/gpt2.
package language

import (
	"encoding/json"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/nn/transformer"
	"github.com/symgrad/symgrad/train"
)

// Text is samples of tokens, such as a data.Tokens. Several goroutines use it.
type Text interface {
	// Sample reads the tokens of sample i, and the token after each.
	Sample(i int, inputs, targets []int32) error
}

// Problem is the problem. It implements train.Problem and train.Annotated.
type Problem struct {
	Model   transformer.Config // valid, and without dropout
	Weights *transformer.Weights
	Seed    int64 // of initial weights, if Weights is nil
	Context int   // tokens of a sample

	Train, Held   Text   // Held is the test set; nil for none
	Samples, Test int    // numbers of samples of both
	Source        string // identifies the samples: see train.Problem.Digest
	About         string // the samples in a few words
}

// Len returns the number of training samples.
func (p *Problem) Len() int { return p.Samples }

// Digest identifies the samples.
func (p *Problem) Digest() string { return p.Source }

// Describe returns summaries of the samples and of the model.
func (p *Problem) Describe() (data, model string) { return p.About, Describe(p.Model, p.Context) }

// Annotations returns the configuration of the model for checkpoints.
func (p *Problem) Annotations() map[string]json.RawMessage {
	all, err := p.Model.Annotations()
	if err != nil { // not for a valid configuration without dropout
		return nil
	}
	return all
}

// New returns the model.
func (p *Problem) New(rows int, weights []*gtensor.Dense) (*train.Model, error) {
	o := transformer.Options{Batch: rows, Tokens: p.Context, Train: true, Seed: p.Seed, Weights: weights}
	if weights == nil && p.Weights != nil {
		for _, w := range p.Weights.Values { // ranks of one process change their own
			o.Weights = append(o.Weights, gtensor.New(gtensor.WithShape(w.Shape()...), gtensor.WithBacking(slices.Clone(w.Float32s()))))
		}
	}
	m, err := transformer.New(p.Model, o)
	if err != nil {
		return nil, err
	}
	return &train.Model{Inputs: gorgonia.Nodes{m.Tokens, m.Targets}, Params: m.Params, Cost: m.Cost, Output: m.Logits}, nil
}

// Fill sets the inputs to training samples.
func (p *Problem) Fill(m *train.Model, indices []int) error {
	return Fill(m.Inputs, p.Context, p.Train, len(indices), func(i int) int { return indices[i] })
}

// Fill sets the inputs tokens and targets of a model to n samples of a text. The targets of the
// remaining rows are Ignored.
func Fill(inputs gorgonia.Nodes, context int, text Text, n int, sample func(i int) int) error {
	words, targets := inputs[0].Value().Data().([]int), inputs[1].Value().Data().([]int)
	if n*context > len(words) {
		return fmt.Errorf("%d samples for %d rows", n, len(words)/context)
	}
	clear(words)
	for i := range targets {
		targets[i] = transformer.Ignored
	}
	these, next := make([]int32, context), make([]int32, context)
	for row := range n {
		if err := text.Sample(sample(row), these, next); err != nil {
			return err
		}
		for j := range these {
			words[row*context+j], targets[row*context+j] = int(these[j]), int(next[j])
		}
	}
	return nil
}

// Tests returns the held-out samples.
func (p *Problem) Tests() train.Tests {
	if p.Held == nil {
		return nil
	}
	return tests{p}
}

// tests are the held-out samples.
type tests struct{ *Problem }

// Len returns the number of test samples.
func (t tests) Len() int { return t.Test }

// mostLogits is the number of logits of a test batch, 64 MiB, which are copied from a GPU.
const mostLogits = 16 << 20

// Rows is a small batch.
func (t tests) Rows() int { return min(8, max(1, mostLogits/(t.Context*t.Model.Vocabulary))) }

// Fill sets the inputs to n test samples.
func (t tests) Fill(m *train.Model, first, n int) error {
	return Fill(m.Inputs, t.Context, t.Held, n, func(i int) int { return first + i })
}

// Count compares the most likely next token with the right one, for all tokens.
func (t tests) Count(m *train.Model, _, n int) (right, all int) {
	logits, targets := m.Output.Value().Data().([]float32), m.Inputs[1].Value().Data().([]int)
	vocabulary := t.Model.Vocabulary
	for i := range n * t.Context {
		scores := logits[i*vocabulary:][:vocabulary]
		if slices.Index(scores, slices.Max(scores)) == targets[i] {
			right++
		}
	}
	return right, n * t.Context
}

// Describe returns a model in a few words, for samples of so many tokens.
func Describe(c transformer.Config, context int) string {
	text := fmt.Sprintf("%s, layers %d, width %d, heads %d, inner %d, context %d, vocabulary %d", c.Family, c.Layers, c.Width, c.Heads, c.Inner, context, c.Vocabulary)
	if c.KVHeads > 0 && c.KVHeads < c.Heads {
		text += fmt.Sprintf(", heads of keys and values %d", c.KVHeads)
	}
	if c.Tied {
		text += ", tied"
	}
	return text
}
