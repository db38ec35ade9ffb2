package ddp_test

import (
	"fmt"
	"sync"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/sim"
)

// joinEpoch trains on a rank's batches of one sample each, until no rank has any, and returns the
// parts of each step.
func joinEpoch(world *dist.World, batches []float64) (steps []string) {
	g := G.NewGraph()
	x := G.NewVector(g, G.Float64, G.WithName("x"), G.WithShape(1))
	w := G.NewVector(g, G.Float64, G.WithName("w"), G.WithShape(1), G.WithInit(G.Zeroes()))
	cost := G.Must(G.Sum(G.Must(G.Square(G.Must(G.Sub(w, x)))))) // w is to be the mean of the samples
	d := must(ddp.Attach(world, cost, G.Nodes{w}, ddp.Config{}))
	join := must(ddp.NewJoin(d))
	defer join.Close()
	vm := G.NewTapeMachine(g)
	defer vm.Close()
	solver := G.NewVanillaSolver(G.WithLearnRate(0.5))
	sample := gtensor.New(gtensor.WithShape(1), gtensor.WithBacking([]float64{0}))
	for {
		n := min(len(batches), 1)
		if n > 0 {
			sample.Set(0, batches[0])
			batches = batches[1:]
		}
		if !must(join.Next(float64(n))) {
			return steps
		}
		check(G.Let(x, sample), vm.RunAll(), solver.Step(d.Model()))
		vm.Reset()
		steps = append(steps, fmt.Sprintf("samples %v: w = %v", join.Samples(), w.Value().Data()))
	}
}

// ExampleJoin has two ranks, of which one has three batches and the other one. Both make three
// steps.
func ExampleJoin() {
	worlds := must(sim.New(2, sim.Config{})) // a real program opens its world with package dist/backend
	batches := [][]float64{{1, 5, 7}, {3}}
	steps := make([][]string, 2)
	var ranks sync.WaitGroup
	for i, w := range worlds {
		ranks.Go(func() { steps[i] = joinEpoch(w, batches[i]); check(w.Close()) })
	}
	ranks.Wait()
	for i := range steps[0] {
		fmt.Printf("rank 0: %s; rank 1: %s\n", steps[0][i], steps[1][i])
	}
	// Output:
	// rank 0: samples 2: w = [2]; rank 1: samples 2: w = [2]
	// rank 0: samples 1: w = [5]; rank 1: samples 1: w = [5]
	// rank 0: samples 1: w = [7]; rank 1: samples 1: w = [7]
}
