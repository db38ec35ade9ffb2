package machine_test

import (
	"math"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// single is an op with shapes of inputs. Its result, and the gradients of the sum of its squares,
// are compared with the tape machine's.
type single struct {
	name   string
	shapes [][]int
	apply  func(x []*G.Node) (*G.Node, error)
	only   bool // forward: the op has no gradient
}

func unary(f func(*G.Node) (*G.Node, error)) func([]*G.Node) (*G.Node, error) {
	return func(x []*G.Node) (*G.Node, error) { return f(x[0]) }
}

func binary(f func(a, b *G.Node) (*G.Node, error)) func([]*G.Node) (*G.Node, error) {
	return func(x []*G.Node) (*G.Node, error) { return f(x[0], x[1]) }
}

func along(f func(*G.Node, ...int) (*G.Node, error), axes ...int) func([]*G.Node) (*G.Node, error) {
	return func(x []*G.Node) (*G.Node, error) { return f(x[0], axes...) }
}

func compareWith(op func(a, b *G.Node, same bool) (*G.Node, error)) func([]*G.Node) (*G.Node, error) {
	return func(x []*G.Node) (*G.Node, error) { return op(x[0], x[1], true) }
}

func cube(d ...int) [][]int   { return [][]int{d} }
func pair(a, b []int) [][]int { return [][]int{a, b} }

var singles = []single{
	{"abs", cube(3, 4), unary(G.Abs), false},
	{"sign", cube(3, 4), unary(G.Sign), true},
	{"ceil", cube(3, 4), unary(G.Ceil), true},
	{"floor", cube(3, 4), unary(G.Floor), true},
	{"log2 of exp", cube(3, 4), unary(func(x *G.Node) (*G.Node, error) { return G.Log2(G.Must(G.Exp(x))) }), true}, // for its gradient see TestDerivatives
	{"expm1", cube(3, 4), unary(G.Expm1), false},
	{"softplus of a scalar", cube(), unary(G.Softplus), false},
	{"pow", pair([]int{3}, []int{}), func(x []*G.Node) (*G.Node, error) { return G.Pow(G.Must(G.Exp(x[0])), x[1]) }, false},
	{"less", pair([]int{5}, []int{5}), compareWith(G.Lt), true},
	{"less or equal", pair([]int{5}, []int{}), compareWith(G.Lte), true},
	{"greater", pair([]int{}, []int{5}), compareWith(G.Gt), true},
	{"not equal", pair([]int{5}, []int{5}), compareWith(G.Ne), true},
	{"scalars", pair([]int{}, []int{}), binary(G.HadamardDiv), false},
	{"smaller of two", pair([]int{2, 3}, []int{2, 3}), binary(G.MinBetween), true},
	{"larger of two", pair([]int{2, 3}, []int{2, 3}), binary(G.MaxBetween), true},
	{"matrix times vector", pair([]int{3, 4}, []int{4}), binary(G.Mul), false},
	{"vector times matrix", pair([]int{3}, []int{3, 4}), binary(G.Mul), false},
	{"inner product", pair([]int{4}, []int{4}), binary(G.Mul), false},
	{"outer product", pair([]int{3}, []int{4}), binary(G.OuterProd), true},
	{"tensordot", pair([]int{2, 3, 4}, []int{4, 3, 5}), func(x []*G.Node) (*G.Node, error) {
		return G.Tensordot([]int{1, 2}, []int{1, 0}, x[0], x[1])
	}, false},
	{"batched product, both transposed", pair([]int{2, 4, 3}, []int{2, 5, 4}), func(x []*G.Node) (*G.Node, error) {
		return G.BatchedMatMul(x[0], x[1], true, true)
	}, false},
	{"batched product of four axes", pair([]int{2, 3, 4, 2}, []int{2, 3, 2, 5}), func(x []*G.Node) (*G.Node, error) {
		return G.BatchedMatMul(x[0], x[1])
	}, false},
	{"sum of two axes", cube(2, 3, 4), along(G.Sum, 0, 2), false},
	{"sum of all", cube(2, 3, 4), along(G.Sum), false},
	{"mean of an axis", cube(2, 3, 4), along(G.Mean, 1), false},
	{"maximum of two axes", cube(3, 2, 4), along(G.Max, 0, 1), true},
	{"maximum of an axis", cube(3, 4), along(G.Max, 1), false},
	{"softmax of the first axis", cube(3, 4), func(x []*G.Node) (*G.Node, error) { return G.SoftMax(x[0], 0) }, false},
	{"logarithm of softmax in the middle", cube(2, 3, 4), func(x []*G.Node) (*G.Node, error) { return G.LogSoftMax(x[0], 1) }, false},
	{"every second row", cube(6, 4), func(x []*G.Node) (*G.Node, error) { return G.Slice(x[0], G.S(1, 5, 2)) }, false},
	{"a column", cube(3, 4), func(x []*G.Node) (*G.Node, error) { return G.Slice(x[0], nil, G.S(2)) }, false},
	{"concatenation in the middle", pair([]int{2, 3, 2}, []int{2, 1, 2}), func(x []*G.Node) (*G.Node, error) {
		return G.Concat(1, x...)
	}, false},
	{"transposition of four axes", cube(2, 3, 4, 5), func(x []*G.Node) (*G.Node, error) { return G.Transpose(x[0], 3, 1, 0, 2) }, false},
	{"reshape of a transposition", cube(3, 4), func(x []*G.Node) (*G.Node, error) {
		return G.Reshape(G.Must(G.Transpose(x[0])), gtensor.Shape{2, 6})
	}, false},
	{"columns of images", cube(2, 2, 5, 4), func(x []*G.Node) (*G.Node, error) {
		return G.Im2Col(x[0], gtensor.Shape{3, 2}, gtensor.Shape{1, 0}, gtensor.Shape{2, 1}, gtensor.Shape{1, 2})
	}, false},
	{"max pooling, padded on some sides", cube(2, 2, 5, 5), func(x []*G.Node) (*G.Node, error) {
		return G.MaxPool2D(x[0], gtensor.Shape{2, 3}, []int{1, 0, 1, 2}, []int{2, 1})
	}, false},
	{"global average pooling", cube(2, 3, 4, 5), unary(G.GlobalAveragePool2D), true},
	{"broadcast on both sides", pair([]int{3, 1}, []int{1, 4}), func(x []*G.Node) (*G.Node, error) {
		return G.BroadcastHadamardProd(x[0], x[1], []byte{1}, []byte{0})
	}, false},
}

// build builds the graph of an op, with inputs that depend on its shapes only.
func (s single) build(t *testing.T) (g *G.ExprGraph, all G.Nodes) {
	t.Helper()
	n := newNet()
	var in []*G.Node
	for i, shape := range s.shapes {
		name := string(rune('a' + i))
		if len(shape) == 0 {
			in = append(in, G.NewScalar(n.g, G.Float32, G.WithName(name), G.WithValue(n.values(1, 1)[0])))
			continue
		}
		in = append(in, n.input(name, shape...))
	}
	y, err := s.apply(in)
	if err != nil {
		t.Fatal(err)
	}
	if s.only {
		return n.g, G.Nodes{y}
	}
	cost := G.Must(G.Square(y))
	if !cost.IsScalar() {
		cost = G.Must(G.Sum(cost))
	}
	grads, err := G.Grad(cost, in...)
	if err != nil {
		t.Fatal(err)
	}
	return n.g, append(G.Nodes{cost}, grads...) // the tape machine overwrites y
}

func TestOpsAreThoseOfTheTapeMachine(t *testing.T) {
	for _, s := range singles {
		t.Run(s.name, func(t *testing.T) {
			g, expected := s.build(t)
			run(t, G.NewTapeMachine(g))
			g2, got := s.build(t)
			run(t, newMachine(t, g2, plain, got...))
			for i := range expected {
				a, b := got[i].Value(), expected[i].Value()
				if !a.Shape().Eq(b.Shape()) || a.Dtype() != b.Dtype() {
					t.Errorf("result %d is %v%v, want %v%v", i, a.Dtype(), a.Shape(), b.Dtype(), b.Shape())
				}
				compare(t, "result", a, b)
			}
		})
	}
}

// TestOneElement is gorgonia.At, which the tape machine treats as a statement without a value.
func TestOneElement(t *testing.T) {
	n := newNet()
	x := n.input("x", 3, 4)
	y := G.Must(G.At(x, 1, 2))
	run(t, newMachine(t, n.g, plain, y))
	want(t, "the element", y.Value(), floats(t, x.Value())[6])
}

// TestRandomNodesAreDrawnAnew checks moments of random nodes, and that runs and nodes differ.
func TestRandomNodesAreDrawnAnew(t *testing.T) {
	g := G.NewGraph()
	u := G.UniformRandomNode(g, G.Float64, -1, 3, 4000)
	z := G.GaussianRandomNode(g, G.Float64, 2, 0.5, 5000) // Gorgonia takes two of one shape for one node
	a, b := G.Must(G.Neg(u)), G.Must(G.Neg(z))
	m := newMachine(t, g, plain, a, b)
	run(t, m)
	first := floats(t, a.Value())
	for _, c := range []struct {
		name            string
		v               G.Value
		mean, deviation float64
	}{{"uniform", a.Value(), -1, 4 / math.Sqrt(12)}, {"normal", b.Value(), -2, 0.5}} {
		v := floats(t, c.v)
		mean, square := 0.0, 0.0
		for _, x := range v {
			mean += x / float64(len(v))
			square += x * x / float64(len(v))
		}
		deviation := math.Sqrt(square - mean*mean)
		bound := 5 * c.deviation / math.Sqrt(float64(len(v)))
		if math.Abs(mean-c.mean) > bound || math.Abs(deviation-c.deviation) > bound {
			t.Errorf("%s: mean %v and deviation %v, want %v and %v", c.name, mean, deviation, c.mean, c.deviation)
		}
	}
	run(t, m)
	if second := floats(t, a.Value()); second[0] == first[0] && second[1] == first[1] {
		t.Error("two runs draw the same numbers")
	}
}

// TestConvertedNumbersAreIndices selects rows by labels that are floating-point numbers.
func TestConvertedNumbersAreIndices(t *testing.T) {
	n := newNet()
	table := n.input("table", 4, 2)
	labels := G.NewVector(n.g, G.Float32, G.WithName("labels"), G.WithShape(3), G.WithValue(vector(2.9, 0, 3)))
	y := G.Must(G.ByIndices(table, G.Must(G.ConvType(labels, G.Float32, G.Int)), 0))
	run(t, newMachine(t, n.g, plain, y))
	v := floats(t, table.Value())
	want(t, "the rows", y.Value(), v[4], v[5], v[0], v[1], v[6], v[7])
}

// TestCrossEntropyOfLogitsThatAreAView has logits that are transposed, or columns of a wider
// product.
func TestCrossEntropyOfLogitsThatAreAView(t *testing.T) {
	for name, view := range map[string]func(x, w *G.Node) *G.Node{
		"transposed": func(x, w *G.Node) *G.Node {
			return G.Must(G.Transpose(G.Must(G.Mul(G.Must(G.Transpose(w)), G.Must(G.Transpose(x))))))
		},
		"some columns": func(x, w *G.Node) *G.Node {
			return G.Must(G.Slice(G.Must(G.Mul(x, w)), nil, G.S(2, 5)))
		},
	} {
		build := func() *net {
			n := newNet()
			logits := view(n.input("x", 4, 6), n.param("w", 0.5, 6, map[string]int{"transposed": 3, "some columns": 7}[name]))
			return n.classify(logits, 4, 3)
		}
		n, whole := build(), build()
		run(t, newMachine(t, n.g, plain, n.cost, n.params[0].Deriv()))
		cfg := plain
		cfg.NoOptimize = true
		run(t, newMachine(t, whole.g, cfg, whole.cost, whole.params[0].Deriv()))
		compare(t, name+": cost", n.cost.Value(), whole.cost.Value())
		compare(t, name+": gradient", n.params[0].Deriv().Value(), whole.params[0].Deriv().Value())
	}
}
