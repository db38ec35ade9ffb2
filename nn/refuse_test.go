package nn

import (
	"errors"
	"math"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// A mistake is an error that names the function and the node.
func TestLayersRefuseMistakes(t *testing.T) {
	g := G.NewGraph()
	node := func(name string, dt gtensor.Dtype, shape ...int) *G.Node {
		return G.NewTensor(g, dt, len(shape), G.WithName(name), G.WithShape(shape...))
	}
	x, cube := node("x", gtensor.Float32, 3, 4), node("cube", gtensor.Float32, 2, 3, 4)
	w, wide := node("w", gtensor.Float32, 4, 5), node("wide", gtensor.Float64, 4, 5)
	five, tokens := node("five", gtensor.Float32, 5), node("tokens", gtensor.Int, 3)
	other := G.NewMatrix(G.NewGraph(), gtensor.Float32, G.WithName("other"), G.WithShape(4, 5))
	number := G.NewScalar(g, gtensor.Float32, G.WithName("number"))
	two := func(n *G.Node, err error) error {
		if n != nil && err != nil {
			t.Errorf("a node and an error: %v", err)
		}
		return err
	}
	for _, test := range []struct {
		err  error
		kind error
		want string
	}{
		{two(Linear(nil, w, nil)), dist.ErrInvalid, "nn.Linear: "},
		{two(Linear(number, w, nil)), dist.ErrCount, `input "number" is a scalar`},
		{two(Linear(tokens, w, nil)), dist.ErrDType, `input "tokens" is int, want float32 or float64`},
		{two(Linear(five, w, nil)), dist.ErrCount, `input "five" has shape (5), want 2 to 4 axes`},
		{two(Linear(x, nil, nil)), dist.ErrInvalid, "no weight"},
		{two(Linear(x, wide, nil)), dist.ErrDType, `weight "wide" is float64, want float32`},
		{two(Linear(x, other, nil)), dist.ErrInvalid, `weight "other" is in another graph`},
		{two(Linear(x, x, nil)), dist.ErrCount, `weight "x" has shape (3, 4), want (4, out) for input "x" of shape (3, 4)`},
		{two(Linear(x, w, x)), dist.ErrCount, `bias "x" has shape (3, 4), want 5 elements`},
		{two(Embedding(w, x)), dist.ErrDType, `tokens "x" is float32, want int`},
		{two(Reshape(x, 5)), dist.ErrCount, `input "x" of shape (3, 4) to shape [5]`},
		{two(Reshape(nil, 5)), dist.ErrInvalid, "no input"},
		{two(Slice(x, 1, 2, 5)), dist.ErrCount, `2:5 of axis 1 of input "x" of shape (3, 4)`},
		{two(Slice(x, 2, 0, 1)), dist.ErrCount, "0:1 of axis 2"},
		{two(Slice(x, 0, 1, 1)), dist.ErrCount, "1:1 of axis 0"},
		{two(Slice(nil, 0, 0, 1)), dist.ErrInvalid, "no input"},
		{two(LayerNorm(x, five, nil, 1e-5)), dist.ErrCount, `gain "five" has shape (5), want 4 elements`},
		{two(LayerNorm(x, nil, nil, -1)), dist.ErrInvalid, "epsilon -1"},
		{two(RMSNorm(x, nil, math.NaN())), dist.ErrInvalid, "epsilon NaN"},
		{two(SwiGLU(x, w)), dist.ErrCount, `up "w" has shape (4, 5), want [3 4]`},
		{two(Dropout(x, 1)), dist.ErrInvalid, "probability 1 is not in [0, 1)"},
		{two(Attention(x, x, x, AttentionConfig{Heads: 1})), dist.ErrCount, "want 3 to 3 axes"},
		{two(Attention(cube, cube, cube, AttentionConfig{Heads: 3})), dist.ErrInvalid, "3 heads do not divide the width, 4"},
		{two(Attention(cube, cube, cube, AttentionConfig{Heads: 4, KVHeads: 3})), dist.ErrInvalid, "3 heads of keys do not divide 4 heads"},
		{two(Attention(cube, cube, cube, AttentionConfig{Heads: 4, KVHeads: 2})), dist.ErrCount, `keys "cube" has shape (2, 3, 4), want [2 3 2]`},
		{two(Attention(cube, node("long", gtensor.Float32, 2, 5, 4), node("values", gtensor.Float32, 2, 5, 4), AttentionConfig{Heads: 2, Causal: true})), dist.ErrCount, "3 queries and 5 keys"},
		{two(RoPE(cube, RoPEConfig{Heads: 4})), dist.ErrInvalid, "a head has 1 features"},
		{two(RoPE(cube, RoPEConfig{Heads: 2, Base: 0.5})), dist.ErrInvalid, "base 0.5"},
	} {
		if test.err == nil || !strings.Contains(test.err.Error(), test.want) || !errors.Is(test.err, test.kind) {
			t.Errorf("error %v, want a %v with %q", test.err, test.kind, test.want)
		}
	}
}

// A dropout scales the kept elements, and its gradient is the same scale.
func TestDropoutScalesTheKeptElements(t *testing.T) {
	g := G.NewGraph()
	ones := make([]float64, 1000)
	for i := range ones {
		ones[i] = 1
	}
	x := input(g, "x", gtensor.Float64, ones, 1000)
	same, err := Dropout(x, 0)
	if err != nil || same != x {
		t.Fatalf("without a probability: %v, %v", same, err)
	}
	y, err := Dropout(x, 0.2)
	if err != nil {
		t.Fatal(err)
	}
	cost := G.Must(G.Sum(y))
	if _, err := G.Grad(cost, x); err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, g, y, x.Deriv())
	if err := m.RunAll(); err != nil {
		t.Fatal(err)
	}
	kept := 0
	for i, v := range floats(t, y.Value()) {
		if v != 0 && v != 1.25 {
			t.Fatalf("element %d is %v, want 0 or 1/0.8", i, v)
		}
		if v != 0 {
			kept++
		}
	}
	if kept < 740 || kept > 860 { // 800, and 4.7 times sqrt(1000*0.8*0.2)
		t.Errorf("%d of 1000 elements kept at probability 0.2", kept)
	}
	near(t, "the gradient", floats(t, x.Deriv().Value()), floats(t, y.Value()), 0)
}

// Gorgonia leaves these settings out of the hashes of its ops, by which a graph knows equal nodes.
func TestEqualOpsOfOtherSettingsAreNotOne(t *testing.T) {
	g := G.NewGraph()
	x := G.NewTensor(g, G.Float64, 4, G.WithShape(1, 2, 8, 8), G.WithName("x"))
	filter := G.NewTensor(g, G.Float64, 4, G.WithShape(3, 2, 3, 3), G.WithName("filter"))
	two := func(a *G.Node, errA error) func(b *G.Node, errB error) {
		return func(b *G.Node, errB error) {
			t.Helper()
			if errA != nil || errB != nil || a == b {
				t.Errorf("%v and %v are one node, or errors %v, %v", a, b, errA, errB)
			}
		}
	}
	two(Dropout(x, 0.1))(Dropout(x, 0.5))
	two(Conv2D(x, filter, nil, Conv2DConfig{Padding: [2]int{1, 1}, Stride: [2]int{4, 4}}))(
		Conv2D(x, filter, nil, Conv2DConfig{Padding: [2]int{1, 1}, Stride: [2]int{4, 4}, Dilation: [2]int{2, 2}}))
	gain := G.NewVector(g, G.Float64, G.WithShape(2), G.WithName("gain"))
	norm := func(c BatchNormConfig) (*G.Node, error) {
		y, _, err := BatchNorm2D(x, gain, gain, c)
		return y, err
	}
	two(norm(BatchNormConfig{}))(norm(BatchNormConfig{Epsilon: 1e-3}))
	if _, err := norm(BatchNormConfig{}); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "has a batch normalization of these settings already") {
		t.Errorf("a second batch normalization: %v", err)
	}
	a, err := GELUTanh(G.NewVector(g, G.Float32, G.WithShape(3), G.WithName("a")))
	if err != nil {
		t.Fatal(err)
	}
	b, err := GELUTanh(G.NewVector(g, G.Float64, G.WithShape(3), G.WithName("b")))
	if err != nil || a.Dtype() != G.Float32 || b.Dtype() != G.Float64 {
		t.Errorf("%v and %v, error %v", a.Dtype(), b.Dtype(), err)
	}
}
