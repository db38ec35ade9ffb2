package machine_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/optim"
)

var plain = machine.Config{Threads: 1, BLAS: "none"}

func newMachine(t *testing.T, g *G.ExprGraph, cfg machine.Config, outputs ...*G.Node) *machine.Machine {
	t.Helper()
	m, err := machine.New(g, cfg, outputs...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func run(t *testing.T, vm G.VM) {
	t.Helper()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
}

// floats returns the elements of a value of float32 or float64.
func floats(t *testing.T, v G.Value) []float64 {
	t.Helper()
	if v == nil {
		t.Fatal("there is no value")
	}
	switch d := v.Data().(type) {
	case float32:
		return []float64{float64(d)}
	case float64:
		return []float64{d}
	case []float64:
		return slices.Clone(d)
	case []float32:
		all := make([]float64, len(d))
		for i, x := range d {
			all[i] = float64(x)
		}
		return all
	}
	t.Fatalf("elements are %T", v.Data())
	return nil
}

func want(t *testing.T, what string, v G.Value, elements ...float64) {
	t.Helper()
	if got := floats(t, v); !slices.Equal(got, elements) {
		t.Errorf("%s is %v, want %v", what, got, elements)
	}
}

func vector(v ...float32) *gtensor.Dense {
	return gtensor.New(gtensor.WithShape(len(v)), gtensor.WithBacking(v))
}

func let(t *testing.T, n *G.Node, v any) {
	t.Helper()
	if err := G.Let(n, v); err != nil {
		t.Fatal(err)
	}
}

// TestValuesAreReadWhereTheyAre sets inputs again, changes them in place, and gives them other
// memory, strides and scalars.
func TestValuesAreReadWhereTheyAre(t *testing.T) {
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float32, G.WithName("x"), G.WithShape(2, 3))
	s := G.NewScalar(g, G.Float32, G.WithName("s"))
	y := G.Must(G.HadamardProd(x, s))
	m := newMachine(t, g, plain)
	v := gtensor.New(gtensor.WithShape(2, 3), gtensor.WithBacking([]float32{1, 2, 3, 4, 5, 6}))
	let(t, x, v)
	let(t, s, float32(2))
	run(t, m)
	want(t, "y", y.Value(), 2, 4, 6, 8, 10, 12)
	v.Float32s()[0] = 7
	let(t, s, float32(3))
	run(t, m)
	want(t, "y after a change in place", y.Value(), 21, 6, 9, 12, 15, 18)
	columns := gtensor.New(gtensor.WithShape(3, 2), gtensor.WithBacking([]float32{1, 2, 3, 4, 5, 6}))
	if err := columns.T(); err != nil {
		t.Fatal(err)
	}
	let(t, x, columns)
	run(t, m)
	want(t, "y of a transposed value", y.Value(), 3, 9, 15, 6, 12, 18)
}

// TestRowsOfATransposedValue sets samples that are columns of a data set, transposed and then
// sliced.
func TestRowsOfATransposedValue(t *testing.T) {
	data := gtensor.New(gtensor.WithShape(3, 4), gtensor.WithBacking(gtensor.Range(gtensor.Float32, 0, 12)))
	if err := data.T(); err != nil {
		t.Fatal(err)
	}
	batch, err := data.Slice(G.S(1, 3))
	if err != nil {
		t.Fatal(err)
	}
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float32, G.WithName("x"), G.WithShape(2, 3))
	y := G.Must(G.HadamardProd(x, G.NewConstant(float32(2))))
	let(t, x, batch)
	run(t, newMachine(t, g, plain))
	want(t, "y", y.Value(), 2, 10, 18, 4, 12, 20)
}

// TestOutputsKeepTheirMemory checks the values of a node over several runs, and after Gorgonia has
// unbound them.
func TestOutputsKeepTheirMemory(t *testing.T) {
	n := small(4)
	m := newMachine(t, n.g, plain, n.out, n.cost)
	run(t, m)
	first := n.out.Value()
	before := floats(t, first)
	run(t, m)
	if n.out.Value() != first || !slices.Equal(floats(t, n.out.Value()), before) {
		t.Error("an output has other memory after a second run")
	}
	g := n.g
	g.UnbindAllNonInputs()
	run(t, m)
	if !slices.Equal(floats(t, n.out.Value()), before) {
		t.Errorf("after UnbindAllNonInputs the output is %v, want %v", floats(t, n.out.Value()), before)
	}
	if n.params[0].Deriv().Value() != nil {
		t.Error("a gradient that is no output has a value")
	}
}

// TestDefaultOutputs are roots, gradients and nodes of gorgonia.Read, but not the gradient of the
// images in a batch.
func TestDefaultOutputs(t *testing.T) {
	n := small(4)
	aside := G.Must(G.Sum(G.Must(G.Square(n.out))))
	var read G.Value
	G.Read(n.out, &read)
	m := newMachine(t, n.g, plain)
	run(t, m)
	for _, p := range n.params {
		if v, err := p.Grad(); err != nil || v == nil {
			t.Errorf("no gradient of %s: %v", p.Name(), err)
		}
	}
	if n.cost.Value() == nil || aside.Value() == nil || read == nil {
		t.Errorf("cost is %v, another root %v, what is read %v", n.cost.Value(), aside.Value(), read)
	}
	held, was := read, floats(t, read)
	n.params[0].Value().(*gtensor.Dense).Zero()
	run(t, m)
	if read != held || slices.Equal(floats(t, read), was) || !slices.Equal(floats(t, read), floats(t, n.out.Value())) {
		t.Error("what Read gives does not follow the runs, in the same memory")
	}
	if products := strings.Count(m.Explain(), "matmul"); products != 5 {
		t.Errorf("the program has %d products, want 5: two forward, and all gradients but that of the input\n%s", products, m.Explain())
	}
}

// TestProductsAreCounted has the products of a perceptron: two forward, and all gradients except
// that of the input.
func TestProductsAreCounted(t *testing.T) {
	m := newMachine(t, small(4).g, plain)
	if got, want := m.FLOP(), int64(2*(2*4*5*7+3*4*7*3)); got != want {
		t.Errorf("%d FLOP, want %d", got, want)
	}
	if err := m.Close(); err != nil || m.FLOP() != 0 {
		t.Errorf("after Close: %d FLOP, %v", m.FLOP(), err)
	}
}

// TestTwoMachinesOfOneGraph alternate: nodes have the values of the one that ran last.
func TestTwoMachinesOfOneGraph(t *testing.T) {
	n := small(4)
	train := newMachine(t, n.g, plain)
	ask := newMachine(t, n.g, plain, n.out)
	run(t, train)
	first := floats(t, n.params[0].Deriv().Value())
	n.params[2].Value().(*gtensor.Dense).Zero()
	run(t, ask)
	run(t, train)
	if slices.Equal(floats(t, n.params[0].Deriv().Value()), first) {
		t.Error("the first machine no longer sets the gradient")
	}
	out := floats(t, n.out.Value())
	run(t, ask)
	if !slices.Equal(floats(t, n.out.Value()), out) {
		t.Error("two machines give different outputs")
	}
}

// TestNaNIsNamed runs with Config.Watch.
func TestNaNIsNamed(t *testing.T) {
	g := G.NewGraph()
	x := G.NewVector(g, G.Float64, G.WithName("x"), G.WithShape(2), G.WithValue(gtensor.New(gtensor.WithBacking([]float64{1, -1}))))
	y := G.Must(G.Sqrt(x))
	G.WithName("root of x")(y)
	G.Must(G.Sum(y))
	cfg := plain
	cfg.Watch, cfg.NoOptimize = true, true
	m := newMachine(t, g, cfg)
	err := m.RunAll()
	if !errors.Is(err, machine.ErrNaN) || !strings.Contains(err.Error(), "root of x") {
		t.Errorf("error %v, want ErrNaN and the node", err)
	}
	let(t, x, gtensor.New(gtensor.WithBacking([]float64{1, 4})))
	run(t, m)
}

// TestGradientsOfOneNodeAreApart: both gradients of x+y are one node, and a solver that sets one to
// 0 must not change the other.
func TestGradientsOfOneNodeAreApart(t *testing.T) {
	g := G.NewGraph()
	x := G.NewVector(g, G.Float32, G.WithName("x"), G.WithShape(2), G.WithValue(vector(1, 2)))
	y := G.NewVector(g, G.Float32, G.WithName("y"), G.WithShape(2), G.WithValue(vector(3, 4)))
	cost := G.Must(G.Sum(G.Must(G.Square(G.Must(G.Add(x, y))))))
	if _, err := G.Grad(cost, x, y); err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, g, plain)
	run(t, m)
	solver := G.NewVanillaSolver(G.WithLearnRate(0.5))
	if err := solver.Step(G.NodesToValueGrads(G.Nodes{x, y})); err != nil {
		t.Fatal(err)
	}
	want(t, "x", x.Value(), -3, -4)
	want(t, "y", y.Value(), -1, -2)
}

// TestDualValuesAddUp accumulates the gradients of runs until they are set to 0, one of them in
// memory of the program.
func TestDualValuesAddUp(t *testing.T) {
	g := G.NewGraph()
	x := G.NewVector(g, G.Float32, G.WithName("x"), G.WithShape(2), G.WithValue(vector(1, 2)))
	y := G.NewVector(g, G.Float32, G.WithName("y"), G.WithShape(2), G.WithValue(vector(3, 4)))
	cost := G.Must(G.Sum(G.Must(G.HadamardProd(x, y))))
	if _, err := G.Grad(cost, x, y); err != nil {
		t.Fatal(err)
	}
	own := vector(0, 0)
	G.WithGrad(own)(x)
	cfg := plain
	cfg.DualValues = true
	m := newMachine(t, g, cfg)
	run(t, m)
	run(t, m)
	want(t, "the gradient of x, in its own memory", own, 6, 8)
	dy, err := y.Grad()
	if err != nil {
		t.Fatal(err)
	}
	want(t, "the gradient of y", dy, 2, 4)
	dy.(*gtensor.Dense).Zero()
	run(t, m)
	want(t, "the gradient of y after Zero", dy, 1, 2)
}

// TestEvalRunsWithoutDropout compares training with evaluation.
func TestEvalRunsWithoutDropout(t *testing.T) {
	g := G.NewGraph()
	ones := make([]float32, 1000)
	for i := range ones {
		ones[i] = 1
	}
	x := G.NewVector(g, G.Float32, G.WithName("x"), G.WithShape(1000), G.WithValue(vector(ones...)))
	y := G.Must(G.Dropout(x, 0.25))
	cfg := plain
	cfg.Eval = true
	m := newMachine(t, g, cfg)
	run(t, m)
	if got := floats(t, y.Value()); slices.ContainsFunc(got, func(v float64) bool { return v != 1 }) {
		t.Error("dropout drops although nothing is trained")
	}
	if err := y.Op().(G.TrainModeOp).SetTraining(true); err != nil {
		t.Fatal(err)
	}
	run(t, m) // the program is made anew
	first := floats(t, y.Value())
	kept := 0
	for _, v := range first {
		if v != 0 {
			kept++
			if math.Abs(v-4.0/3) > 1e-6 {
				t.Fatalf("a kept element is %v, want 4/3", v)
			}
		}
	}
	if kept < 680 || kept > 820 {
		t.Errorf("%d of 1000 elements are kept, want about 750", kept)
	}
	run(t, m)
	if slices.Equal(floats(t, y.Value()), first) {
		t.Error("two steps drop the same")
	}
	m.SetClock(1)
	run(t, m)
	if !slices.Equal(floats(t, y.Value()), first) {
		t.Error("a step that is taken up again drops something else")
	}
}

// TestASliceCanBeMoved changes the slice of an op, as gorgonia.UnsafeLet does.
func TestASliceCanBeMoved(t *testing.T) {
	g := G.NewGraph()
	x := G.NewVector(g, G.Float32, G.WithName("x"), G.WithShape(5), G.WithValue(vector(1, 2, 3, 4, 5)))
	y := G.Must(G.Slice(x, G.S(0, 2)))
	z := G.Must(G.Neg(y))
	m := newMachine(t, g, plain)
	run(t, m)
	want(t, "the first part", z.Value(), -1, -2)
	if err := G.UnsafeLet(y, G.S(2, 4)); err != nil {
		t.Fatal(err)
	}
	run(t, m)
	want(t, "another part", z.Value(), -3, -4)
}

// TestStateIsGivenBack sets an output as the input of the next run, as recurrent networks do. The
// gradient reads the state after the new one is written. If transposed, it is read where other
// elements have been written.
func TestStateIsGivenBack(t *testing.T) {
	build := func() (n *net, h, next, turned *G.Node) {
		n = newNet()
		h = n.input("h", 40, 40)
		next = G.Must(G.Tanh(G.Must(G.Mul(h, n.param("w", 0.2, 40, 40)))))
		turned = G.Must(G.Sigmoid(G.Must(G.Transpose(h))))
		n.cost = G.Must(G.Mean(G.Must(G.Square(next))))
		return n.differentiate(), h, next, turned
	}
	for _, transposed := range []bool{false, true} {
		n, h, next, turned := build()
		m := newMachine(t, n.g, plain, next, turned, n.params[0].Deriv())
		other, copied, next2, turned2 := build()
		m2 := newMachine(t, other.g, plain, next2, turned2, other.params[0].Deriv())
		for range 3 {
			run(t, m)
			run(t, m2)
			compare(t, "the new state", next.Value(), next2.Value())
			compare(t, "the transposed state", turned.Value(), turned2.Value())
			compare(t, "the gradient", n.params[0].Deriv().Value(), other.params[0].Deriv().Value())
			from, from2 := next, next2
			if transposed {
				from, from2 = turned, turned2
			}
			v, err := G.CloneValue(from2.Value())
			if err != nil {
				t.Fatal(err)
			}
			let(t, h, from.Value())
			let(t, copied, v)
		}
	}
}

// TestAConstantGradientIsNotZeroed trains a scalar that is a summand of the cost. Its gradient is
// Gorgonia's constant 1 of all graphs. A solver that got this node would set it to 0 after a step.
func TestAConstantGradientIsNotZeroed(t *testing.T) {
	for name, cfg := range map[string]machine.Config{
		"a solver of Gorgonia": plain, "its own": {Threads: 1, BLAS: "none", Solver: &optim.Config{Name: optim.SGD, LearningRate: 0.125}},
	} {
		g := G.NewGraph()
		x := G.NewVector(g, G.Float32, G.WithName("x"), G.WithShape(2), G.WithValue(vector(1, 2)))
		s := G.NewScalar(g, G.Float32, G.WithName("s"), G.WithValue(float32(1)))
		cost := G.Must(G.Add(G.Must(G.Sum(G.Must(G.Square(x)))), s))
		if _, err := G.Grad(cost, x, s); err != nil {
			t.Fatal(err)
		}
		m := newMachine(t, g, cfg)
		solver := G.NewVanillaSolver(G.WithLearnRate(0.125))
		for range 3 {
			run(t, m)
			if cfg.Solver == nil {
				if err := solver.Step(G.NodesToValueGrads(G.Nodes{x, s})); err != nil {
					t.Fatal(err)
				}
			}
		}
		want(t, name+": the scalar", s.Value(), 1-3*0.125)
		n := small(2)
		run(t, newMachine(t, n.g, plain))
		if slices.Max(floats(t, n.params[0].Deriv().Value())) == 0 {
			t.Errorf("%s: another graph has no gradients any more", name)
		}
	}
}
