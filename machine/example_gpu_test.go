package machine_test

import (
	"context"
	"fmt"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/optim"
)

// Example_gpus trains on the GPU of each rank: forward and backward pass, exchange and update are
// one CUDA graph. Start it with symgrad run -n 2.
func Example_gpus() {
	world := must(backend.Open(context.Background(), backend.Config{Backend: backend.CUDA}))
	defer world.Close()
	first := float32(4 * world.Rank()) // this rank's rows of y = 3x
	inputs := gtensor.New(gtensor.WithShape(4, 1), gtensor.WithBacking([]float32{first, first + 1, first + 2, first + 3}))
	targets := must(inputs.MulScalar(float32(3), true))

	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float32, G.WithName("x"), G.WithShape(4, 1))
	y := G.NewMatrix(g, G.Float32, G.WithName("y"), G.WithShape(4, 1))
	w := G.NewMatrix(g, G.Float32, G.WithName("w"), G.WithShape(1, 1), G.WithInit(G.Zeroes()))
	cost := G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(G.Must(G.Mul(x, w)), y))))))
	must(ddp.Attach(world, cost, G.Nodes{w}, ddp.Config{}))

	adam := optim.Config{Name: optim.Adam, LearningRate: 0.1}
	vm := must(machine.New(g, machine.Config{Solver: &adam}, cost)) // the update is part of each run
	defer vm.Close()
	for step := range 300 {
		check(vm.Let(x, inputs), vm.Let(y, targets), vm.RunAll())
		if step%100 == 0 {
			fmt.Println("cost", must(vm.Scalar(cost))) // waits for the run
		}
	}
	check(vm.Sync()) // copies the parameters to their nodes
	fmt.Println("w", w.Value().Data())
}
