package machine_test

import (
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/optim"
)

// TestAScalarMayBeATensor trains a parameter without dimensions whose value is a tensor: its
// gradient is one too, as solvers want.
func TestAScalarMayBeATensor(t *testing.T) {
	dual, within := plain, plain
	dual.DualValues, within.Solver = true, &optim.Config{Name: optim.SGD, LearningRate: 0.125}
	for name, cfg := range map[string]machine.Config{"plain": plain, "dual values": dual, "a solver within": within} {
		g := G.NewGraph()
		x := G.NewVector(g, G.Float32, G.WithName("x"), G.WithShape(3), G.WithValue(vector(1, 2, 3)))
		w := G.NewScalar(g, G.Float32, G.WithName("w"), G.WithValue(gtensor.New(gtensor.FromScalar(float32(2)))))
		cost := G.Must(G.Mean(G.Must(G.Mul(x, w))))
		if _, err := G.Grad(cost, w); err != nil {
			t.Fatal(err)
		}
		m := newMachine(t, g, cfg)
		solver := G.NewVanillaSolver(G.WithLearnRate(0.125))
		for step := range 2 {
			run(t, m)
			want(t, name+": the cost", cost.Value(), 2*(2-0.25*float64(step)))
			if cfg.Solver == nil {
				if err := solver.Step(G.NodesToValueGrads(G.Nodes{w})); err != nil {
					t.Fatal(err)
				}
			}
		}
		want(t, name+": the parameter", w.Value(), 1.5)
	}
}
