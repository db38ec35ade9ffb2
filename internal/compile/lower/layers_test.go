package lower

import (
	"slices"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/internal/compile/cudaexec"
	"github.com/symgrad/symgrad/internal/compile/cudagen"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/nn"
	"github.com/symgrad/symgrad/tensor"
)

// layer is a function of package nn with inputs of float32.
type layer struct {
	shapes [][]int
	build  func(x G.Nodes) (*G.Node, error)
}

// program returns the program of a layer on a GPU, planned; with a gradient also that of all
// inputs' gradients.
func (l layer) program(t *testing.T, gradient, narrow bool) *program.Program {
	t.Helper()
	g := G.NewGraph()
	node := func(name string, shape []int) *G.Node {
		return G.NewTensor(g, gtensor.Float32, len(shape), G.WithName(name), G.WithShape(shape...))
	}
	var x G.Nodes
	for i, shape := range l.shapes {
		x = append(x, node("in"+string(rune('0'+i)), shape))
	}
	y, err := l.build(x)
	if err != nil {
		t.Fatal(err)
	}
	outputs := G.Nodes{y}
	if gradient {
		cost := y
		if !y.IsScalar() {
			cost = G.Must(G.Sum(G.Must(G.HadamardProd(y, node("dy", y.Shape())))))
		}
		grads, err := G.Grad(cost, x...)
		if err != nil {
			t.Fatal(err)
		}
		outputs = append(outputs, grads...)
	}
	p, err := Graph(Collect(g, outputs), Options{OnGPU: true, Narrow: map[bool]tensor.DType{true: tensor.BF16}[narrow], Aside: cudaexec.Aside})
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Plan(p.Program); err != nil {
		t.Fatal(err)
	}
	return p.Program
}

// opsOf returns the names of the steps' ops.
func opsOf(p *program.Program) (steps []string) {
	for i := range p.Steps {
		name, _, _ := strings.Cut(p.Steps[i].Op.String(), " ")
		steps = append(steps, name)
	}
	return steps
}

// compiled returns the ops of a layer on a GPU with Compute bf16, and the number of launches.
func (l layer) compiled(t *testing.T, gradient bool) (steps []string, launches int) {
	t.Helper()
	p := l.program(t, gradient, true)
	_, kernels, err := cudagen.Generate(p, cudagen.Target{})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kernels {
		launches += len(k.Kernels)
	}
	return opsOf(p), launches
}

func occurs(steps []string, op string) int {
	return len(slices.DeleteFunc(slices.Clone(steps), func(s string) bool { return s != op }))
}

// On a GPU a normalization and an activation are one launch each, forward; an activation also
// backward.
func TestLayersAreFewLaunches(t *testing.T) {
	of := func(f func(*G.Node) (*G.Node, error)) layer {
		return layer{[][]int{{8, 1024, 768}}, func(x G.Nodes) (*G.Node, error) { return f(x[0]) }}
	}
	for name, test := range map[string]struct {
		layer
		forward, both int // launches; 0: any
	}{
		"LayerNorm": {layer{[][]int{{8, 1024, 768}, {768}, {768}}, func(x G.Nodes) (*G.Node, error) { return nn.LayerNorm(x[0], x[1], x[2], 1e-5) }}, 1, 0},
		"RMSNorm":   {layer{[][]int{{8, 1024, 768}, {768}}, func(x G.Nodes) (*G.Node, error) { return nn.RMSNorm(x[0], x[1], 1e-5) }}, 1, 0},
		"GELU":      {of(nn.GELU), 1, 1},
		"GELUTanh":  {of(nn.GELUTanh), 1, 1},
		"SwiGLU":    {layer{[][]int{{8192, 768}, {8192, 768}}, func(x G.Nodes) (*G.Node, error) { return nn.SwiGLU(x[0], x[1]) }}, 1, 1},
		"RoPE":      {of(func(x *G.Node) (*G.Node, error) { return nn.RoPE(x, nn.RoPEConfig{Heads: 12}) }), 1, 2},
	} {
		if steps, launches := test.compiled(t, false); launches != test.forward {
			t.Errorf("%s: %d launches of %v, want %d", name, launches, steps, test.forward)
		}
		if steps, launches := test.compiled(t, true); test.both != 0 && launches != test.both {
			t.Errorf("%s with gradient: %d launches of %v, want %d", name, launches, steps, test.both)
		}
	}
}

// A convolution and its gradients are one step each.
func TestConvolutionsOfLayersAreConvolutions(t *testing.T) {
	l := layer{[][]int{{8, 16, 14, 14}, {32, 16, 3, 3}, {32}}, func(x G.Nodes) (*G.Node, error) {
		return nn.Conv2D(x[0], x[1], x[2], nn.Conv2DConfig{Stride: [2]int{2, 2}, Padding: [2]int{1, 1}})
	}}
	steps, _ := l.compiled(t, true)
	for _, op := range []string{"conv", "convgradinput", "convgradfilter"} {
		if occurs(steps, op) != 1 {
			t.Errorf("%d of %s in %v", occurs(steps, op), op, steps)
		}
	}
}

// Attention is one step and its gradient another, also for groups of heads and after rotations. No
// step has the probabilities in memory.
func TestAttentionOfLayersIsOneStep(t *testing.T) {
	for name, c := range map[string]nn.AttentionConfig{
		"plain": {Heads: 8}, "causal": {Heads: 8, Causal: true}, "grouped": {Heads: 8, KVHeads: 2, Causal: true},
	} {
		kv := 64 * max(c.KVHeads, c.Heads*(1-min(1, c.KVHeads)))
		l := layer{[][]int{{2, 256, 512}, {2, 256, kv}, {2, 256, kv}}, func(x G.Nodes) (*G.Node, error) {
			q, err := nn.RoPE(x[0], nn.RoPEConfig{Heads: 8})
			if err != nil {
				return nil, err
			}
			k, err := nn.RoPE(x[1], nn.RoPEConfig{Heads: kv / 64})
			if err != nil {
				return nil, err
			}
			return nn.Attention(q, k, x[2], c)
		}}
		steps, _ := l.compiled(t, true)
		if occurs(steps, "attention") != 1 || occurs(steps, "attentiongrad") != 1 || occurs(steps, "softmax")+occurs(steps, "matmul") != 0 {
			t.Errorf("%s: steps %v", name, steps)
		}
	}
}

// The loss of a large vocabulary and its gradient are one step on bf16 logits, and the gradient has
// the memory of the logits. So the arena has nothing of rows by classes except these.
func TestSparseCrossEntropyTakesTheMemoryOfTheLogits(t *testing.T) {
	const rows, width, classes = 4096, 64, 50304
	l := layer{[][]int{{rows, width}, {width, classes}}, func(x G.Nodes) (*G.Node, error) {
		logits, err := nn.Linear(x[0], x[1], nil)
		if err != nil {
			return nil, err
		}
		targets := G.NewVector(x[0].Graph(), gtensor.Int, G.WithName("targets"), G.WithShape(rows))
		return nn.SparseCrossEntropy(logits, targets, nn.CrossEntropyConfig{})
	}}
	for _, narrow := range []bool{false, true} {
		bytes := int64(rows * classes * 4)
		if narrow {
			bytes /= 2
		}
		p := l.program(t, true, narrow)
		steps := opsOf(p)
		if n := occurs(steps, "sparsecrossentropy"); n != 1 || occurs(steps, "matmul") != 3 {
			t.Errorf("narrow %v: steps %v", narrow, steps)
		}
		if rest := p.Arena - bytes; rest < 0 || rest > 32<<20 {
			t.Errorf("narrow %v: the arena has %d bytes, the logits %d", narrow, p.Arena, bytes)
		}
	}
}

// The logits of a fused linear cross-entropy exist for one chunk of rows, and each chunk has three
// products and a loss. The bf16 weight is made once.
func TestLinearCrossEntropyHoldsTheLogitsOfOneChunk(t *testing.T) {
	const rows, width, classes, chunk = 8192, 256, 50304, 2048
	l := layer{[][]int{{rows, width}, {width, classes}}, func(x G.Nodes) (*G.Node, error) {
		targets := G.NewVector(x[0].Graph(), gtensor.Int, G.WithName("targets"), G.WithShape(rows))
		return nn.LinearCrossEntropy(x[0], x[1], targets, nn.CrossEntropyConfig{ChunkRows: chunk})
	}}
	for _, narrow := range []bool{false, true} {
		p := l.program(t, true, narrow)
		steps := opsOf(p)
		if occurs(steps, "sparsecrossentropy") != 4 || occurs(steps, "matmul") != 12 {
			t.Errorf("narrow %v: steps %v", narrow, steps)
		}
		size := int64(4)
		if narrow {
			size = 2
		}
		logits, rest := chunk*classes*size, width*(classes+2*rows)*size
		if p.Arena > logits+rest {
			t.Errorf("narrow %v: the arena has %d bytes; a chunk of logits has %d", narrow, p.Arena, logits)
		}
	}
}
