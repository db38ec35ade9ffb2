package transformer

import (
	"fmt"
	"math"
)

// reference computes logits in float64 with plain loops, from the papers and the layouts of the
// files: it shares no code with the graph. values are the tensors of a file.
type reference struct {
	Config
	values map[string][]float64
}

// reference of weights.
func newReference(w *Weights) (*reference, error) {
	all, err := w.check()
	if err != nil {
		return nil, err
	}
	r := &reference{w.Config, map[string][]float64{}}
	for i, p := range all {
		for _, x := range w.Values[i].Float32s() {
			r.values[p.Name] = append(r.values[p.Name], float64(x))
		}
	}
	return r, nil
}

// logits returns those of each token of a sample.
func (r *reference) logits(tokens []int) [][]float64 {
	x := make([][]float64, len(tokens))
	for i, token := range tokens {
		x[i] = make([]float64, r.Width)
		for j := range x[i] {
			x[i][j] = r.values[r.embeddingName()][token*r.Width+j]
			if r.Family == GPT2 {
				x[i][j] += r.values["transformer.wpe.weight"][i*r.Width+j]
			}
		}
	}
	for layer := range r.Layers {
		if r.Family == GPT2 {
			r.gpt2Block(fmt.Sprintf("transformer.h.%d.", layer), x)
		} else {
			r.llamaBlock(fmt.Sprintf("model.layers.%d.", layer), x)
		}
	}
	head := r.values[headName]
	if r.Tied {
		head = r.values[r.embeddingName()]
	}
	out := make([][]float64, len(x))
	for i := range x {
		name := "transformer.ln_f."
		if r.Family == Llama {
			name = "model.norm."
		}
		out[i] = outIn(head, r.norm(name, x[i]), r.Vocabulary)
	}
	return out
}

func (r *reference) gpt2Block(name string, x [][]float64) {
	q, k, v := make([][]float64, len(x)), make([][]float64, len(x)), make([][]float64, len(x))
	for i := range x {
		qkv := r.inOut(name+"attn.c_attn.", r.norm(name+"ln_1.", x[i]))
		q[i], k[i], v[i] = qkv[:r.Width], qkv[r.Width:2*r.Width], qkv[2*r.Width:]
	}
	for i, y := range r.attend(q, k, v) {
		add(x[i], r.inOut(name+"attn.c_proj.", y))
		h := r.inOut(name+"mlp.c_fc.", r.norm(name+"ln_2.", x[i]))
		for j, z := range h {
			if r.Activation == GELU {
				h[j] = z * (1 + math.Erf(z/math.Sqrt2)) / 2
			} else {
				h[j] = z / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(z+0.044715*z*z*z)))
			}
		}
		add(x[i], r.inOut(name+"mlp.c_proj.", h))
	}
}

func (r *reference) llamaBlock(name string, x [][]float64) {
	q, k, v := make([][]float64, len(x)), make([][]float64, len(x)), make([][]float64, len(x))
	for i := range x {
		h := r.norm(name+"input_layernorm.", x[i])
		q[i] = r.rotate(outIn(r.values[name+"self_attn.q_proj.weight"], h, r.Heads*r.HeadWidth), i)
		k[i] = r.rotate(outIn(r.values[name+"self_attn.k_proj.weight"], h, r.KVHeads*r.HeadWidth), i)
		v[i] = outIn(r.values[name+"self_attn.v_proj.weight"], h, r.KVHeads*r.HeadWidth)
	}
	for i, y := range r.attend(q, k, v) {
		add(x[i], outIn(r.values[name+"self_attn.o_proj.weight"], y, r.Width))
		h := r.norm(name+"post_attention_layernorm.", x[i])
		gate, up := outIn(r.values[name+"mlp.gate_proj.weight"], h, r.Inner), outIn(r.values[name+"mlp.up_proj.weight"], h, r.Inner)
		for j, z := range gate {
			gate[j] = z / (1 + math.Exp(-z)) * up[j]
		}
		add(x[i], outIn(r.values[name+"mlp.down_proj.weight"], gate, r.Width))
	}
}

// norm is LayerNorm of a GPT2, and RMSNorm of a Llama.
func (r *reference) norm(name string, x []float64) []float64 {
	mean, square := 0.0, 0.0
	if r.Family == GPT2 {
		for _, v := range x {
			mean += v / float64(len(x))
		}
	}
	for _, v := range x {
		square += (v - mean) * (v - mean) / float64(len(x))
	}
	y := make([]float64, len(x))
	for j, v := range x {
		y[j] = (v - mean) / math.Sqrt(square+r.Epsilon) * r.values[name+"weight"][j]
		if r.Family == GPT2 {
			y[j] += r.values[name+"bias"][j]
		}
	}
	return y
}

// attend is causal attention with grouped queries.
func (r *reference) attend(q, k, v [][]float64) [][]float64 {
	out := make([][]float64, len(q))
	for i := range q {
		out[i] = make([]float64, r.Heads*r.HeadWidth)
		for h := range r.Heads {
			from, kv := h*r.HeadWidth, h/(r.Heads/r.KVHeads)*r.HeadWidth
			shares, sum := make([]float64, i+1), 0.0
			for t := range shares {
				score := 0.0
				for d := range r.HeadWidth {
					score += q[i][from+d] * k[t][kv+d]
				}
				shares[t] = math.Exp(score / math.Sqrt(float64(r.HeadWidth)))
				sum += shares[t]
			}
			for t, share := range shares {
				for d := range r.HeadWidth {
					out[i][from+d] += share / sum * v[t][kv+d]
				}
			}
		}
	}
	return out
}

// rotate turns the pairs (d, d+HeadWidth/2) of each head.
func (r *reference) rotate(x []float64, position int) []float64 {
	half := r.HeadWidth / 2
	y := make([]float64, len(x))
	for h := 0; h < len(x); h += r.HeadWidth {
		for d := range half {
			sin, cos := math.Sincos(float64(position) / math.Pow(r.RopeTheta, float64(2*d)/float64(r.HeadWidth)))
			a, b := x[h+d], x[h+half+d]
			y[h+d], y[h+half+d] = a*cos-b*sin, b*cos+a*sin
		}
	}
	return y
}

// inOut is a Conv1D: weight [in, out] and bias.
func (r *reference) inOut(name string, x []float64) []float64 {
	bias, weight := r.values[name+"bias"], r.values[name+"weight"]
	y := append([]float64(nil), bias...)
	for i, v := range x {
		for j := range y {
			y[j] += v * weight[i*len(y)+j]
		}
	}
	return y
}

// outIn is a torch.nn.Linear: weight [out, in], without a bias.
func outIn(weight, x []float64, out int) []float64 {
	y := make([]float64, out)
	for j := range y {
		for i, v := range x {
			y[j] += v * weight[j*len(x)+i]
		}
	}
	return y
}

func add(x, y []float64) {
	for i := range x {
		x[i] += y[i]
	}
}
