package transformer

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
)

// Family is a kind of model, the model_type of a config.json.
type Family string

// The families.
const (
	// GPT2 has layer normalization, learned positions, a GELU, and biases (Radford et al., Language
	// Models are Unsupervised Multitask Learners, 2019).
	GPT2 Family = "gpt2"
	// Llama has RMS normalization, rotary positions, SwiGLU, grouped queries, and no biases
	// (Touvron et al., LLaMA, 2023; Llama 2, 2023).
	Llama Family = "llama"
)

// The activations of a GPT2.
const (
	GELUTanh = "gelu_new" // approximated by tanh, as GPT-2 uses it
	GELU     = "gelu"     // exact
)

// Config is the shape of a model, and corresponds to a config.json of Hugging Face. The comments
// have the names of its fields, of gpt2 and of llama.
type Config struct {
	Family     Family // model_type
	Vocabulary int    // vocab_size
	Context    int    // most tokens of a sample: n_positions; max_position_embeddings
	Width      int    // features of a token: n_embd; hidden_size
	Layers     int    // blocks: n_layer; num_hidden_layers
	Heads      int    // attention heads of a block: n_head; num_attention_heads
	KVHeads    int    // heads of keys and values, a divisor of Heads; 0 means Heads: num_key_value_heads
	HeadWidth  int    // features of a head; 0 means Width/Heads: head_dim
	Inner      int    // width inside the perceptron; 0 means 4*Width for GPT2: n_inner; intermediate_size
	Tied       bool   // the output layer is the token embedding: tie_word_embeddings
	Activation string // of GPT2; "" means GELUTanh: activation_function

	Epsilon       float64 // of normalization; 0 means 1e-5, for Llama 1e-6: layer_norm_epsilon; rms_norm_eps
	RopeTheta     float64 // base of the rotary positions; 0 means 10000: rope_theta
	InitDeviation float64 // standard deviation of initial weights; 0 means 0.02: initializer_range

	// Probabilities of dropout in training. They do not change the results of a trained model.
	EmbeddingDropout float64 // embd_pdrop
	ResidualDropout  float64 // resid_pdrop
	AttentionDropout float64 // attn_pdrop; attention_dropout

	BOS, EOS []int // tokens before and after a text; empty for none: bos_token_id, eos_token_id
}

// GPT2Small returns the shape of GPT-2 with 124 million parameters. Larger ones have 24, 36 and 48
// layers, of width 1024, 1280 and 1600, with 16, 20 and 25 heads.
func GPT2Small() Config {
	return Config{
		Family: GPT2, Vocabulary: 50257, Context: 1024, Width: 768, Layers: 12, Heads: 12, Tied: true,
		BOS: []int{50256}, EOS: []int{50256},
	}.filled()
}

// filled returns c with the defaults for its zero fields.
func (c Config) filled() Config {
	def(&c.KVHeads, c.Heads)
	if c.Heads > 0 {
		def(&c.HeadWidth, c.Width/c.Heads)
	}
	def(&c.InitDeviation, 0.02)
	if c.Family == GPT2 {
		def(&c.Inner, 4*c.Width)
		def(&c.Activation, GELUTanh)
		def(&c.Epsilon, 1e-5)
		return c
	}
	def(&c.Epsilon, 1e-6)
	def(&c.RopeTheta, 10000)
	return c
}

// def sets *to if it is zero.
func def[T comparable](to *T, value T) {
	var zero T
	if *to == zero {
		*to = value
	}
}

// most is the limit of a size, against overflow.
const most = 1 << 24

// Validate checks c.
//
// Errors: dist.ErrInvalid naming the field.
func (c Config) Validate() error {
	if c.Family != GPT2 && c.Family != Llama {
		return fmt.Errorf("transformer: %w: family %q: use %s or %s", dist.ErrInvalid, c.Family, GPT2, Llama)
	}
	c = c.filled()
	for _, f := range []struct {
		name string
		size int
	}{
		{"Vocabulary", c.Vocabulary},
		{"Context", c.Context},
		{"Width", c.Width},
		{"Layers", c.Layers},
		{"Heads", c.Heads},
		{"KVHeads", c.KVHeads},
		{"HeadWidth", c.HeadWidth},
		{"Inner", c.Inner},
	} {
		if f.size < 1 || f.size > most {
			return fmt.Errorf("transformer: %w: %s is %d; want 1 to %d", dist.ErrInvalid, f.name, f.size, most)
		}
	}
	if err := c.validateHeads(); err != nil {
		return fmt.Errorf("transformer: %w: %w", dist.ErrInvalid, err)
	}
	return c.validateNumbers()
}

// validateHeads checks the division of a token into heads.
func (c Config) validateHeads() error {
	switch {
	case c.Family == GPT2 && c.Heads*c.HeadWidth != c.Width:
		return fmt.Errorf("%d heads do not divide the width, %d", c.Heads, c.Width)
	case c.Family == GPT2 && c.KVHeads != c.Heads:
		return fmt.Errorf("KVHeads is %d and Heads %d: only %s has grouped queries", c.KVHeads, c.Heads, Llama)
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("%d heads of keys and values do not divide the %d heads", c.KVHeads, c.Heads)
	case c.Family == Llama && c.HeadWidth%2 != 0:
		return fmt.Errorf("HeadWidth is %d: rotary positions need an even number", c.HeadWidth)
	}
	return nil
}

// validateNumbers checks fractions and names.
func (c Config) validateNumbers() error {
	for _, f := range []struct {
		name string
		x    float64
		ok   bool
	}{
		{"Epsilon", c.Epsilon, c.Epsilon > 0 && c.Epsilon < 1},
		{"RopeTheta", c.RopeTheta, c.Family == GPT2 || c.RopeTheta > 1 && c.RopeTheta < 1e12},
		{"InitDeviation", c.InitDeviation, c.InitDeviation > 0 && c.InitDeviation < 1e3},
		{"EmbeddingDropout", c.EmbeddingDropout, c.EmbeddingDropout >= 0 && c.EmbeddingDropout < 1},
		{"ResidualDropout", c.ResidualDropout, c.ResidualDropout >= 0 && c.ResidualDropout < 1},
		{"AttentionDropout", c.AttentionDropout, c.AttentionDropout >= 0 && c.AttentionDropout < 1},
	} {
		if !f.ok {
			return fmt.Errorf("transformer: %w: %s is %v, out of range", dist.ErrInvalid, f.name, f.x)
		}
	}
	if c.Family == GPT2 && c.Activation != GELUTanh && c.Activation != GELU {
		return fmt.Errorf("transformer: %w: activation %q: use %s or %s", dist.ErrInvalid, c.Activation, GELUTanh, GELU)
	}
	return nil
}
