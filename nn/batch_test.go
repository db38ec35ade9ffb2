package nn

import (
	"math"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// decoder is a block of a transformer, over a batch of samples.
type decoder struct {
	g               *G.ExprGraph
	tokens, targets *G.Node
	params          G.Nodes
	cost            *G.Node
}

const decoderContext, decoderWords = 4, 7

func decoderInts(samples, first int) *gtensor.Dense {
	v := gtensor.New(gtensor.Of(gtensor.Int), gtensor.WithShape(samples, decoderContext))
	for i := range v.Ints() {
		v.Ints()[i] = (i*i + 3*first) % decoderWords
	}
	return v
}

// newDecoder returns a model with kinds of everything that transformers need.
func newDecoder(t *testing.T, samples int, fused bool) *decoder {
	t.Helper()
	const width = 8
	d := &decoder{g: G.NewGraph()}
	param := func(name string, shape ...int) *G.Node {
		v := make([]float64, gtensor.Shape(shape).TotalSize())
		for i := range v {
			v[i] = math.Sin(float64(i*i+len(d.params))) / 2
		}
		n := input(d.g, name, gtensor.Float64, v, shape...)
		d.params = append(d.params, n)
		return n
	}
	ints := func(name string, first int) *G.Node {
		return intNode(d.g, name, decoderInts(samples, first).Ints(), samples, decoderContext)
	}
	must := func(n *G.Node, err error) *G.Node {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	d.tokens, d.targets = ints("tokens", 0), ints("targets", 1)
	table := param("table", decoderWords, width)
	x := must(Embedding(table, d.tokens))
	h := must(LayerNorm(x, param("gain", width), param("offset", width), 1e-5))
	project := func(name string, h *G.Node, in, out int) *G.Node {
		return must(Linear(h, param(name, in, out), param(name+" bias", out)))
	}
	turn := func(x *G.Node, heads int) *G.Node { return must(RoPE(x, RoPEConfig{Heads: heads})) }
	q, k, v := turn(project("q", h, width, width), 4), turn(project("k", h, width, width/2), 2), project("v", h, width, width/2)
	x = must(G.Add(x, must(Attention(q, k, v, AttentionConfig{Heads: 4, KVHeads: 2, Causal: true}))))
	x = must(G.Add(x, project("down", must(GELUTanh(project("up", must(RMSNorm(x, nil, 1e-6)), width, 12))), 12, width)))
	head := must(G.Transpose(table, 1, 0))
	if fused {
		d.cost = must(LinearCrossEntropy(x, head, d.targets, CrossEntropyConfig{ChunkRows: 5}))
	} else {
		d.cost = must(SparseCrossEntropy(must(Linear(x, head, nil)), d.targets, CrossEntropyConfig{}))
	}
	if _, err := G.Grad(d.cost, d.params...); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *decoder) run(t *testing.T, vm G.VM) (all [][]float64) {
	t.Helper()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	all = append(all, floats(t, d.cost.Value()))
	for _, p := range d.params {
		g, err := p.Grad()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, floats(t, g))
	}
	return all
}

// A machine takes batches of another length, and gives the loss and the gradients of a graph of
// that length; so does a tape machine for its own length.
func TestABlockTakesBatchesOfAnyLength(t *testing.T) {
	const built, short = 3, 2
	for _, fused := range []bool{false, true} {
		whole, part := newDecoder(t, built, fused), newDecoder(t, short, fused)
		want := part.run(t, newMachine(t, part.g))
		tape := newDecoder(t, short, fused)
		for i, got := range tape.run(t, G.NewTapeMachine(tape.g)) {
			near(t, "the tape machine", got, want[i], 1e-12)
		}
		m := newMachine(t, whole.g)
		whole.run(t, m)
		if err := m.Let(whole.tokens, decoderInts(short, 0)); err != nil {
			t.Fatal(err)
		}
		if err := m.Let(whole.targets, decoderInts(short, 1)); err != nil {
			t.Fatal(err)
		}
		for i, got := range whole.run(t, m) {
			near(t, "a short batch", got, want[i], 1e-12)
		}
	}
}
