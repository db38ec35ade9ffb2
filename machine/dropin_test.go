package machine_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/optim"
)

// wide returns a vector of float64.
func wide(v ...float64) *gtensor.Dense {
	return gtensor.New(gtensor.WithShape(len(v)), gtensor.WithBacking(v))
}

// squares returns a graph with x, h = x*x, twice = 2h, and the sum of twice, differentiated by x.
func squares(x ...float64) (in, h, twice, cost *G.Node) {
	g := G.NewGraph()
	in = G.NewVector(g, G.Float64, G.WithName("x"), G.WithShape(len(x)), G.WithValue(wide(x...)))
	h = G.Must(G.HadamardProd(in, in))
	twice = G.Must(G.Mul(h, G.NewConstant(2.0)))
	cost = G.Must(G.Sum(twice))
	if _, err := G.Grad(cost, in); err != nil {
		panic(err)
	}
	return in, h, twice, cost
}

// TestAPartOfADifferentiatedGraphRuns compiles results of gorgonia.SubgraphRoots: a prediction
// without gradients, and a cost with the gradients of one of two parameters.
func TestAPartOfADifferentiatedGraphRuns(t *testing.T) {
	x, h, twice, cost := squares(1, 2, 3)
	g := x.Graph()
	for name, outputs := range map[string]G.Nodes{"roots": nil, "named": {h}} {
		m := newMachine(t, g.SubgraphRoots(h), plain, outputs...)
		run(t, m)
		want(t, name, h.Value(), 1, 4, 9)
		if s := m.Explain(); strings.Contains(s, "d x") {
			t.Errorf("%s: a gradient is computed:\n%s", name, s)
		}
	}
	cfg := plain
	cfg.Solver = &optim.Config{Name: optim.SGD, LearningRate: 1}
	if _, err := machine.New(g.SubgraphRoots(twice), cfg, twice); !errors.Is(err, optim.ErrNoGradient) {
		t.Errorf("a solver without gradients: %v", err)
	}
	d := x.Deriv()
	m := newMachine(t, g.SubgraphRoots(cost, d), plain)
	run(t, m)
	want(t, "the cost", cost.Value(), 28)
	got, err := x.Grad()
	if err != nil {
		t.Fatal(err)
	}
	want(t, "the gradient", got, 4, 8, 12)
}

// TestAGraphOfInputsAloneRuns uses gorgonia.Sum of a scalar, which returns the scalar.
func TestAGraphOfInputsAloneRuns(t *testing.T) {
	g := G.NewGraph()
	x := G.NewScalar(g, G.Float64, G.WithName("x"))
	if sum := G.Must(G.Sum(x)); sum != x {
		t.Skip("the sum of a scalar is a node of its own")
	}
	for _, outputs := range []G.Nodes{nil, {x}} {
		m := newMachine(t, g, plain, outputs...)
		let(t, x, 3.0)
		run(t, m)
		want(t, "x", x.Value(), 3)
	}
	alone := G.NewScalar(G.NewGraph(), G.Float64, G.WithName("lone"))
	m := newMachine(t, alone.Graph(), plain)
	if err := m.RunAll(); !errors.Is(err, machine.ErrNoValue) || !strings.Contains(err.Error(), "lone") {
		t.Errorf("no value: %v", err)
	}
}

// TestKeptNodesHaveValues also checks gradients, which Keep leaves, and nodes that are not kept.
func TestKeptNodesHaveValues(t *testing.T) {
	x, h, twice, cost := squares(1, 2)
	for name, outputs := range map[string]G.Nodes{"defaults": nil, "the cost": {cost}} {
		cfg := plain
		cfg.Keep = G.Nodes{h}
		m := newMachine(t, x.Graph(), cfg, outputs...)
		for k := 1.0; k <= 2; k++ {
			let(t, x, wide(k, 2*k))
			run(t, m)
			want(t, name+": what is kept", h.Value(), k*k, 4*k*k)
			want(t, name+": the cost", cost.Value(), 10*k*k)
		}
		if twice.Value() != nil {
			t.Errorf("%s: a node that is not kept has value %v", name, twice.Value())
		}
		if f, err := machine.Foresee(x.Graph(), cfg, outputs...); err != nil || f.Outputs < 16 {
			t.Errorf("%s: foreseen %+v, %v", name, f, err)
		}
	}
	cfg := plain
	cfg.Keep = G.Nodes{small(2).cost}
	if _, err := machine.New(x.Graph(), cfg); err == nil || !strings.Contains(err.Error(), "Keep") {
		t.Errorf("a node of another graph: %v", err)
	}
}

// TestValueIsThatOfAnyNode reads inputs, outputs, gradients and middle nodes, and sets inputs
// again, one with another length.
func TestValueIsThatOfAnyNode(t *testing.T) {
	x, h, twice, cost := squares(1, 2)
	m := newMachine(t, x.Graph(), plain, cost)
	value := func(n *G.Node) G.Value {
		t.Helper()
		v, err := m.Value(n)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for k := 1.0; k <= 3; k++ {
		let(t, x, wide(k, 2*k))
		run(t, m)
		before := value(h)
		for range 2 {
			want(t, "x", value(x), k, 2*k)
			want(t, "h", value(h), k*k, 4*k*k)
			want(t, "twice", value(twice), 2*k*k, 8*k*k)
			want(t, "the cost", value(cost), 10*k*k)
			want(t, "the gradient", value(x.Deriv()), 4*k, 8*k)
		}
		let(t, x, wide(0, 0))
		want(t, "h of other inputs", value(h), 0, 0)
		want(t, "a value from before", before, k*k, 4*k*k)
	}
	if _, err := m.Value(small(2).cost); !errors.Is(err, machine.ErrNoValue) {
		t.Errorf("a node of another graph: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Value(h); !errors.Is(err, machine.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestValueDoesNotDisturbATraining reads values after dropout and batch normalization: they are
// those of the run, and running statistics do not change.
func TestValueDoesNotDisturbATraining(t *testing.T) {
	train := func(ask bool) (kept, asked [][]float64, stats []float64) {
		g := G.NewGraph()
		x := G.NewTensor(g, G.Float64, 4, G.WithName("x"), G.WithShape(8, 2, 1, 1), G.WithInit(G.Gaussian(0, 1)))
		let(t, x, gtensor.New(gtensor.WithShape(8, 2, 1, 1), gtensor.WithBacking(gtensor.Range(G.Float64, 1, 17))))
		scale := G.NewTensor(g, G.Float64, 4, G.WithName("s"), G.WithShape(1, 2, 1, 1), G.WithInit(G.Ones()))
		bias := G.NewTensor(g, G.Float64, 4, G.WithName("b"), G.WithShape(1, 2, 1, 1), G.WithInit(G.Zeroes()))
		norm, _, _, op, err := G.BatchNorm(x, scale, bias, 0.9, 1e-5)
		if err != nil {
			t.Fatal(err)
		}
		first, second := G.Must(G.Dropout(x, 0.5)), G.Must(G.Dropout(norm, 0.5))
		cost := G.Must(G.Sum(G.Must(G.Add(G.Must(G.Square(first)), G.Must(G.Square(second))))))
		cfg := plain
		if !ask {
			cfg.Keep = G.Nodes{second}
		}
		m := newMachine(t, g, cfg, cost)
		for range 3 {
			run(t, m)
			if !ask {
				kept = append(kept, floats(t, second.Value()))
				continue
			}
			v, err := m.Value(second)
			if err != nil {
				t.Fatal(err)
			}
			asked = append(asked, floats(t, v))
		}
		mean, _ := op.Stats()
		return kept, asked, floats(t, mean.(G.Value))
	}
	kept, _, wantStats := train(false)
	_, asked, gotStats := train(true)
	for k := range kept {
		for i := range kept[k] {
			if kept[k][i] != asked[k][i] {
				t.Fatalf("run %d: %v, kept %v", k, asked[k], kept[k])
			}
		}
	}
	for i := range wantStats {
		if wantStats[i] != gotStats[i] {
			t.Fatalf("running mean %v, want %v", gotStats, wantStats)
		}
	}
}

// TestValueNeedsNoOtherRank rejects nodes that need one.
func TestValueNeedsNoOtherRank(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		g := G.NewGraph()
		x := G.NewVector(g, G.Float64, G.WithName("x"), G.WithShape(2), G.WithInit(G.Ones()))
		sum, err := ops.AllReduce(w.Group, x, dist.Sum)
		if err != nil {
			return err
		}
		half := G.Must(G.Mul(sum, G.NewConstant(0.5)))
		m, err := machine.New(g, plain, G.Must(G.Sum(G.Must(G.Square(half)))))
		if err != nil {
			return err
		}
		if err := m.RunAll(); err != nil {
			return err
		}
		if _, err := m.Value(half); err == nil || !strings.Contains(err.Error(), "Config.Keep") {
			t.Errorf("a sum of ranks: %v", err)
		}
		return m.Close()
	})
}

// TestAnInputIsNotTheMemoryOfAnOutput sets results as inputs: a whole value, a part of one, a
// scalar and a gradient. They must not change in the run that overwrites their source.
func TestAnInputIsNotTheMemoryOfAnOutput(t *testing.T) {
	g := G.NewGraph()
	w := G.NewVector(g, G.Float64, G.WithName("w"), G.WithShape(2), G.WithValue(wide(1, 1)))
	s := G.NewScalar(g, G.Float64, G.WithName("s"), G.WithValue(1.0))
	next, after := G.Must(G.Add(w, G.NewConstant(1.0))), G.Must(G.Add(s, G.NewConstant(1.0)))
	square := G.Must(G.HadamardProd(w, w))
	m := newMachine(t, g, plain)
	for k := 1.0; k <= 3; k++ {
		run(t, m)
		want(t, "w", w.Value(), k, k)
		want(t, "its successor", next.Value(), k+1, k+1)
		want(t, "its square", square.Value(), k*k, k*k)
		want(t, "s", s.Value(), k)
		want(t, "the scalar's successor", after.Value(), k+1)
		held := w.Value()
		let(t, w, next.Value())
		let(t, s, after.Value())
		want(t, "what the program holds", held, k, k)
	}
	matrix := G.NewMatrix(g, G.Float64, G.WithName("m"), G.WithShape(2, 2), G.WithInit(G.Ones()))
	vec := G.NewVector(g, G.Float64, G.WithName("v"), G.WithShape(2), G.WithInit(G.Ones()))
	more := G.Must(G.Add(matrix, G.NewConstant(1.0)))
	double := G.Must(G.Mul(vec, G.NewConstant(2.0)))
	m = newMachine(t, g, plain, more, double)
	run(t, m)
	column, err := more.Value().(*gtensor.Dense).Slice(nil, G.S(1))
	if err != nil {
		t.Fatal(err)
	}
	let(t, matrix, more.Value())
	let(t, vec, column)
	run(t, m)
	want(t, "a column of the run before", vec.Value(), 2, 2)
	want(t, "twice the column", double.Value(), 4, 4)
}

// TestSetIsThatOfTheTapeMachine trains with updates that are nodes of the graph, on both machines.
func TestSetIsThatOfTheTapeMachine(t *testing.T) {
	type setter interface {
		G.VM
		Set(a, b *G.Node) error
	}
	train := func(newVM func(g *G.ExprGraph) setter) []float64 {
		g := G.NewGraph()
		x := G.NewVector(g, G.Float64, G.WithName("x"), G.WithShape(2), G.WithValue(wide(1, 2)))
		w := G.NewVector(g, G.Float64, G.WithName("w"), G.WithShape(2), G.WithValue(wide(3, -1)))
		d, err := G.Grad(G.Must(G.Sum(G.Must(G.Square(G.Must(G.HadamardProd(x, w)))))), w)
		if err != nil {
			t.Fatal(err)
		}
		next := G.Must(G.Sub(w, G.Must(G.Mul(G.NewConstant(0.1), d[0]))))
		vm := newVM(g)
		defer func() {
			if err := vm.Close(); err != nil {
				t.Error(err)
			}
		}()
		for range 5 {
			run(t, vm)
			if err := vm.Set(w, next); err != nil {
				t.Fatal(err)
			}
			vm.Reset()
		}
		return floats(t, w.Value())
	}
	expected := train(func(g *G.ExprGraph) setter { return G.NewTapeMachine(g) })
	got := train(func(g *G.ExprGraph) setter {
		m, err := machine.New(g, plain)
		if err != nil {
			t.Fatal(err)
		}
		return m
	})
	for i := range expected {
		if !(math.Abs(got[i]-expected[i]) < 1e-15) {
			t.Errorf("weights %v, want %v", got, expected)
		}
	}
	x, h, _, cost := squares(1, 2)
	m := newMachine(t, x.Graph(), plain, cost)
	run(t, m)
	if err := m.Set(x, h); !errors.Is(err, machine.ErrNoValue) || !strings.Contains(err.Error(), "Config.Keep") {
		t.Errorf("set to a node without a value: %v", err)
	}
	if err := m.Let(x, wide(5, 6)); err != nil || m.Let(x, nil) == nil {
		t.Errorf("let: %v, and nil is no error", err)
	}
}

// TestGradientsStayWhereOutputsAreNamed compiles an attached graph for its cost. With Eval it has
// no gradients.
func TestGradientsStayWhereOutputsAreNamed(t *testing.T) {
	onRanks(t, 2, func(world *dist.World) error {
		g := G.NewGraph()
		x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(4, 2), G.WithInit(G.Ones()))
		w := G.NewMatrix(g, G.Float64, G.WithName("w"), G.WithShape(2, 3), G.WithInit(G.Ones()))
		cost := G.Must(G.Mean(G.Must(G.Square(G.Must(G.Mul(x, w))))))
		d, err := ddp.Attach(world, cost, G.Nodes{w}, ddp.Config{})
		if err != nil {
			return err
		}
		eval := plain
		eval.Eval = true
		for _, cfg := range []machine.Config{plain, eval} {
			m, err := machine.New(g, cfg, cost)
			if err != nil {
				return err
			}
			if got := strings.Contains(m.Explain(), "start w"); got == cfg.Eval {
				t.Errorf("eval %v: exchanges gradients: %v", cfg.Eval, got)
			}
			if err := errors.Join(m.RunAll(), m.Close()); err != nil {
				return err
			}
		}
		v, err := w.Grad()
		if err != nil {
			return err
		}
		for _, e := range floats(t, v) {
			if math.Abs(e-4.0/3) > 1e-15 {
				t.Errorf("the gradient is %v, want 4/3", e)
			}
		}
		return d.Close()
	})
}

// TestAGraphWithoutGradientsIsToldSo replaces a lisp machine, which differentiates while it runs.
func TestAGraphWithoutGradientsIsToldSo(t *testing.T) {
	g := G.NewGraph()
	w := G.NewVector(g, G.Float64, G.WithName("w"), G.WithShape(2), G.WithValue(wide(1, 2)))
	cost := G.Must(G.Sum(G.Must(G.Square(w))))
	m := newMachine(t, g, plain)
	run(t, m)
	want(t, "the cost", cost.Value(), 5)
	if s := m.Explain(); !strings.Contains(s, "gorgonia.Grad") {
		t.Errorf("Explain does not speak of gorgonia.Grad:\n%s", s)
	}
	s, err := m.NewSolver(optim.Config{Name: optim.SGD})
	if err == nil {
		err = s.Step(G.NodesToValueGrads(G.Nodes{w}))
	}
	if !errors.Is(err, optim.ErrNoGradient) || !strings.Contains(err.Error(), "gorgonia.Grad") {
		t.Errorf("a step: %v", err)
	}
}
