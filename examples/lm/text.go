package main

import (
	"crypto/sha256"
	"fmt"
	"os"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/examples/language"
	"github.com/symgrad/symgrad/internal/foreign"
	"github.com/symgrad/symgrad/train"
)

// heldOut sets the test set: one part in heldOut of the text.
const heldOut = 10

// text is the characters of a file as tokens. Sample i has those from first+i*context on, each with
// its successor as the target.
type text struct {
	tokens  []int32
	first   int
	context int
}

// Sample reads a sample.
func (x text) Sample(i int, inputs, targets []int32) error {
	sample := x.tokens[x.first+i*x.context:][:x.context+1]
	copy(inputs, sample)
	copy(targets, sample[1:])
	return nil
}

// findText reports a missing file, or one with too little text.
func findText(c *config.Config) error {
	if m := c.Model; m.Pretrained != "" || m.Vocabulary != 0 || c.Data.ValPath != "" {
		return train.Usage("model.pretrained, model.vocabulary and data.val_path have no effect here: the tokens are characters of data.path; use examples/gpt2")
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
	var token [256]int32
	for _, b := range raw {
		token[b] = 1
	}
	characters := 0
	for b, there := range token {
		if there == 1 {
			token[b] = int32(characters)
			characters++
		}
	}
	tokens := make([]int32, len(raw))
	for i, b := range raw {
		tokens[i] = token[b]
	}
	m := language.Sized(c.Model)
	m.Vocabulary = characters
	if err := m.Validate(); err != nil {
		return nil, train.Usage("%w", err)
	}
	all := (len(raw) - 1) / c.Model.Context // the last character of a sample needs a successor
	held := (all + heldOut - 1) / heldOut
	n := all - held
	p := &language.Problem{
		Model: m, Seed: c.Run.Seed, Context: c.Model.Context, Samples: n, Test: held,
		Train: text{tokens, 0, c.Model.Context}, Held: text{tokens, n * c.Model.Context, c.Model.Context},
		Source: fmt.Sprintf("SHA-256 of the text: %x", sha256.Sum256(raw)),
	}
	if limit := c.Data.Limit; limit > 0 { // the test set is independent of it
		p.Samples = min(n, limit)
	}
	p.About = fmt.Sprintf("%s: %d characters, %d different; %d training and %d test samples of %d",
		c.Data.Path, len(raw), characters, p.Samples, held, p.Context)
	return p, nil
}
