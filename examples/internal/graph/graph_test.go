package graph

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// linear is logits of a matrix, with its cost.
func linear(b *Builder) (cost, logProb *gorgonia.Node, inputs gorgonia.Nodes) {
	x, y, w := b.Input("x", gtensor.Float32, 2, 3), b.Input("y", gtensor.Float32, 2, 4), b.Input("w", gtensor.Float32, 2)
	logits := b.Both(gorgonia.Mul, x, b.Param("weight", 0, 1, 3, 4))
	logits = b.Rows(gorgonia.BroadcastAdd, logits, b.Param("bias", 2, 0, 1, 4), 0)
	cost, logProb = b.CrossEntropy(b.Apply(gorgonia.Tanh, logits), y, w)
	return cost, logProb, gorgonia.Nodes{x, y, w}
}

func TestSeedDecidesParameters(t *testing.T) {
	first := func(seed int64) []float32 {
		b := New(seed, nil)
		linear(b)
		if err := b.Done(); err != nil {
			t.Fatal(err)
		}
		if bias := b.Params[1].Value().Data().([]float32); bias[0] != 2 || bias[3] != 2 {
			t.Errorf("bias %v, want its center", bias)
		}
		return b.Params[0].Value().Data().([]float32)
	}
	if a, b, c := first(1), first(1), first(2); a[0] != b[0] || a[0] == c[0] || a[0] == a[1] {
		t.Errorf("weights %v, again %v, of another seed %v", a, b, c)
	}
}

func TestGivenWeightsAreSharedAndMustFit(t *testing.T) {
	weight := gtensor.New(gtensor.Of(gtensor.Float32), gtensor.WithShape(3, 4))
	bias := gtensor.New(gtensor.Of(gtensor.Float32), gtensor.WithShape(1, 4))
	b := New(1, []*gtensor.Dense{weight, bias})
	linear(b)
	if err := b.Done(); err != nil {
		t.Fatal(err)
	}
	if &b.Params[0].Value().Data().([]float32)[0] != &weight.Float32s()[0] {
		t.Error("the weights are copied")
	}
	for _, test := range []struct {
		weights []*gtensor.Dense
		want    string
	}{
		{[]*gtensor.Dense{bias}, "weight has shape (3, 4), the given weight (1, 4)"},
		{[]*gtensor.Dense{weight, bias, bias}, "3 weights for 2 parameters"},
	} {
		b := New(1, test.weights)
		linear(b)
		if err := b.Done(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want %q", err, test.want)
		}
	}
}

// The first error stays, nothing is done after it, and the next graph can be built.
func TestFirstErrorIsKept(t *testing.T) {
	b := New(1, nil)
	x, y := b.Input("x", gtensor.Float32, 2, 3), b.Input("y", gtensor.Float32, 2, 3)
	if n := b.Both(gorgonia.Mul, x, y); n != nil {
		t.Error("a product that does not exist")
	}
	called := false
	b.Do(func() (*gorgonia.Node, error) { called = true; return x, nil })
	b.Fail(errors.New("later"))
	if b.Param("p", 0, 1, 2) != nil || b.Reshape(x, 6) != nil || called {
		t.Error("it goes on after an error")
	}
	if err := b.Done(); err == nil || strings.Contains(err.Error(), "later") {
		t.Errorf("%v", err)
	}
	b = New(1, nil)
	b.Param("p", 0, 1, 0, 3)
	if err := b.Done(); err == nil || !strings.Contains(err.Error(), "p has shape (0, 3)") {
		t.Errorf("%v", err)
	}
}

func TestCostIsWeightedCrossEntropy(t *testing.T) {
	b := New(1, nil)
	cost, logProb, inputs := linear(b)
	if err := b.Done(); err != nil {
		t.Fatal(err)
	}
	copy(inputs[0].Value().Data().([]float32), []float32{1, 2, 3, -1, 0.5, 2})
	copy(inputs[1].Value().Data().([]float32), []float32{0, 1, 0, 0, 0, 0, 0, 1})
	copy(inputs[2].Value().Data().([]float32), []float32{0.25, 0.5})
	vm := gorgonia.NewTapeMachine(cost.Graph())
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	p := logProb.Value().Data().([]float32)
	want := -0.25*float64(p[1]) - 0.5*float64(p[7])
	if got := float64(cost.Value().Data().(float32)); math.Abs(got-want) > 1e-6 {
		t.Errorf("cost %v, want %v", got, want)
	}
}

func TestParametersWithoutValuesHaveShapes(t *testing.T) {
	b := New(1, nil)
	b.WithoutValues()
	cost, _, inputs := linear(b)
	if err := b.Done(); err != nil {
		t.Fatal(err)
	}
	for i, want := range []gtensor.Shape{{3, 4}, {1, 4}} {
		if p := b.Params[i]; p.Value() != nil || !p.Shape().Eq(want) || p.Dtype() != gtensor.Float32 {
			t.Errorf("%s has shape %v and value %v", p.Name(), p.Shape(), p.Value())
		}
	}
	if inputs[0].Value() == nil {
		t.Error("an input has no value")
	}
	if _, err := gorgonia.Grad(cost, b.Params...); err != nil {
		t.Errorf("without values there is no gradient: %v", err)
	}
	bad := New(1, nil)
	bad.WithoutValues()
	bad.Param("w", 0, 1, 3, 0)
	if err := bad.Done(); err == nil {
		t.Error("a width of 0 is accepted")
	}
}

// Shapes beyond the address space are errors: they come from settings, and gorgonia would panic.
func TestShapesBeyondMemoryAreErrors(t *testing.T) {
	for _, shape := range [][]int{{1e11, 784}, {math.MaxInt, 2}, {1 << 32, 1 << 32}, {math.MaxInt}, {3, 0}, {2, -1}} {
		for _, node := range []func(*Builder) *gorgonia.Node{
			func(b *Builder) *gorgonia.Node { return b.Input("p", gtensor.Float32, shape...) },
			func(b *Builder) *gorgonia.Node { return b.Param("p", 0, 1, shape...) },
			func(b *Builder) *gorgonia.Node { b.WithoutValues(); return b.Param("p", 0, 1, shape...) },
		} {
			b := New(1, nil)
			n := node(b)
			if err := b.Done(); n != nil || err == nil || !strings.HasPrefix(err.Error(), "p has shape (") {
				t.Errorf("%v: %v, %v", shape, n, err)
			}
		}
	}
}

// A constant is no input, and a shape that is none is the Builder's error.
func TestConstantsArePartsOfTheGraph(t *testing.T) {
	b := New(1, nil)
	x := b.Input("x", gtensor.Float32, 2, 3)
	c := b.Constant("c", func(data []float32) { data[5] = 7 }, 2, 3)
	y := b.Both(gorgonia.Add, x, c)
	if err := b.Done(); err != nil {
		t.Fatal(err)
	}
	vm := gorgonia.NewTapeMachine(y.Graph())
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	if got := y.Value().Data().([]float32); !slices.Equal(got, []float32{0, 0, 0, 0, 0, 7}) {
		t.Errorf("%v", got)
	}
	if err := vm.Close(); err != nil {
		t.Fatal(err)
	}
	if inputs := y.Graph().Inputs(); len(inputs) != 1 || c.IsVar() {
		t.Errorf("inputs %v", inputs)
	}
	b = New(1, nil)
	if b.Constant("none", func([]float32) { t.Error("filled") }, 0, 3) != nil || b.Done() == nil {
		t.Error("a constant of no elements is accepted")
	}
}

// Gorgonia tells large constants apart by their ends, and nodes of one name not at all.
func TestConstantsThatGorgoniaTakesForAnother(t *testing.T) {
	one := func(x float32) func([]float32) { return func(data []float32) { data[500] = x } }
	for _, name := range []string{"a", "b"} {
		b := New(1, nil)
		first := b.Constant("a", one(1), 1000)
		if again := b.Constant("a", one(1), 1000); again == nil || again != first {
			t.Errorf("the same constant again: %v", again)
		}
		n := b.Constant(name, one(2), 1000)
		if err := b.Done(); n != nil || err == nil || !strings.Contains(err.Error(), "constant "+name) {
			t.Errorf("%s: %v, %v", name, n, err)
		}
	}
}
