package nn

import (
	"fmt"
	"math"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/nnop"
)

// AttentionConfig holds the settings of Attention.
type AttentionConfig struct {
	Heads   int     // of the queries; at least 1
	KVHeads int     // of keys and values, a divisor of Heads; 0 means Heads
	Causal  bool    // a token attends to itself and to earlier tokens only
	Scale   float64 // of the scores; 0 means 1/sqrt(depth of a head)
}

// Attention returns, for each head of the queries,
//
//	softmax(scale * q kᵀ + mask) v
//
// where the mask is -inf for later tokens with Causal, and else 0. That is
// torch.nn.functional.scaled_dot_product_attention, with enable_gqa for fewer heads of keys and
// values: head h of the queries uses head h / (Heads/KVHeads) of these (Ainslie et al., GQA, 2023).
// Keys and values are not copied for that.
//
// On a GPU with Compute bf16, tokens that are a multiple of 64 and a depth of 32, 64 or 128,
// package machine needs no memory for scores.
//
// Shapes: q is (batch, tokens, Heads*depth), k and v are (batch, keys, KVHeads*depth), with keys
// equal to tokens for Causal; the result has the shape of q. Errors: as for Linear; dist.ErrInvalid
// for heads that do not divide.
func Attention(q, k, v *G.Node, c AttentionConfig) (*G.Node, error) {
	l := start("Attention", q, 3, 3)
	if l.joins("keys", k, l.dt); l.err != nil {
		return nil, l.err
	}
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	batch, tokens, width := q.Shape()[0], q.Shape()[1], q.Shape()[2]
	checkHeads(l, c, width)
	if len(k.Shape()) != 3 {
		l.fail(dist.ErrCount, "keys %q have shape %v, want 3 axes", called(k), k.Shape())
	}
	if l.err != nil {
		return nil, l.err
	}
	depth, group, keys := width/c.Heads, c.Heads/c.KVHeads, k.Shape()[1]
	l.needs("keys", k, batch, keys, c.KVHeads*depth)
	l.needs("values", v, batch, keys, c.KVHeads*depth)
	if c.Causal && keys != tokens {
		l.fail(dist.ErrCount, "%d queries and %d keys; Causal needs as many", tokens, keys)
	}
	if c.Scale == 0 {
		c.Scale = 1 / math.Sqrt(float64(depth))
	}
	// The queries of a group of heads follow each other, so that one product has all their scores.
	split := func(x *G.Node, heads int) *G.Node {
		if l.err != nil {
			return nil
		}
		length := x.Shape()[1]
		x = l.transpose(l.reshape(x, batch, length, heads, depth), 0, 2, 1, 3)
		return l.reshape(x, batch*c.KVHeads, heads/c.KVHeads*length, depth)
	}
	queries, values := split(q, c.Heads), split(v, c.KVHeads)
	of := split(k, c.KVHeads)
	scores := l.do(func() (*G.Node, error) { return G.BatchedMatMul(queries, of, false, true) })
	scores = l.with(G.HadamardProd, scores, c.Scale)
	if c.Causal {
		scores = l.over(G.BroadcastAdd, scores, causalMask(l, tokens, group), 0)
	}
	shares := l.do(func() (*G.Node, error) { return G.SoftMax(scores, 2) })
	y := l.do(func() (*G.Node, error) { return G.BatchedMatMul(shares, values) })
	y = l.transpose(l.reshape(y, batch, c.Heads, tokens, depth), 0, 2, 1, 3)
	return l.reshape(y, batch, tokens, width), l.err
}

// checkHeads checks numbers of heads for a width.
func checkHeads(l *layer, c AttentionConfig, width int) {
	switch {
	case l.err != nil:
	case c.Heads < 1 || width%c.Heads != 0:
		l.fail(dist.ErrInvalid, "%d heads do not divide the width, %d", c.Heads, width)
	case c.KVHeads < 1 || c.Heads%c.KVHeads != 0:
		l.fail(dist.ErrInvalid, "%d heads of keys do not divide %d heads", c.KVHeads, c.Heads)
	case math.IsNaN(c.Scale) || math.IsInf(c.Scale, 0):
		l.fail(dist.ErrInvalid, "scale %v", c.Scale)
	}
}

// causalMask returns the mask of a group of heads, (1, group*tokens, tokens).
func causalMask(l *layer, tokens, group int) *G.Node {
	if l.err != nil {
		return nil
	}
	v := gtensor.New(gtensor.Of(l.dt), gtensor.WithShape(1, group*tokens, tokens))
	for row := range group * tokens {
		for at := row*tokens + row%tokens + 1; at < (row+1)*tokens; at++ {
			if l.dt == gtensor.Float32 {
				v.Float32s()[at] = float32(math.Inf(-1))
			} else {
				v.Float64s()[at] = math.Inf(-1)
			}
		}
	}
	return l.constant(fmt.Sprintf("causal mask %v %d %d", l.dt, tokens, group), v)
}

// RoPEConfig holds the settings of RoPE.
type RoPEConfig struct {
	Heads       int     // at least 1
	Base        float64 // of the frequencies; 0 means 10000
	Offset      int     // position of the first token
	Interleaved bool    // pairs are neighbours; otherwise i and i+depth/2, as in Llama
}

// RoPE turns pairs of features of each head by an angle that depends on the token's position p:
//
//	y1 = x1*cos(p*f) - x2*sin(p*f)
//	y2 = x2*cos(p*f) + x1*sin(p*f)
//
// with f = Base^(-2i/depth) for pair i. That is apply_rotary_pos_emb of Hugging Face's
// modeling_llama.py, or torchtune's RotaryPositionalEmbeddings with Interleaved (Su et al.,
// RoFormer, 2021). Apply it to queries and keys before Attention.
//
// Shapes: x is (batch, tokens, Heads*depth) with an even depth; so is the result. Errors: as for
// Linear; dist.ErrInvalid for heads that do not divide, an odd depth, or a base below 1.
func RoPE(x *G.Node, c RoPEConfig) (*G.Node, error) {
	l := start("RoPE", x, 3, 3)
	if c.Base == 0 {
		c.Base = 10000
	}
	if l.err != nil {
		return nil, l.err
	}
	batch, tokens, width := x.Shape()[0], x.Shape()[1], x.Shape()[2]
	switch {
	case c.Heads < 1 || width%c.Heads != 0:
		l.fail(dist.ErrInvalid, "%d heads do not divide the width, %d", c.Heads, width)
	case width/c.Heads%2 != 0:
		l.fail(dist.ErrInvalid, "a head has %d features, want an even number", width/c.Heads)
	case !(c.Base >= 1) || math.IsInf(c.Base, 1) || c.Offset < 0:
		l.fail(dist.ErrInvalid, "base %v, offset %d; want a base of at least 1 and a position", c.Base, c.Offset)
	}
	if l.err != nil {
		return nil, l.err
	}
	depth := width / c.Heads
	cos, sin := nnop.Angles(l.dt, tokens, depth, c.Offset, c.Base, c.Interleaved)
	key := fmt.Sprintf("%v %d %d %d %v %v", l.dt, tokens, depth, c.Offset, c.Base, c.Interleaved)
	cosines, sines := l.constant("rope cosines "+key, cos), l.constant("rope sines "+key, sin)
	y := l.reshape(x, batch, tokens, c.Heads, depth)
	y = l.do(func() (*G.Node, error) { return nnop.NewRoPE(y, cosines, sines, c.Interleaved, false) })
	return l.reshape(y, batch, tokens, width), l.err
}
