package machine_test

import (
	"fmt"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/optim"
)

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(errs ...error) {
	for _, err := range errs {
		if err != nil {
			panic(err)
		}
	}
}

// Example fits y = x w under a machine, where a tape machine stood.
func Example() {
	inputs := gtensor.New(gtensor.WithShape(4, 2), gtensor.WithBacking([]float64{1, 0, 0, 1, 1, 1, 2, 1}))
	targets := gtensor.New(gtensor.WithShape(4, 1), gtensor.WithBacking([]float64{3, -2, 1, 4})) // w is 3, -2
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(4, 2))
	y := G.NewMatrix(g, G.Float64, G.WithName("y"), G.WithShape(4, 1))
	w := G.NewMatrix(g, G.Float64, G.WithName("w"), G.WithShape(2, 1), G.WithInit(G.Zeroes()))
	cost := G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(G.Must(G.Mul(x, w)), y))))))
	must(G.Grad(cost, w))

	vm := must(machine.New(g, machine.Config{})) // in place of G.NewTapeMachine(g, G.BindDualValues(w))
	defer vm.Close()
	solver := must(vm.NewSolver(optim.Config{Name: optim.Adam, LearningRate: 0.1})) // or any of Gorgonia's
	for range 500 {
		check(G.Let(x, inputs), G.Let(y, targets), vm.RunAll(), solver.Step(G.NodesToValueGrads(G.Nodes{w})))
	}
	fmt.Printf("%.3f\n", w.Value().Data())
	// Output: [3.000 -2.000]
}
