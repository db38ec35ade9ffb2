package transformer

import (
	"fmt"

	G "gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/nn"
)

// network adds the nodes of m after its parameters.
func (b *builder) network(m *Model) {
	m.Tokens = b.input("tokens", b.o.Batch, b.o.Tokens)
	x := b.do(func() (*G.Node, error) { return nn.Embedding(b.params[b.embeddingName()], m.Tokens) })
	if b.Family == GPT2 {
		x = b.gpt2(x)
	} else {
		x = b.llama(x)
	}
	rows := b.o.Batch * b.o.Tokens
	x = b.reshape(x, rows, b.Width)
	if n := b.o.Positions; n > 0 {
		m.Positions = b.input("positions", n)
		x = b.do(func() (*G.Node, error) { return nn.Embedding(x, m.Positions) })
	}
	head := b.params[headName]
	if b.Tied {
		head = b.params[b.embeddingName()]
	}
	m.Logits = b.linear(x, b.transposed(head), nil)
	if !b.o.Train {
		return
	}
	m.Targets = b.input("targets", rows)
	weight := b.transposed(head)
	m.Cost = b.do(func() (*G.Node, error) {
		return nn.LinearCrossEntropy(x, weight, m.Targets, nn.CrossEntropyConfig{}) // which ignores Ignored
	})
}

// gpt2 returns the tokens after all blocks and the last normalization.
func (b *builder) gpt2(x *G.Node) *G.Node {
	positions := b.reshape(b.slice(b.params[gpt2Prefix+"wpe.weight"], 0, 0, b.o.Tokens), 1, b.o.Tokens, b.Width)
	x = b.do(func() (*G.Node, error) { return G.BroadcastAdd(x, positions, nil, []byte{0}) })
	x = b.dropout(x, b.EmbeddingDropout)
	for i := range b.Layers {
		h := fmt.Sprintf("%sh.%d.", gpt2Prefix, i)
		x = b.add(x, b.dropout(b.gpt2Attention(h+"attn.", b.layerNorm(h+"ln_1.", x)), b.ResidualDropout))
		x = b.add(x, b.dropout(b.gpt2Perceptron(h+"mlp.", b.layerNorm(h+"ln_2.", x)), b.ResidualDropout))
	}
	return b.layerNorm(gpt2Prefix+"ln_f.", x)
}

// gpt2Attention returns causal self-attention. The columns of c_attn are those of queries, keys and
// values. Slices of the weight are small, unlike slices of its product.
func (b *builder) gpt2Attention(name string, x *G.Node) *G.Node {
	weight, bias := b.params[name+"c_attn.weight"], b.params[name+"c_attn.bias"]
	weights, biases := b.reshape(weight, b.Width, 3, b.Width), b.reshape(bias, 3, b.Width)
	part := func(i int) *G.Node {
		w, c := b.slice(weights, 1, i, i+1), b.slice(biases, 0, i, i+1)
		return b.linear(x, b.reshape(w, b.Width, b.Width), b.reshape(c, b.Width))
	}
	return b.named(name+"c_proj.", b.attention(part(0), part(1), part(2)))
}

func (b *builder) gpt2Perceptron(name string, x *G.Node) *G.Node {
	x = b.named(name+"c_fc.", x)
	x = b.do(func() (*G.Node, error) {
		if b.Activation == GELU {
			return nn.GELU(x)
		}
		return nn.GELUTanh(x)
	})
	return b.named(name+"c_proj.", x)
}

// llama returns the tokens after all blocks and the last normalization.
func (b *builder) llama(x *G.Node) *G.Node {
	for i := range b.Layers {
		l := fmt.Sprintf("%slayers.%d.", llamaPrefix, i)
		x = b.add(x, b.llamaAttention(l+"self_attn.", b.rmsNorm(l+"input_layernorm.weight", x)))
		x = b.add(x, b.llamaPerceptron(l+"mlp.", b.rmsNorm(l+"post_attention_layernorm.weight", x)))
	}
	return b.rmsNorm(llamaPrefix+"norm.weight", x)
}

// llamaAttention returns causal self-attention of rotated queries and keys.
func (b *builder) llamaAttention(name string, x *G.Node) *G.Node {
	q := b.rotated(b.projection(name+"q_proj.weight", x), b.Heads)
	k := b.rotated(b.projection(name+"k_proj.weight", x), b.KVHeads)
	return b.projection(name+"o_proj.weight", b.attention(q, k, b.projection(name+"v_proj.weight", x)))
}

func (b *builder) llamaPerceptron(name string, x *G.Node) *G.Node {
	gate, up := b.projection(name+"gate_proj.weight", x), b.projection(name+"up_proj.weight", x)
	return b.projection(name+"down_proj.weight", b.do(func() (*G.Node, error) { return nn.SwiGLU(gate, up) }))
}

// rotated returns x with rotary positions.
func (b *builder) rotated(x *G.Node, heads int) *G.Node {
	return b.do(func() (*G.Node, error) { return nn.RoPE(x, nn.RoPEConfig{Heads: heads, Base: b.RopeTheta}) })
}

func (b *builder) attention(q, k, v *G.Node) *G.Node {
	return b.do(func() (*G.Node, error) {
		return nn.Attention(q, k, v, nn.AttentionConfig{Heads: b.Heads, KVHeads: b.KVHeads, Causal: true})
	})
}

// linear returns x times w plus bias, which may be nil.
func (b *builder) linear(x, w, bias *G.Node) *G.Node {
	return b.do(func() (*G.Node, error) { return nn.Linear(x, w, bias) })
}

// named returns the linear layer of a Conv1D: [in, out].
func (b *builder) named(name string, x *G.Node) *G.Node {
	return b.linear(x, b.params[name+"weight"], b.params[name+"bias"])
}

// projection returns the linear layer of a torch.nn.Linear: [out, in].
func (b *builder) projection(name string, x *G.Node) *G.Node {
	return b.linear(x, b.transposed(b.params[name]), nil)
}

func (b *builder) transposed(w *G.Node) *G.Node {
	return b.do(func() (*G.Node, error) { return G.Transpose(w, 1, 0) })
}

func (b *builder) layerNorm(name string, x *G.Node) *G.Node {
	return b.do(func() (*G.Node, error) {
		return nn.LayerNorm(x, b.params[name+"weight"], b.params[name+"bias"], b.Epsilon)
	})
}

func (b *builder) rmsNorm(name string, x *G.Node) *G.Node {
	return b.do(func() (*G.Node, error) { return nn.RMSNorm(x, b.params[name], b.Epsilon) })
}

// dropout returns x with dropout in training.
func (b *builder) dropout(x *G.Node, p float64) *G.Node {
	if !b.o.Train || p == 0 {
		return x
	}
	return b.do(func() (*G.Node, error) { return nn.Dropout(x, p) })
}

func (b *builder) add(x, y *G.Node) *G.Node {
	return b.do(func() (*G.Node, error) { return G.Add(x, y) })
}

func (b *builder) reshape(x *G.Node, shape ...int) *G.Node {
	return b.do(func() (*G.Node, error) { return nn.Reshape(x, shape...) })
}

// slice returns a part of an axis.
func (b *builder) slice(x *G.Node, axis, first, end int) *G.Node {
	if b.err == nil && first == 0 && end == x.Shape()[axis] {
		return x
	}
	return b.do(func() (*G.Node, error) { return nn.Slice(x, axis, first, end) })
}
