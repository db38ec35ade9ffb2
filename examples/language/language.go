// Package language has the problem of predicting the next token with a transformer, for the
// programs that train language models: characters in examples/lm, byte pairs in examples/gpt2.
package language

import (
	"encoding/json"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/nn/transformer"
	"github.com/symgrad/symgrad/train"
)

// Problem is the problem, for train.FromDataset. Its data sets have the fields of
// data.Tokens.Dataset: the tokens of a sample, and the token after each.
type Problem struct {
	Model   transformer.Config // valid, and without dropout
	Weights *transformer.Weights
	Seed    int64 // of initial weights, if Weights is nil
	Context int   // tokens of a sample

	Train  data.Dataset
	Held   data.Dataset // the test set; nil for none
	Source string       // identifies the samples: see train.Problem.Digest
	About  string       // the samples in a few words
}

// Dataset returns the training samples.
func (p *Problem) Dataset() data.Dataset { return p.Train }

// TokensPerSample returns the number of tokens that are predicted.
func (p *Problem) TokensPerSample() int { return p.Context }

// Digest identifies the samples.
func (p *Problem) Digest() string { return p.Source }

// Describe returns summaries of the samples and of the model.
func (p *Problem) Describe() (text, model string) { return p.About, Describe(p.Model, p.Context) }

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

// Set sets the inputs of m to a batch.
func (p *Problem) Set(m *train.Model, rows *data.Rows) error { return Set(m.Inputs, rows) }

// Set sets the inputs tokens and targets of a model to a batch. The targets of rows without a
// sample are Ignored.
func Set(inputs gorgonia.Nodes, rows *data.Rows) error {
	tokens, targets := inputs[0].Value().Data().([]int), inputs[1].Value().Data().([]int)
	if n := len(rows.Values(0).Int); n > len(tokens) {
		return fmt.Errorf("%d tokens for a model of %d", n, len(tokens))
	}
	clear(tokens[copy(tokens, rows.Values(0).Int):])
	used := rows.Len() * rows.Fields()[1].Shape[0]
	copy(targets, rows.Values(1).Int[:used])
	for i := range targets[used:] {
		targets[used+i] = transformer.Ignored
	}
	return nil
}

// Read sets the inputs tokens and targets of a model to n samples of a text.
func Read(inputs gorgonia.Nodes, text data.Dataset, first, n int) error {
	indices := make([]int, n)
	for i := range indices {
		indices[i] = first + i
	}
	batch, err := data.ReadRows(text, indices, 0, inputs[0].Shape()[0])
	if err != nil {
		return err
	}
	return Set(inputs, batch)
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
func (t tests) Len() int { return t.Held.Len() }

// mostLogits is the number of logits of a test batch, 64 MiB, which are copied from a GPU.
const mostLogits = 16 << 20

// Rows is a small batch.
func (t tests) Rows() int { return min(8, max(1, mostLogits/(t.Context*t.Model.Vocabulary))) }

// HasLoss reports that Fill sets the targets.
func (tests) HasLoss() bool { return true }

// Fill sets the inputs to n test samples.
func (t tests) Fill(m *train.Model, first, n int) error {
	return Read(m.Inputs, t.Held, first, n)
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
