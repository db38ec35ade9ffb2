package transformer

import (
	"encoding/json"
	"fmt"

	"github.com/symgrad/symgrad/dist"
)

// gpt2JSON is a config.json of model_type gpt2.
type gpt2JSON struct {
	Architectures    []string `json:"architectures"`
	ModelType        Family   `json:"model_type"`
	Vocabulary       int      `json:"vocab_size"`
	Context          int      `json:"n_positions"`
	Width            int      `json:"n_embd"`
	Layers           int      `json:"n_layer"`
	Heads            int      `json:"n_head"`
	Inner            int      `json:"n_inner"`
	Activation       string   `json:"activation_function"`
	Epsilon          float64  `json:"layer_norm_epsilon"`
	InitDeviation    float64  `json:"initializer_range"`
	EmbeddingDropout float64  `json:"embd_pdrop"`
	ResidualDropout  float64  `json:"resid_pdrop"`
	AttentionDropout float64  `json:"attn_pdrop"`
	Tied             bool     `json:"tie_word_embeddings"`
	BOS              any      `json:"bos_token_id"`
	EOS              any      `json:"eos_token_id"`
	DType            string   `json:"torch_dtype"`
}

// llamaJSON is a config.json of model_type llama.
type llamaJSON struct {
	Architectures    []string `json:"architectures"`
	ModelType        Family   `json:"model_type"`
	Vocabulary       int      `json:"vocab_size"`
	Context          int      `json:"max_position_embeddings"`
	Width            int      `json:"hidden_size"`
	Layers           int      `json:"num_hidden_layers"`
	Heads            int      `json:"num_attention_heads"`
	KVHeads          int      `json:"num_key_value_heads"`
	HeadWidth        int      `json:"head_dim"`
	Inner            int      `json:"intermediate_size"`
	Activation       string   `json:"hidden_act"`
	Epsilon          float64  `json:"rms_norm_eps"`
	RopeTheta        float64  `json:"rope_theta"`
	InitDeviation    float64  `json:"initializer_range"`
	AttentionDropout float64  `json:"attention_dropout"`
	AttentionBias    bool     `json:"attention_bias"`
	PerceptronBias   bool     `json:"mlp_bias"`
	Tied             bool     `json:"tie_word_embeddings"`
	BOS              any      `json:"bos_token_id"`
	EOS              any      `json:"eos_token_id"`
	DType            string   `json:"torch_dtype"`
}

// JSON returns c as a config.json that the transformers library reads.
//
// Errors: those of Validate; dist.ErrUnsupported for dropout that a Llama does not have.
func (c Config) JSON() ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.filled()
	if c.Family == Llama && (c.EmbeddingDropout != 0 || c.ResidualDropout != 0) {
		return nil, fmt.Errorf("transformer: %w: a config.json of %s has only attention_dropout: set EmbeddingDropout and ResidualDropout to 0", dist.ErrUnsupported, Llama)
	}
	var v any = gpt2JSON{
		[]string{"GPT2LMHeadModel"},
		GPT2, c.Vocabulary, c.Context, c.Width, c.Layers, c.Heads, c.Inner, c.Activation,
		c.Epsilon, c.InitDeviation, c.EmbeddingDropout, c.ResidualDropout, c.AttentionDropout, c.Tied, tokens(c.BOS), tokens(c.EOS), "float32",
	}
	if c.Family == Llama {
		v = llamaJSON{
			[]string{"LlamaForCausalLM"},
			Llama, c.Vocabulary, c.Context, c.Width, c.Layers, c.Heads, c.KVHeads, c.HeadWidth, c.Inner, "silu",
			c.Epsilon, c.RopeTheta, c.InitDeviation, c.AttentionDropout, false, false, c.Tied, tokens(c.BOS), tokens(c.EOS), "float32",
		}
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("transformer: %w", err)
	}
	return append(text, '\n'), nil
}

// Annotations returns c for the Extra values of checkpoints.
//
// Errors: those of JSON.
func (c Config) Annotations() (map[string]json.RawMessage, error) {
	text, err := c.JSON()
	if err != nil {
		return nil, err
	}
	return map[string]json.RawMessage{ConfigKey: text}, nil
}

// tokens returns null, a number, or a list.
func tokens(all []int) any {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return all
}
