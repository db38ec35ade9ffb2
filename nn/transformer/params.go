package transformer

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Param is a parameter of a model, with the name and the layout of Hugging Face. A matrix of GPT2
// is stored [in, out], as its Conv1D; a matrix of Llama [out, in], as torch.nn.Linear.
type Param struct {
	Name  string // such as transformer.h.0.attn.c_attn.weight
	Shape []int

	center, deviation float64 // of the initial values, which are normally distributed
}

// len returns the number of elements.
func (p Param) len() int {
	n := 1
	for _, d := range p.Shape {
		n *= d
	}
	return n
}

// initial sets values to the initial ones, which depend on the seed and the parameter's number.
func (p Param) initial(values []float32, seed int64, number int) {
	if p.deviation == 0 {
		for i := range values {
			values[i] = float32(p.center)
		}
		return
	}
	rng := rand.New(rand.NewPCG(uint64(seed), uint64(number)))
	for i := range values {
		values[i] = float32(p.center + p.deviation*rng.NormFloat64())
	}
}

// The prefixes of the parameters inside the model that an output layer is added to. Files have
// names with or without them.
const (
	gpt2Prefix  = "transformer."
	llamaPrefix = "model."
	headName    = "lm_head.weight"
)

// prefix returns the prefix of the family.
func (c Config) prefix() string {
	if c.Family == GPT2 {
		return gpt2Prefix
	}
	return llamaPrefix
}

// embeddingName returns the name of the token embedding.
func (c Config) embeddingName() string {
	if c.Family == GPT2 {
		return gpt2Prefix + "wte.weight"
	}
	return llamaPrefix + "embed_tokens.weight"
}

// Params returns the parameters, in the order of Model.Params.
//
// Initial weights are those of Hugging Face: matrices and embeddings have deviation InitDeviation,
// biases are 0, gains of normalization 1. In GPT2 the two matrices of a block that are added to the
// residual stream have InitDeviation/sqrt(2*Layers) (Radford et al., 2019, section 2.3).
//
// Errors: those of Validate.
func (c Config) Params() ([]Param, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.filled()
	if c.Family == GPT2 {
		return c.gpt2Params(), nil
	}
	return c.llamaParams(), nil
}

func (c Config) gpt2Params() []Param {
	matrix := func(name string, shape ...int) Param { return Param{name, shape, 0, c.InitDeviation} }
	into := func(name string, in int) Param { // added to the residual stream
		return Param{name, []int{in, c.Width}, 0, c.InitDeviation / math.Sqrt(float64(2*c.Layers))}
	}
	vector := func(name string, center float64, n int) Param { return Param{name, []int{n}, center, 0} }
	all := []Param{
		matrix(gpt2Prefix+"wte.weight", c.Vocabulary, c.Width),
		matrix(gpt2Prefix+"wpe.weight", c.Context, c.Width),
	}
	for i := range c.Layers {
		h := fmt.Sprintf("%sh.%d.", gpt2Prefix, i)
		all = append(
			all,
			vector(h+"ln_1.weight", 1, c.Width), vector(h+"ln_1.bias", 0, c.Width),
			matrix(h+"attn.c_attn.weight", c.Width, 3*c.Width), vector(h+"attn.c_attn.bias", 0, 3*c.Width),
			into(h+"attn.c_proj.weight", c.Width), vector(h+"attn.c_proj.bias", 0, c.Width),
			vector(h+"ln_2.weight", 1, c.Width), vector(h+"ln_2.bias", 0, c.Width),
			matrix(h+"mlp.c_fc.weight", c.Width, c.Inner), vector(h+"mlp.c_fc.bias", 0, c.Inner),
			into(h+"mlp.c_proj.weight", c.Inner), vector(h+"mlp.c_proj.bias", 0, c.Width),
		)
	}
	all = append(all, vector(gpt2Prefix+"ln_f.weight", 1, c.Width), vector(gpt2Prefix+"ln_f.bias", 0, c.Width))
	return c.withHead(all)
}

func (c Config) llamaParams() []Param {
	matrix := func(name string, out, in int) Param { return Param{name, []int{out, in}, 0, c.InitDeviation} }
	gain := func(name string) Param { return Param{name, []int{c.Width}, 1, 0} }
	queries, keys := c.Heads*c.HeadWidth, c.KVHeads*c.HeadWidth
	all := []Param{matrix(llamaPrefix+"embed_tokens.weight", c.Vocabulary, c.Width)}
	for i := range c.Layers {
		l := fmt.Sprintf("%slayers.%d.", llamaPrefix, i)
		all = append(
			all,
			gain(l+"input_layernorm.weight"),
			matrix(l+"self_attn.q_proj.weight", queries, c.Width),
			matrix(l+"self_attn.k_proj.weight", keys, c.Width),
			matrix(l+"self_attn.v_proj.weight", keys, c.Width),
			matrix(l+"self_attn.o_proj.weight", c.Width, queries),
			gain(l+"post_attention_layernorm.weight"),
			matrix(l+"mlp.gate_proj.weight", c.Inner, c.Width),
			matrix(l+"mlp.up_proj.weight", c.Inner, c.Width),
			matrix(l+"mlp.down_proj.weight", c.Width, c.Inner),
		)
	}
	return c.withHead(append(all, gain(llamaPrefix+"norm.weight")))
}

// withHead appends the output layer, unless it is the token embedding.
func (c Config) withHead(all []Param) []Param {
	if c.Tied {
		return all
	}
	return append(all, Param{headName, []int{c.Vocabulary, c.Width}, 0, c.InitDeviation})
}

// Parameters returns the number of elements of all parameters; 0 for an invalid c.
func (c Config) Parameters() int {
	all, err := c.Params()
	if err != nil {
		return 0
	}
	n := 0
	for _, p := range all {
		n += p.len()
	}
	return n
}
