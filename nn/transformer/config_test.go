package transformer

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
)

// gpt2Text is a config.json of gpt2 as transformers 4 writes it, for a small model.
const gpt2Text = `{
  "activation_function": "gelu_new",
  "architectures": ["GPT2LMHeadModel"],
  "attn_pdrop": 0.1,
  "bos_token_id": 50256,
  "embd_pdrop": 0.2,
  "eos_token_id": 50256,
  "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05,
  "model_type": "gpt2",
  "n_ctx": 16,
  "n_embd": 8,
  "n_head": 2,
  "n_inner": null,
  "n_layer": 2,
  "n_positions": 16,
  "reorder_and_upcast_attn": false,
  "resid_pdrop": 0.3,
  "scale_attn_by_inverse_layer_idx": false,
  "scale_attn_weights": true,
  "summary_activation": null,
  "summary_first_dropout": 0.1,
  "summary_proj_to_labels": true,
  "summary_type": "cls_index",
  "summary_use_proj": true,
  "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
  "torch_dtype": "float32",
  "transformers_version": "4.57.1",
  "use_cache": true,
  "vocab_size": 11
}`

// llamaText is a config.json of llama as transformers 5 writes it.
const llamaText = `{
  "architectures": ["LlamaForCausalLM"],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "bos_token_id": 1,
  "dtype": "float32",
  "eos_token_id": [2, 3],
  "head_dim": 4,
  "hidden_act": "silu",
  "hidden_size": 8,
  "initializer_range": 0.02,
  "intermediate_size": 12,
  "max_position_embeddings": 16,
  "mlp_bias": false,
  "model_type": "llama",
  "num_attention_heads": 4,
  "num_hidden_layers": 2,
  "num_key_value_heads": 2,
  "pad_token_id": null,
  "pretraining_tp": 1,
  "rms_norm_eps": 1e-06,
  "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},
  "tie_word_embeddings": false,
  "transformers_version": "5.0.0",
  "use_cache": true,
  "vocab_size": 11
}`

func parse(t *testing.T, text string) Config {
	t.Helper()
	c, err := ParseConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConfigOfHuggingFaceIsRead(t *testing.T) {
	want := Config{
		Family: GPT2, Vocabulary: 11, Context: 16, Width: 8, Layers: 2, Heads: 2, KVHeads: 2, HeadWidth: 4, Inner: 32, Tied: true,
		Activation: GELUTanh, Epsilon: 1e-5, InitDeviation: 0.02, EmbeddingDropout: 0.2, ResidualDropout: 0.3, AttentionDropout: 0.1,
		BOS: []int{50256}, EOS: []int{50256},
	}
	if got := parse(t, gpt2Text); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	want = Config{
		Family: Llama, Vocabulary: 11, Context: 16, Width: 8, Layers: 2, Heads: 4, KVHeads: 2, HeadWidth: 4, Inner: 12,
		Epsilon: 1e-6, RopeTheta: 500000, InitDeviation: 0.02, BOS: []int{1}, EOS: []int{2, 3},
	}
	if got := parse(t, llamaText); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	old := strings.Replace(llamaText, `"rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}`, `"rope_scaling": null, "rope_theta": 500000.0`, 1)
	if got := parse(t, old); !reflect.DeepEqual(got, want) {
		t.Errorf("of transformers 4: %+v, want %+v", got, want)
	}
}

// The defaults are those of GPT2Config and LlamaConfig.
func TestMissingFieldsHaveTheirDefaults(t *testing.T) {
	c := parse(t, `{"model_type": "gpt2"}`)
	want := GPT2Small()
	want.EmbeddingDropout, want.ResidualDropout, want.AttentionDropout = 0.1, 0.1, 0.1
	if !reflect.DeepEqual(c, want) || c.Parameters() != 124_439_808 {
		t.Errorf("%+v with %d parameters, want %+v with 124,439,808", c, c.Parameters(), want)
	}
	c = parse(t, `{"model_type": "llama"}`)
	if c.KVHeads != 32 || c.HeadWidth != 128 || c.RopeTheta != 10000 || c.Tied || c.Epsilon != 1e-6 || c.Parameters() != 6_738_415_616 {
		t.Errorf("%+v with %d parameters, want Llama's 6,738,415,616", c, c.Parameters())
	}
}

func TestConfigComesBackFromItsJSON(t *testing.T) {
	for _, text := range []string{gpt2Text, llamaText} {
		c := parse(t, text)
		c.BOS = nil
		out, err := c.JSON()
		if err != nil {
			t.Fatal(err)
		}
		if back := parse(t, string(out)); !reflect.DeepEqual(back, c) {
			t.Errorf("%+v came back as %+v", c, back)
		}
	}
	c := parse(t, llamaText)
	c.ResidualDropout = 0.1
	if _, err := c.JSON(); !errors.Is(err, dist.ErrUnsupported) {
		t.Errorf("a Llama with residual dropout: %v", err)
	}
}

func TestFieldsThatChangeResultsAreRefusedByName(t *testing.T) {
	for _, test := range []struct{ text, old, put, want string }{
		{gpt2Text, `"model_type": "gpt2"`, `"model_type": "gpt_neox"`, `model_type is "gpt_neox": only gpt2 and llama`},
		{gpt2Text, `"model_type": "gpt2",`, ``, "model_type is missing"},
		{gpt2Text, `"gelu_new"`, `"relu"`, `activation_function is "relu"`},
		{gpt2Text, `"scale_attn_weights": true`, `"scale_attn_weights": false`, "scale_attn_weights is false: only true"},
		{gpt2Text, `"scale_attn_by_inverse_layer_idx": false`, `"scale_attn_by_inverse_layer_idx": true`, "scale_attn_by_inverse_layer_idx is true"},
		{gpt2Text, `"n_ctx": 16`, `"n_ctx": 32`, "n_ctx is 32 and n_positions 16"},
		{gpt2Text, `"n_embd": 8`, `"n_embd": 9`, "2 heads do not divide the width, 9"},
		{gpt2Text, `"n_layer": 2`, `"n_layer": 0`, "Layers is 0"},
		{gpt2Text, `"n_layer": 2`, `"n_layer": "2"`, `n_layer is "2"`},
		{gpt2Text, `"use_cache": true`, `"add_cross_attention": true`, "field add_cross_attention is unknown here"},
		{gpt2Text, `"use_cache": true`, `"quantization_config": {"bits": 4}`, "field quantization_config is unknown here"},
		{llamaText, `"rope_type": "default"`, `"rope_type": "llama3", "factor": 8.0`, "rope_parameters: not supported: rope_type is llama3"},
		{llamaText, `"rope_type": "default"`, `"factor": 8.0`, "rope_parameters: not supported: factor is unknown here"},
		{llamaText, `"attention_bias": false`, `"attention_bias": true`, "attention_bias is true: only false"},
		{llamaText, `"mlp_bias": false`, `"mlp_bias": true`, "mlp_bias is true"},
		{llamaText, `"hidden_act": "silu"`, `"hidden_act": "gelu"`, `hidden_act is "gelu"`},
		{llamaText, `"num_key_value_heads": 2`, `"num_key_value_heads": 3`, "3 heads of keys and values do not divide the 4 heads"},
		{llamaText, `"head_dim": 4`, `"head_dim": 5`, "rotary positions need an even number"},
		{llamaText, `"use_cache": true`, `"sliding_window": 4096`, "field sliding_window is unknown here and may change the results: its value is 4096"},
		{llamaText, `"eos_token_id": [2, 3]`, `"eos_token_id": "end"`, "eos_token_id is"},
		{llamaText, `{`, `[`, "no JSON object"},
	} {
		text := strings.Replace(test.text, test.old, test.put, 1)
		if text == test.text {
			t.Fatalf("%q is not in the text", test.old)
		}
		_, err := ParseConfig([]byte(text))
		if err == nil || !strings.Contains(err.Error(), test.want) || !errors.Is(err, dist.ErrInvalid) && !errors.Is(err, dist.ErrUnsupported) {
			t.Errorf("%s: %v, want %q", test.put, err, test.want)
		}
	}
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadConfig(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v does not name the file", err)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for _, test := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Family = "bert" }, `family "bert"`},
		{func(c *Config) { c.Vocabulary = -1 }, "Vocabulary is -1"},
		{func(c *Config) { c.Context = 1 << 40 }, "Context is"},
		{func(c *Config) { c.KVHeads = 1 }, "only llama has grouped queries"},
		{func(c *Config) { c.Epsilon = -1 }, "Epsilon is -1"},
		{func(c *Config) { c.ResidualDropout = 1 }, "ResidualDropout is 1"},
		{func(c *Config) { c.Activation = "relu" }, `activation "relu"`},
	} {
		c := GPT2Small()
		test.change(&c)
		err := c.Validate()
		if !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want %q", err, test.want)
		}
		if c.Parameters() != 0 {
			t.Errorf("%s: an invalid configuration has parameters", test.want)
		}
	}
}
