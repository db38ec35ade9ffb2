package machine_test

import (
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/machine"
)

// TestSetIsExecutedAfterEachRun counts runs in a parameter; the sum of squares has the result of
// the previous run.
func TestSetIsExecutedAfterEachRun(t *testing.T) {
	g := G.NewGraph()
	w := list(g, "w", []float64{1, 1})
	G.Set(w, G.Must(G.Add(w, G.NewConstant(1.0))))
	s := G.Must(G.Sum(G.Must(G.Square(w))))
	for _, outputs := range []G.Nodes{nil, {s}} { // statements do not depend on the outputs
		let(t, w, gtensor.New(gtensor.WithShape(2), gtensor.WithBacking([]float64{1, 1})))
		m := newMachine(t, g, plain, outputs...)
		for k := 1.0; k < 4; k++ {
			run(t, m)
			want(t, "sum of squares", s.Value(), 2*k*k)
			want(t, "w", w.Value(), k+1, k+1)
			m.Reset()
		}
	}
}

// TestSetsTakeValuesBeforeAnyChanges swaps two inputs, one of which is a view with gaps, and sets a
// scalar.
func TestSetsTakeValuesBeforeAnyChanges(t *testing.T) {
	g := G.NewGraph()
	a := list(g, "a", []float64{1, 2})
	wide := gtensor.New(gtensor.WithShape(2, 2), gtensor.WithBacking([]float64{3, 100, 4, 200}))
	column, err := wide.Slice(nil, G.S(0))
	if err != nil {
		t.Fatal(err)
	}
	b := G.NewVector(g, G.Float64, G.WithName("b"), G.WithShape(2), G.WithValue(column))
	n := G.NodeFromAny(g, 5.0, G.WithName("n"))
	G.Set(a, b)
	G.Set(b, a)
	G.Set(n, G.Must(G.Sum(a)))
	run(t, newMachine(t, g, plain))
	want(t, "a", a.Value(), 3, 4)
	want(t, "n", n.Value(), 3)
	if got := wide.Float64s(); got[0] != 1 || got[1] != 100 || got[2] != 2 || got[3] != 200 {
		t.Errorf("the matrix of b is %v", got)
	}
}

func TestSetsThatCannotBeAreNamed(t *testing.T) {
	for name, build := range map[string]func(g *G.ExprGraph, w *G.Node){
		`node "square(%0)": it is computed by the op square`: func(g *G.ExprGraph, w *G.Node) { G.Set(G.Must(G.Square(w)), w) },
		`types and shapes must agree`:                        func(g *G.ExprGraph, w *G.Node) { G.Set(w, G.Must(G.Sum(w))) },
	} {
		g := G.NewGraph()
		build(g, list(g, "w", []float64{1, 2}))
		_, err := machine.New(g, plain)
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "gorgonia.Set") {
			t.Errorf("error %v, want one that says %s", err, name)
		}
	}
}
