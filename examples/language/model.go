package language

import (
	"fmt"
	"path/filepath"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/data/bpe"
	"github.com/symgrad/symgrad/nn/transformer"
)

// ModelOf returns the model of the settings of examples/gpt2: that of model.pretrained, without its
// dropout, or of the sizes in model, with the vocabulary of data.encoding.
//
// Errors: invalid sizes or encoding; those of transformer.ReadConfig; another model.name, or a
// larger model.context, than model.pretrained has.
func ModelOf(c *config.Config) (transformer.Config, error) {
	m := c.Model
	if m.Pretrained == "" {
		enc, err := bpe.Open(c.Data.Encoding)
		if err != nil {
			return transformer.Config{}, fmt.Errorf("data.encoding: %w", err)
		}
		t := Sized(m)
		t.BOS, t.EOS = []int{enc.EndOfText()}, []int{enc.EndOfText()}
		if t.Vocabulary == 0 {
			t.Vocabulary = roundUp(enc.Vocabulary(), 64) // whole tiles of a matrix product
		}
		return t, t.Validate()
	}
	t, err := transformer.ReadConfig(filepath.Join(m.Pretrained, transformer.ConfigName))
	switch {
	case err != nil:
		return t, fmt.Errorf("model.pretrained: %w", err)
	case t.Family != transformer.Family(m.Name):
		return t, fmt.Errorf("model.name=%s, and model.pretrained=%s is a %s: set model.name=%s", m.Name, m.Pretrained, t.Family, t.Family)
	case m.Context > t.Context:
		return t, fmt.Errorf("model.context=%d: model.pretrained=%s takes at most %d tokens", m.Context, m.Pretrained, t.Context)
	}
	t.EmbeddingDropout, t.ResidualDropout, t.AttentionDropout = 0, 0, 0
	return t, nil
}

// Sized returns the model of the sizes in m.
func Sized(m config.Model) transformer.Config {
	c := transformer.Config{
		Family: transformer.Family(m.Name), Vocabulary: m.Vocabulary, Context: m.Context, Width: m.Width, Layers: m.Layers, Heads: m.Heads,
		Inner: m.Inner, Tied: m.Tied, InitDeviation: m.InitStd,
	}
	if c.Inner == 0 {
		c.Inner = 4 * c.Width
	}
	if c.Family == transformer.Llama {
		c.KVHeads = m.KVHeads
		if m.Inner == 0 {
			c.Inner = roundUp((8*c.Width+2)/3, 32) // three matrices then have as many elements as two of 4 times the width
		}
	}
	return c
}

// roundUp returns the next multiple of unit.
func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }
