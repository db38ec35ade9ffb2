package ddp_test

import (
	"fmt"
	"slices"
	"sync"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/optim"
)

// trainSharded fits y = x w, with a w of 1024 numbers, and returns w and the bytes of this rank.
func trainSharded(world *dist.World, stage int) ([]float64, ddp.Memory) {
	defer world.Close()
	const n = 1024
	x := make([]float64, 2*n)
	for i := range x {
		x[i] = float64((7*i+5*world.Rank())%11) / 11
	}
	g := G.NewGraph()
	in := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(2, n), G.WithValue(gtensor.New(gtensor.WithShape(2, n), gtensor.WithBacking(x))))
	w := G.NewMatrix(g, G.Float64, G.WithName("w"), G.WithShape(n, 1), G.WithInit(G.Zeroes()))
	one := G.NewConstant(1.0)
	cost := G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(G.Must(G.Mul(in, w)), one))))))
	d := must(ddp.Attach(world, cost, G.Nodes{w}, ddp.Config{Stage: stage}))
	vm := G.NewTapeMachine(g)
	defer vm.Close()
	solver := must(d.NewSolver(optim.Config{Name: optim.Adam, LearningRate: 0.001}))
	for range 20 {
		check(vm.RunAll(), solver.Step(d.Model()))
		vm.Reset()
	}
	memory := d.Memory()
	check(d.Close()) // before the world: the weights of w are w's own from here on
	return w.Value().Data().([]float64), memory
}

// ExampleDDP_NewSolver trains on four ranks, each of which has a quarter of Adam's state, and then
// of the gradients.
func ExampleDDP_NewSolver() {
	var weights [3][]float64
	for stage := range weights {
		var ranks sync.WaitGroup
		var memory ddp.Memory
		for _, world := range must(sim.New(4, sim.Config{})) {
			ranks.Go(func() {
				w, m := trainSharded(world, stage)
				if world.Rank() == 0 {
					weights[stage], memory = w, m
				}
			})
		}
		ranks.Wait()
		fmt.Printf("stage %d: gradients %d B, state of a sharded solver %d B, same weights %v\n",
			stage, memory.Grads, memory.State, slices.Equal(weights[stage], weights[0]))
	}
	// Output:
	// stage 0: gradients 8192 B, state of a sharded solver 0 B, same weights true
	// stage 1: gradients 8192 B, state of a sharded solver 4096 B, same weights true
	// stage 2: gradients 2048 B, state of a sharded solver 4096 B, same weights true
}
