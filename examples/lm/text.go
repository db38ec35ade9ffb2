package main

import (
	"crypto/sha256"
	"fmt"
	"os"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/examples/language"
	"github.com/symgrad/symgrad/internal/foreign"
	"github.com/symgrad/symgrad/train"
)

// heldOut sets the test set: one part in heldOut of the text.
const heldOut = 10

// text is the characters of a file as tokens. Sample i has those from i*context on, each with its
// successor as the target.
type text struct {
	tokens  []int
	context int
}

// Len returns the number of samples. The last character of a sample needs a successor.
func (x text) Len() int { return (len(x.tokens) - 1) / x.context }

// Fields returns the fields of data.Tokens.Dataset.
func (x text) Fields() []data.Field {
	return []data.Field{{Name: "tokens", DType: gtensor.Int, Shape: []int{x.context}}, {Name: "targets", DType: gtensor.Int, Shape: []int{x.context}}}
}

// Read copies sample i.
func (x text) Read(i, _ int, row []data.Values) error {
	sample := x.tokens[i*x.context:][:x.context+1]
	copy(row[0].Int, sample)
	copy(row[1].Int, sample[1:])
	return nil
}

// findText reports a missing file, or one with too little text.
func findText(c *config.Config) error {
	d, standard := c.Data, config.Default().Data
	if m := c.Model; m.Pretrained != "" || m.Vocabulary != 0 || d.ValPath != "" || d.ValLimit != 0 || d.Encoding != standard.Encoding {
		return train.Usage("model.pretrained, model.vocabulary, data.val_path, data.val_limit and data.encoding have no effect here: " +
			"the tokens are characters of data.path; use examples/gpt2")
	}
	info, err := os.Stat(c.Data.Path)
	if err != nil {
		return fmt.Errorf("text: %w; set data.path to a file with text, such as examples/lm/stories.txt", err)
	}
	if info.IsDir() {
		return train.Usage("data.path=%s is a folder: use a file with text, such as examples/lm/stories.txt", c.Data.Path)
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

func openText(c *config.Config) (train.Problem, error) {
	raw, err := foreign.ReadNamed(c.Data.Path, maxText)
	if err != nil {
		return nil, fmt.Errorf("text: %w", err)
	}
	if err := enough(c, int64(len(raw))); err != nil {
		return nil, err
	}
	var token [256]int
	for _, b := range raw {
		token[b] = 1
	}
	characters := 0
	for b, there := range token {
		if there == 1 {
			token[b] = characters
			characters++
		}
	}
	x := text{make([]int, len(raw)), c.Model.Context}
	for i, b := range raw {
		x.tokens[i] = token[b]
	}
	m := language.Sized(c.Model)
	m.Vocabulary = characters
	if err := m.Validate(); err != nil {
		return nil, train.Usage("%w", err)
	}
	held := (x.Len() + heldOut - 1) / heldOut
	n := x.Len() - held
	used := n
	if limit := c.Data.Limit; limit > 0 { // the test set is independent of it
		used = min(n, limit)
	}
	p := &language.Problem{Model: m, Seed: c.Run.Seed, Context: c.Model.Context, Source: fmt.Sprintf("SHA-256 of the text: %x", sha256.Sum256(raw))}
	if p.Train, err = data.Subset(x, 0, used); err == nil {
		p.Held, err = data.Subset(x, n, held)
	}
	p.About = fmt.Sprintf("%s: %d characters, %d different; %d training and %d test samples of %d",
		c.Data.Path, len(raw), characters, used, held, p.Context)
	return train.FromDataset(p), err
}
