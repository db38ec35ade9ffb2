package transformer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/foreign"
)

// ConfigName is the name of a configuration in a folder of Hugging Face.
const ConfigName = "config.json"

// maxConfig is the largest config.json in bytes.
const maxConfig = 1 << 20

// ReadConfig reads a config.json.
//
// Errors: those of ParseConfig, with the path, and of the file system.
func ReadConfig(path string) (Config, error) {
	text, err := foreign.ReadFile(path, maxConfig)
	if err != nil {
		return Config{}, fmt.Errorf("transformer: %w", err)
	}
	c, err := ParseConfig(text)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// ParseConfig returns the Config of a config.json with model_type gpt2 or llama. Missing fields
// have the defaults of Hugging Face.
//
// Errors: dist.ErrInvalid for text of another form; dist.ErrUnsupported for another model_type, and
// for a field whose value changes the results in a way that this package does not compute, or that
// is unknown here and not off (null, false, 0 or empty), naming it.
func ParseConfig(text []byte) (Config, error) {
	r := &fields{}
	if err := json.Unmarshal(text, &r.left); err != nil {
		return Config{}, fmt.Errorf("transformer: %w: it is no JSON object: %w", dist.ErrInvalid, err)
	}
	var c Config
	r.take("model_type", &c.Family)
	switch c.Family {
	case GPT2:
		c.readGPT2(r)
	case Llama:
		c.readLlama(r)
	case "":
		r.fail(dist.ErrInvalid, "model_type is missing: want %s or %s", GPT2, Llama)
	default:
		r.fail(dist.ErrUnsupported, "model_type is %q: only %s and %s are supported", c.Family, GPT2, Llama)
	}
	r.token("bos_token_id", &c.BOS)
	r.token("eos_token_id", &c.EOS)
	r.rest()
	if r.err != nil {
		return Config{}, fmt.Errorf("transformer: %w", r.err)
	}
	if err := c.Validate(); err != nil {
		return Config{}, err
	}
	return c.filled(), nil
}

func (c *Config) readGPT2(r *fields) {
	c.Vocabulary, c.Context, c.Width, c.Layers, c.Heads = 50257, 1024, 768, 12, 12 // of GPT2Config
	c.Tied, c.EmbeddingDropout, c.ResidualDropout, c.AttentionDropout = true, 0.1, 0.1, 0.1
	c.Activation, c.BOS, c.EOS = GELUTanh, []int{50256}, []int{50256}
	r.take("vocab_size", &c.Vocabulary)
	r.take("n_positions", &c.Context)
	r.take("n_embd", &c.Width)
	r.take("n_layer", &c.Layers)
	r.take("n_head", &c.Heads)
	r.take("n_inner", &c.Inner)
	r.take("activation_function", &c.Activation)
	if c.Activation == "gelu_pytorch_tanh" { // the same function under another name
		c.Activation = GELUTanh
	}
	if c.Activation != GELUTanh && c.Activation != GELU {
		r.fail(dist.ErrUnsupported, "activation_function is %q: only gelu_new, gelu_pytorch_tanh and gelu are supported", c.Activation)
	}
	r.take("layer_norm_epsilon", &c.Epsilon)
	r.take("initializer_range", &c.InitDeviation)
	r.take("tie_word_embeddings", &c.Tied)
	r.take("embd_pdrop", &c.EmbeddingDropout)
	r.take("resid_pdrop", &c.ResidualDropout)
	r.take("attn_pdrop", &c.AttentionDropout)
	old := c.Context
	r.take("n_ctx", &old)
	if old != c.Context {
		r.fail(dist.ErrUnsupported, "n_ctx is %d and n_positions %d: want one number, or no n_ctx", old, c.Context)
	}
	need(r, "scale_attn_weights", true)
	need(r, "scale_attn_by_inverse_layer_idx", false)
	r.drop("reorder_and_upcast_attn") // scores are always computed in float32
	for key := range r.left {
		if strings.HasPrefix(key, "summary_") {
			r.drop(key)
		}
	}
}

func (c *Config) readLlama(r *fields) {
	c.Vocabulary, c.Context, c.Width, c.Layers, c.Heads, c.Inner = 32000, 2048, 4096, 32, 32, 11008 // of LlamaConfig
	c.BOS, c.EOS = []int{1}, []int{2}
	r.take("vocab_size", &c.Vocabulary)
	r.take("max_position_embeddings", &c.Context)
	r.take("hidden_size", &c.Width)
	r.take("num_hidden_layers", &c.Layers)
	r.take("num_attention_heads", &c.Heads)
	r.take("num_key_value_heads", &c.KVHeads)
	r.take("head_dim", &c.HeadWidth)
	r.take("intermediate_size", &c.Inner)
	r.take("rms_norm_eps", &c.Epsilon)
	r.take("initializer_range", &c.InitDeviation)
	r.take("tie_word_embeddings", &c.Tied)
	r.take("attention_dropout", &c.AttentionDropout)
	r.take("rope_theta", &c.RopeTheta)
	r.rope("rope_scaling", &c.RopeTheta)
	r.rope("rope_parameters", &c.RopeTheta)
	activation := "silu"
	if r.take("hidden_act", &activation); activation != "silu" && activation != "swish" {
		r.fail(dist.ErrUnsupported, "hidden_act is %q: only silu is supported", activation)
	}
	need(r, "attention_bias", false)
	need(r, "mlp_bias", false)
	need(r, "partial_rotary_factor", 1.0)
	r.drop("pretraining_tp") // the order of a sum
}

// without lists fields without an effect on the results: names, versions, settings of programs that
// generate text, and of other outputs.
var without = []string{
	"_attn_implementation", "_attn_implementation_autoset", "_name_or_path", "architectures", "auto_map", "chunk_size_feed_forward",
	"dtype", "finetuning_task", "gradient_checkpointing", "id2label", "is_decoder", "keys_to_ignore_at_inference", "label2id",
	"output_attentions", "output_hidden_states", "pad_token_id", "prefix", "problem_type", "return_dict", "sep_token_id",
	"task_specific_params", "tf_legacy_loss", "tokenizer_class", "torch_dtype", "torchscript", "transformers_version", "use_bfloat16",
	"use_cache", "use_return_dict",
}

// fields are the fields of a config.json that are not read yet.
type fields struct {
	left map[string]json.RawMessage
	err  error // the first one
}

func (r *fields) fail(kind error, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %w", kind, fmt.Errorf(format, args...))
	}
}

// take sets *to to a field. A missing field and null leave it.
func (r *fields) take(name string, to any) {
	text, there := r.left[name]
	delete(r.left, name)
	if !there || string(text) == "null" {
		return
	}
	if err := json.Unmarshal(text, to); err != nil {
		r.fail(dist.ErrInvalid, "%s is %s: %w", name, short(text), err)
	}
}

// drop ignores a field.
func (r *fields) drop(name string) { delete(r.left, name) }

// token reads a number of a token, or several.
func (r *fields) token(name string, to *[]int) {
	text, there := r.left[name]
	delete(r.left, name)
	var one int
	switch {
	case !there:
	case string(text) == "null":
		*to = nil
	case json.Unmarshal(text, &one) == nil:
		*to = []int{one}
	default:
		*to = nil
		if err := json.Unmarshal(text, to); err != nil {
			r.fail(dist.ErrInvalid, "%s is %s: want a number or a list of numbers", name, short(text))
		}
	}
}

// rope reads the parameters of rotary positions, which must be plain ones.
func (r *fields) rope(name string, theta *float64) {
	var all map[string]json.RawMessage
	r.take(name, &all)
	inner := &fields{left: all}
	inner.take("rope_theta", theta)
	for _, key := range []string{"rope_type", "type"} {
		need(inner, key, "default")
	}
	need(inner, "partial_rotary_factor", 1.0)
	if kind := slices.Sorted(maps.Keys(inner.left)); inner.err == nil && len(kind) > 0 {
		inner.fail(dist.ErrUnsupported, "%s is unknown here", kind[0])
	}
	if inner.err != nil && r.err == nil {
		r.err = fmt.Errorf("%s: %w: only plain rotary positions are supported", name, inner.err)
	}
}

// need refuses a field with another value.
func need[T comparable](r *fields, name string, value T) {
	got := value
	if r.take(name, &got); got != value {
		r.fail(dist.ErrUnsupported, "%s is %v: only %v is supported", name, got, value)
	}
}

// rest refuses the fields that are left, except those without an effect.
func (r *fields) rest() {
	for _, name := range slices.Sorted(maps.Keys(r.left)) {
		text := string(bytes.TrimSpace(r.left[name]))
		off := slices.Contains([]string{"null", "false", "0", "0.0", `""`, "[]", "{}"}, text)
		if !off && !slices.Contains(without, name) {
			r.fail(dist.ErrUnsupported, "field %s is unknown here and may change the results: its value is %s; remove it if it has no effect", name, short(r.left[name]))
		}
	}
}

// short returns the start of a text.
func short(text []byte) string {
	if len(text) > 60 {
		return string(text[:60]) + "..."
	}
	return string(text)
}
