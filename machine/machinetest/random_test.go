package machinetest

import (
	"math"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// TestRandomTapeAgreesWithItself is the property test with the oracle as the tested machine.
func TestRandomTapeAgreesWithItself(t *testing.T) { Random(t, Tape, Options{}) }

// TestRandomGradients compares the oracle's gradients of random graphs with differences of the
// cost, so that no random graph depends on an error of Gorgonia.
func TestRandomGradients(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m, err := Graph(Recipe().Draw(rt, "recipe")).New(Config{DType: gtensor.Float64})
		if err != nil {
			rt.Fatal(err)
		}
		if wrong := wrongGradients(t, m, 1e-5); len(wrong) > 0 {
			rt.Fatalf("%v", wrong)
		}
	})
}

// TestRecipesMakeDifferentGraphs checks that the generator reaches all its ops.
func TestRecipesMakeDifferentGraphs(t *testing.T) {
	seen := map[string]bool{}
	for i := range 256 {
		recipe := make([]uint8, 24)
		for j := range recipe {
			recipe[j] = uint8(i*31 + j*j*7 + i*j*13)
		}
		m, err := Graph(recipe).New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range m.Graph.AllNodes() {
			if n.Op() != nil {
				seen[kindOf(n)] = true
			}
		}
	}
	if len(seen) < 30 {
		t.Errorf("256 recipes have %d kinds of ops: %v", len(seen), seen)
	}
}

func TestBoundsHold(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m, err := Graph(Recipe().Draw(rt, "recipe")).New(Config{})
		if err != nil {
			rt.Fatal(err)
		}
		if cost := run(t, m); math.IsNaN(cost) || math.Abs(cost) > 1e3 {
			rt.Fatalf("the cost is %v", cost)
		}
	})
}

// TestParametersWithOneGradient: both parameters of x·w0 + x·w1 have the same gradient node, and
// each must make its whole step.
func TestParametersWithOneGradient(t *testing.T) {
	f := Graph([]uint8{0, 0, 0, 0, 0, 0, 4, 0, 1, 3, 1, 2})
	o := Options{DType: gtensor.Float64, Steps: 1, Solver: func() G.Solver { return G.NewVanillaSolver(G.WithLearnRate(0.5)) }}
	m, err := f.New(o.config())
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Grads) != 2 || m.Grads[0] != m.Grads[1] {
		t.Fatalf("want two parameters with one gradient node, not %v", m.Grads)
	}
	r, err := Oracle(f, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range m.Learnables {
		before, err := elements(p.Value())
		if err != nil {
			t.Fatal(err)
		}
		for j, w := range before {
			if want := w - 0.5*r.Grads[0][i][j]; math.Abs(r.Weights[i][j]-want) > 1e-15 {
				t.Errorf("element %d of %s is %v after a step, want %v", j, p.Name(), r.Weights[i][j], want)
			}
		}
	}
}
