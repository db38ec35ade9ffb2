package optim

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// TestAdamAgreesWithGorgonias uses the default rate of both. The difference is float32 rounding on
// both sides, so it grows with the rate: at 0.01 it is 2.03e-6, ours being 1.0e-6 and gorgonia's
// 1.7e-6 away from float64.
func TestAdamAgreesWithGorgonias(t *testing.T) {
	const n = 300
	ours, theirs := noise(n, 1), noise(n, 1)
	g, h := make([]float32, n), make([]float32, n)
	s := newSolver(t, Config{Name: Adam})
	reference := gorgonia.NewAdamSolver()
	model, twin := vectors(ours[:200], g[:200], ours[200:], g[200:]), vectors(theirs[:200], h[:200], theirs[200:], h[200:])
	for step := range uint64(50) {
		copy(g, noise(n, 10+step))
		copy(h, g)
		if err := s.Step(model); err != nil {
			t.Fatal(err)
		}
		if err := reference.Step(twin); err != nil {
			t.Fatal(err)
		}
		for i := range ours {
			if diff := math.Abs(float64(ours[i] - theirs[i])); !(diff <= 2e-6) {
				t.Fatalf("step %d element %d: %v, gorgonia has %v, difference %g", step+1, i, ours[i], theirs[i], diff)
			}
		}
	}
}

// regression is a graph that fits tanh(x*w0 + b0)*w1 + b1 to a smooth function of three inputs, and
// its machine.
type regression struct {
	params gorgonia.Nodes
	cost   *gorgonia.Node
	vm     gorgonia.VM
}

func newRegression(t testing.TB, dt gtensor.Dtype, bind bool) *regression {
	t.Helper()
	const rows, inputs, hidden = 64, 3, 8
	g := gorgonia.NewGraph()
	tensorOf := func(data []float32, shape ...int) *gtensor.Dense {
		if dt == gtensor.Float32 {
			return denseOf(data, shape...)
		}
		wide := make([]float64, len(data))
		for i, v := range data {
			wide[i] = float64(v)
		}
		return denseOf(wide, shape...)
	}
	matrix := func(name string, data []float32, shape ...int) *gorgonia.Node {
		return gorgonia.NewMatrix(g, dt, gorgonia.WithName(name), gorgonia.WithShape(shape...), gorgonia.WithValue(tensorOf(data, shape...)))
	}
	xs, ys := noise(rows*inputs, 1), make([]float32, rows)
	for i := range ys {
		x := xs[i*inputs : (i+1)*inputs]
		ys[i] = float32(math.Sin(float64(x[0]))) - x[1]/2 + x[2]/3
	}
	x, y := matrix("x", xs, rows, inputs), matrix("y", ys, rows, 1)
	r := &regression{params: gorgonia.Nodes{
		matrix("w0", noise(inputs*hidden, 2), inputs, hidden), matrix("b0", make([]float32, hidden), 1, hidden),
		matrix("w1", noise(hidden, 3), hidden, 1), matrix("b1", make([]float32, 1), 1, 1),
	}}
	layer := func(in, w, b *gorgonia.Node) *gorgonia.Node {
		return gorgonia.Must(gorgonia.BroadcastAdd(gorgonia.Must(gorgonia.Mul(in, w)), b, nil, []byte{0}))
	}
	out := layer(gorgonia.Must(gorgonia.Tanh(layer(x, r.params[0], r.params[1]))), r.params[2], r.params[3])
	r.cost = gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Sub(out, y))))))
	if _, err := gorgonia.Grad(r.cost, r.params...); err != nil {
		t.Fatal(err)
	}
	r.vm = machine(t, g, bind, r.params)
	return r
}

func machine(t testing.TB, g *gorgonia.ExprGraph, bind bool, params gorgonia.Nodes) gorgonia.VM {
	var vm gorgonia.VM
	if bind {
		vm = gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(params...))
	} else {
		vm = gorgonia.NewTapeMachine(g)
	}
	t.Cleanup(func() {
		if err := vm.Close(); err != nil {
			t.Error(err)
		}
	})
	return vm
}

// train makes steps and returns the cost before each.
func (r *regression) train(t testing.TB, s gorgonia.Solver, steps int) []float64 {
	t.Helper()
	var costs []float64
	for range steps {
		if err := r.vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		switch cost := r.cost.Value().Data().(type) {
		case float32:
			costs = append(costs, float64(cost))
		case float64:
			costs = append(costs, cost)
		}
		if err := s.Step(gorgonia.NodesToValueGrads(r.params)); err != nil {
			t.Fatal(err)
		}
		r.vm.Reset()
	}
	return costs
}

func TestEveryRuleTrainsAGorgoniaGraph(t *testing.T) {
	for _, c := range []Config{
		{Name: SGD, LearningRate: 0.1},
		{Name: Momentum, LearningRate: 0.03},
		{Name: Momentum, LearningRate: 0.03, Nesterov: true, ClipNorm: 1},
		{Name: Adam, LearningRate: 0.02, Schedule: Schedule{Name: Cosine, WarmupSteps: 10, Steps: 190}},
		{Name: AdamW, LearningRate: 0.02, WeightDecay: 1e-3},
	} {
		for _, dt := range []gtensor.Dtype{gtensor.Float32, gtensor.Float64} {
			t.Run(fmt.Sprintf("%s/%v", c.Name, dt), func(t *testing.T) {
				var weights [2][]any
				for i, bind := range []bool{false, true} {
					r := newRegression(t, dt, bind)
					before := r.params[0].Value().Data()
					costs := r.train(t, newSolver(t, c), 200)
					if first, last := costs[0], costs[len(costs)-1]; !(last < first/20) {
						t.Errorf("bind %t: cost went from %v to %v", bind, first, last)
					}
					for _, p := range r.params {
						weights[i] = append(weights[i], p.Value().Data())
					}
					if fmt.Sprintf("%p", before) != fmt.Sprintf("%p", weights[i][0]) {
						t.Errorf("bind %t: weights moved to other memory", bind)
					}
				}
				// BindDualValues adds every gradient into zeroed memory, which changes no bit.
				if a, b := fmt.Sprint(weights[0]), fmt.Sprint(weights[1]); a != b {
					t.Errorf("weights with and without BindDualValues differ:\n%s\n%s", a, b)
				}
			})
		}
	}
}

func TestGradientsOfSeveralRunsAccumulateIntoOneStep(t *testing.T) {
	// Two runs of the same batch, averaged by the gradient scale, are one run.
	once, twice := newRegression(t, gtensor.Float64, true), newRegression(t, gtensor.Float64, true)
	s, halved := newSolver(t, Config{Name: SGD, LearningRate: 0.1}), newSolver(t, Config{Name: SGD, LearningRate: 0.1})
	if err := halved.SetGradientScale(0.5); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		once.train(t, s, 1)
		if err := twice.vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		twice.vm.Reset()
		twice.train(t, halved, 1)
	}
	for i, p := range once.params {
		if !slices.Equal(p.Value().Data().([]float64), twice.params[i].Value().Data().([]float64)) {
			t.Errorf("%s differs", p.Name())
		}
	}
}

func TestStepBeforeTheFirstRunIsAnError(t *testing.T) {
	r := newRegression(t, gtensor.Float32, false)
	err := newSolver(t, Config{Name: SGD}).Step(gorgonia.NodesToValueGrads(r.params))
	if err == nil {
		t.Fatal("no error")
	}
	if want := "sgd step 1: parameter 0 w0: gradient: it is nil: run the VM before the step; a machine with named outputs computes the gradients that are among them: no gradient"; err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestScalarNodesOfAGraphAreTrained(t *testing.T) {
	for _, bind := range []bool{false, true} {
		g := gorgonia.NewGraph()
		scalar := func(name string, v float64) *gorgonia.Node {
			return gorgonia.NewScalar(g, gorgonia.Float64, gorgonia.WithName(name), gorgonia.WithValue(v))
		}
		a, x := scalar("a", 1), scalar("x", 3)
		miss := gorgonia.Must(gorgonia.Sub(gorgonia.Must(gorgonia.Mul(a, x)), scalar("y", 6)))
		if _, err := gorgonia.Grad(gorgonia.Must(gorgonia.Square(miss)), a); err != nil {
			t.Fatal(err)
		}
		vm := machine(t, g, bind, gorgonia.Nodes{a})
		s := newSolver(t, Config{Name: SGD, LearningRate: 0.05})
		for range 50 {
			if err := vm.RunAll(); err != nil {
				t.Fatal(err)
			}
			if err := s.Step(gorgonia.NodesToValueGrads(gorgonia.Nodes{a})); err != nil {
				t.Fatal(err)
			}
			vm.Reset()
		}
		if got := a.Value().Data().(float64); math.Abs(got-2) > 1e-9 {
			t.Errorf("bind %t: a = %v, want 2", bind, got)
		}
	}
}

func TestSumOfTwoParametersMovesBoth(t *testing.T) {
	// a and b have one gradient node. Without BindDualValues it is one tensor for both.
	for _, bind := range []bool{false, true} {
		g := gorgonia.NewGraph()
		vector := func(name string, v ...float64) *gorgonia.Node {
			return gorgonia.NewVector(g, gorgonia.Float64, gorgonia.WithName(name), gorgonia.WithShape(len(v)), gorgonia.WithValue(denseOf(v)))
		}
		params := gorgonia.Nodes{vector("a", 1, 2), vector("b", 3, 4)}
		cost := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Add(params[0], params[1]))))))
		if _, err := gorgonia.Grad(cost, params...); err != nil {
			t.Fatal(err)
		}
		vm := machine(t, g, bind, params)
		if err := vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		if err := newSolver(t, Config{Name: SGD, LearningRate: 0.25}).Step(gorgonia.NodesToValueGrads(params)); err != nil {
			t.Fatal(err)
		}
		// The gradient is 2*(a+b) = 8, 12, the step 2, 3.
		a, b := params[0].Value().Data().([]float64), params[1].Value().Data().([]float64)
		if !slices.Equal(a, []float64{-1, -1}) || !slices.Equal(b, []float64{1, 1}) {
			t.Errorf("bind %t: a = %v, b = %v, want [-1 -1] and [1 1]", bind, a, b)
		}
	}
}

func TestConstantsOfTheGraphAreNotZeroed(t *testing.T) {
	// The gradient of a is gorgonia's own 1, one for the whole process.
	t.Run("a+x", func(t *testing.T) {
		constantGradient(t, func(g *gorgonia.ExprGraph) (a, cost *gorgonia.Node) {
			a = gorgonia.NewScalar(g, gorgonia.Float64, gorgonia.WithName("a"), gorgonia.WithValue(1.0))
			x := gorgonia.NewScalar(g, gorgonia.Float64, gorgonia.WithName("x"), gorgonia.WithValue(1.0))
			return a, gorgonia.Must(gorgonia.Add(a, x))
		})
	})
	t.Run("under another header", func(t *testing.T) { // a tensor over the memory of that 1
		constantGradient(t, func(g *gorgonia.ExprGraph) (a, cost *gorgonia.Node) {
			a = gorgonia.NewVector(g, gorgonia.Float64, gorgonia.WithName("a"), gorgonia.WithShape(1), gorgonia.WithInit(gorgonia.Ones()))
			return a, gorgonia.Must(gorgonia.Reshape(a, gtensor.Shape{}))
		})
	})
}

// constantGradient makes steps of a cost whose gradient of a, 1 at first, is 1.
func constantGradient(t *testing.T, build func(g *gorgonia.ExprGraph) (a, cost *gorgonia.Node)) {
	for _, bind := range []bool{false, true, false} {
		g := gorgonia.NewGraph()
		a, cost := build(g)
		params := gorgonia.Nodes{a}
		if _, err := gorgonia.Grad(cost, params...); err != nil {
			t.Fatal(err)
		}
		vm := machine(t, g, bind, params)
		s := newSolver(t, Config{Name: SGD, LearningRate: 0.25})
		for step := 1; step <= 3; step++ {
			if err := vm.RunAll(); err != nil {
				t.Fatal(err)
			}
			if err := s.Step(gorgonia.NodesToValueGrads(params)); err != nil {
				t.Fatal(err)
			}
			vm.Reset()
			got := a.Value().Data()
			if vector, ok := got.([]float64); ok {
				got = vector[0]
			}
			if want := 1 - float64(step)/4; got != want {
				t.Errorf("bind %t step %d: a = %v, want %v", bind, step, got, want)
			}
		}
		if err := ZeroGradients(gorgonia.NodesToValueGrads(params)); err != nil {
			t.Error(err)
		}
	}
}
