package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/train"
)

// shards is the problem of predicting the next token of a text in files of tokens, which may be
// larger than memory. It has the network of a text.
type shards struct {
	text
	tokens *data.Tokens
	sum    string
	all    data.Dataset // training samples, then test samples
	used   data.Dataset // training samples up to data.limit
}

// openTokens opens the files of data.path.
//
// Owns: the caller closes them.
func openTokens(c *config.Config) (*data.Tokens, error) {
	t, err := data.OpenTokens(data.TokensConfig{Paths: []string{c.Data.Path}, Vocabulary: c.Data.Vocabulary})
	if err != nil {
		return nil, fmt.Errorf("%w; set data.path to files of tokens (symgrad data tokenize makes them), or data.vocabulary to 0 for a text", err)
	}
	if least := 2*c.Model.Context + 1; t.Len() < least {
		return nil, errors.Join(train.Usage("%s has %d tokens: want at least %d, for samples of %d (model.context)", c.Data.Path, t.Len(), least, c.Model.Context), t.Close())
	}
	return t, nil
}

// findTokens reports missing or damaged files, or too few tokens.
func findTokens(c *config.Config) error {
	t, err := openTokens(c)
	if err != nil {
		return err
	}
	return t.Close()
}

func openShards(c *config.Config) (train.Problem, error) {
	tokens, err := openTokens(c) // open until the process ends
	if err != nil {
		return nil, err
	}
	s := &shards{text: text{path: c.Data.Path, model: network(c, c.Data.Vocabulary)}, tokens: tokens}
	if s.all, err = tokens.Dataset(c.Model.Context); err != nil {
		return nil, err
	}
	if s.sum, err = tokens.Digest(); err != nil {
		return nil, err
	}
	s.split(s.all.Len(), c.Data.Limit)
	s.used, err = data.Subset(s.all, 0, s.n)
	return train.FromDataset(s), err
}

// Digest returns the hash of the files.
func (s *shards) Digest() string { return s.sum }

// Describe returns a summary of the files, and of the network.
func (s *shards) Describe() (data, name string) {
	data = fmt.Sprintf("%s: %d tokens in %d files, vocabulary %d; %d training and %d test samples of %d",
		s.path, s.tokens.Len(), len(s.tokens.Shards()), s.model.Vocabulary, s.n, s.tests, s.model.Context)
	return data, described(s.model)
}

// Dataset returns the training samples.
func (s *shards) Dataset() data.Dataset { return s.used }

// Set sets the inputs to a batch.
func (s *shards) Set(m *train.Model, rows *data.Rows) error {
	words, y, w := m.Inputs[0].Value().Data().([]int), m.Inputs[1].Value().Data().([]float32), m.Inputs[2].Value().Data().([]float32)
	n := rows.Len() * s.model.Context
	copy(words, rows.Values(0).Int)
	if err := data.OneHot(y[:n*s.model.Vocabulary], rows.Values(1).Int[:n], s.model.Vocabulary); err != nil {
		return err
	}
	clear(y[n*s.model.Vocabulary:])
	clear(w)
	for i := range n {
		w[i] = 1 / float32(n)
	}
	return nil
}

// Tests returns the end of the text.
func (s *shards) Tests() train.Tests { return tokenTests{s} }

// tokenTests are the samples at the end, independent of data.limit.
type tokenTests struct{ *shards }

// Len returns the number of test samples.
func (t tokenTests) Len() int { return t.tests }

// Rows is a small batch.
func (tokenTests) Rows() int { return 8 }

// Fill sets the inputs to n test samples.
func (t tokenTests) Fill(m *train.Model, first, n int) error {
	indices := make([]int, n)
	for i := range indices {
		indices[i] = t.all.Len() - t.tests + first + i
	}
	rows, err := data.ReadRows(t.all, indices, 0, t.Rows())
	if err != nil {
		return err
	}
	return t.Set(m, rows)
}

// Count compares the most likely next token with the right one, for all tokens.
func (t tokenTests) Count(m *train.Model, _, n int) (right, all int) {
	logProb, y := m.Output.Value().Data().([]float32), m.Inputs[1].Value().Data().([]float32)
	v := t.model.Vocabulary
	for i := range n * t.model.Context {
		scores := logProb[i*v:][:v]
		if y[i*v+slices.Index(scores, slices.Max(scores))] == 1 {
			right++
		}
	}
	return right, n * t.model.Context
}
