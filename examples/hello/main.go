// Command hello learns w in y = w x. Each rank has its own rows. Every rank prints the same w.
//
//	go run ./examples/hello
//	symgrad run -n 4 -- bin/hello
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/ddp"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func main() {
	world, err := backend.Open(context.Background(), backend.Config{}) // rank and size come from the launcher
	check(err)
	defer world.Close()
	first := 8 * world.Rank() // this rank's rows of y = 3x
	xs := tensor.New(tensor.WithShape(8, 1), tensor.WithBacking(tensor.Range(tensor.Float64, first, first+8)))
	ys, err := xs.MulScalar(3.0, true)
	check(err)

	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(8, 1))
	y := G.NewMatrix(g, G.Float64, G.WithName("y"), G.WithShape(8, 1))
	w := G.NewMatrix(g, G.Float64, G.WithName("w"), G.WithShape(1, 1), G.WithInit(G.Zeroes()))
	cost := G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(G.Must(G.Mul(x, w)), y))))))
	_, err = ddp.Attach(world, cost, G.Nodes{w}, ddp.Config{}) // instead of G.Grad(cost, w)
	check(err)
	vm := G.NewTapeMachine(g, G.BindDualValues(w))
	defer vm.Close()
	solver := G.NewAdamSolver(G.WithLearnRate(0.1))
	for range 300 {
		check(G.Let(x, xs), G.Let(y, ys), vm.RunAll(), solver.Step(G.NodesToValueGrads(G.Nodes{w})))
		vm.Reset()
	}
	fmt.Printf("rank %d of %d: w = %.3f\n", world.Rank(), world.Size(), w.Value().Data())
}

func check(errs ...error) {
	for _, err := range errs {
		if err != nil {
			log.Fatal(err)
		}
	}
}
