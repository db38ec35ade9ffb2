package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"slices"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/examples/internal/graph"
	"github.com/symgrad/symgrad/examples/lm/model"
	"github.com/symgrad/symgrad/internal/foreign"
	"github.com/symgrad/symgrad/train"
)

// heldOut sets the test set: one part in heldOut of the text.
const heldOut = 10

// text is the problem of predicting the next character. Sample i has the characters from i*context
// on, each with its successor as the label.
type text struct {
	path   string
	digest [sha256.Size]byte
	model  model.Config // without a batch

	characters []byte // the vocabulary: characters of the text, in order
	tokens     []int  // of the whole text, as indices into characters
	n, tests   int    // number of training samples, and of test samples, which follow them
}

// find reports missing data, or too little of them.
func find(c *config.Config) error {
	if c.Data.Vocabulary > 0 {
		return findTokens(c)
	}
	info, err := os.Stat(c.Data.Path)
	if err != nil {
		return fmt.Errorf("text: %w; set data.path to a file with text, such as examples/lm/stories.txt", err)
	}
	if info.IsDir() {
		return train.Usage("data.path=%s is a folder: use a file with text, such as examples/lm/stories.txt; for a folder of tokens set data.vocabulary", c.Data.Path)
	}
	if n := c.Launch.NprocPerNode; !info.Mode().IsRegular() && n > 1 && c.Comm.Backend != backend.Sim {
		return train.Usage("data.path=%s: not a regular file, and each of %d ranks reads it: write the text to a file", c.Data.Path, n)
	}
	if !info.Mode().IsRegular() { // a pipe, whose size is unknown
		return nil
	}
	return enough(c, info.Size())
}

// enough rejects a text too short for one training and one test sample.
func enough(c *config.Config, characters int64) error {
	if least := 2*c.Model.Context + 1; characters < int64(least) { // the last character of a sample needs a successor
		return train.Usage("%s has %d characters: want at least %d, for samples of %d (model.context)", c.Data.Path, characters, least, c.Model.Context)
	}
	return nil
}

// maxText is the largest text in bytes. The whole text is held in memory, at 9 B per character.
const maxText = 1 << 30

// open returns the problem of a text, or of files of tokens if data.vocabulary is set.
func open(c *config.Config) (train.Problem, error) {
	if c.Data.Vocabulary > 0 {
		return openShards(c)
	}
	raw, err := foreign.ReadNamed(c.Data.Path, maxText)
	if err != nil {
		return nil, fmt.Errorf("text: %w", err)
	}
	if err := enough(c, int64(len(raw))); err != nil {
		return nil, err
	}
	x := &text{path: c.Data.Path, digest: sha256.Sum256(raw)}
	var token [256]int
	for _, b := range raw {
		token[b] = 1
	}
	for b, there := range token {
		if there == 1 {
			token[b] = len(x.characters)
			x.characters = append(x.characters, byte(b))
		}
	}
	x.tokens = make([]int, len(raw))
	for i, b := range raw {
		x.tokens[i] = token[b]
	}
	x.split((len(raw)-1)/c.Model.Context, c.Data.Limit) // the last character of a sample needs a successor
	x.model = network(c, len(x.characters))
	return x, nil
}

// split sets the numbers of training and test samples of all, with at most limit for training; 0
// means no limit.
func (x *text) split(all, limit int) {
	x.tests = (all + heldOut - 1) / heldOut
	x.n = all - x.tests
	if limit > 0 {
		x.n = min(x.n, limit)
	}
}

// network returns the network for a vocabulary.
func network(c *config.Config, vocabulary int) model.Config {
	m := c.Model
	return model.Config{
		Vocabulary: vocabulary, Context: m.Context, Layers: m.Layers, Heads: m.Heads, Width: m.Width,
		Hidden: slices.Clone(m.Hidden), Tied: m.Tied, Seed: c.Run.Seed,
	}
}

// Len returns the number of training samples.
func (x *text) Len() int { return x.n }

// Digest returns the hash of the file.
func (x *text) Digest() string { return fmt.Sprintf("SHA-256 of the text: %x", x.digest) }

// Describe returns a summary of the text, and of the network.
func (x *text) Describe() (data, name string) {
	data = fmt.Sprintf("%s: %d characters, %d different; %d training and %d test samples of %d",
		x.path, len(x.tokens), len(x.characters), x.n, x.tests, x.model.Context)
	return data, described(x.model)
}

// described returns a network in a few words.
func described(c model.Config) string {
	name := fmt.Sprintf("transformer, layers %d, width %d, heads %d, hidden %s, context %d", c.Layers, c.Width, c.Heads, graph.Widths(c.Hidden...), c.Context)
	if c.Tied {
		name += ", tied"
	}
	return name
}

// New returns the network.
func (x *text) New(rows int, weights []*gtensor.Dense) (*train.Model, error) {
	c := x.model
	c.Batch = rows
	m, err := model.New(c, weights)
	if err != nil {
		return nil, err
	}
	return &train.Model{Inputs: m.Inputs, Params: m.Params, Cost: m.Cost, Output: m.LogProb}, nil
}

// Fill sets the inputs to training samples.
func (x *text) Fill(m *train.Model, indices []int) error {
	words, y, w := m.Inputs[0].Value().Data().([]int), m.Inputs[1].Value().Data().([]float32), m.Inputs[2].Value().Data().([]float32)
	context, vocabulary := x.model.Context, len(x.characters)
	if len(indices)*context > len(w) {
		return fmt.Errorf("%d samples for %d rows", len(indices), len(w)/context)
	}
	clear(words)
	clear(y)
	clear(w)
	for row, i := range indices {
		sample := x.tokens[i*context:][:context+1]
		copy(words[row*context:], sample[:context])
		for j, next := range sample[1:] {
			at := row*context + j
			y[at*vocabulary+next] = 1
			w[at] = 1 / float32(len(indices)*context)
		}
	}
	return nil
}

// Tests returns the end of the text.
func (x *text) Tests() train.Tests { return tests{x} }

// tests are the samples at the end, independent of data.limit.
type tests struct{ *text }

// Len returns the number of test samples.
func (t tests) Len() int { return t.tests }

// Rows is a small batch.
func (tests) Rows() int { return 8 }

// first returns the index of the first test sample.
func (t tests) first() int { return (len(t.tokens)-1)/t.model.Context - t.tests }

// Fill sets the inputs to n test samples.
func (t tests) Fill(m *train.Model, first, n int) error {
	indices := make([]int, n)
	for i := range indices {
		indices[i] = t.first() + first + i
	}
	return t.text.Fill(m, indices)
}

// Count compares the most likely next character with the right one, for all characters.
func (t tests) Count(m *train.Model, first, n int) (right, all int) {
	logProb := m.Output.Value().Data().([]float32)
	context, vocabulary := t.model.Context, len(t.characters)
	for row := range n {
		sample := t.tokens[(t.first()+first+row)*context:]
		for j := range context {
			scores := logProb[(row*context+j)*vocabulary:][:vocabulary]
			if slices.Index(scores, slices.Max(scores)) == sample[j+1] {
				right++
			}
		}
	}
	return right, n * context
}
