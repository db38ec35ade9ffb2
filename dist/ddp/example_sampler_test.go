package ddp_test

import (
	"fmt"
	"sync"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/sim"
)

// column is the samples of these indices: number i is scale*i/10.
func column(indices []int, scale float64) G.Value {
	if len(indices) == 0 {
		return nil
	}
	v := make([]float64, len(indices))
	for row, i := range indices {
		v[row] = scale * float64(i) / 10
	}
	return gtensor.New(gtensor.WithShape(len(v), 1), gtensor.WithBacking(v))
}

// fit fits y = x w in global batches of 7 of 10 samples: each second batch has 3, and the ranks'
// parts are of any length.
func fit(world *dist.World) float64 {
	defer world.Close()
	sampler := must(data.NewSampler(data.SamplerConfig{
		Samples: 10, GlobalBatch: 7, Rank: world.Rank(), Size: world.Size(), Shuffle: true,
	}))
	rows := (7-1)/world.Size() + 1 // of the graph: the longest part
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(rows, 1))
	y := G.NewMatrix(g, G.Float64, G.WithName("y"), G.WithShape(rows, 1))
	w := G.NewMatrix(g, G.Float64, G.WithName("w"), G.WithShape(1, 1), G.WithInit(G.Zeroes()))
	cost := G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(G.Must(G.Mul(x, w)), y))))))
	d := must(ddp.Attach(world, cost, G.Nodes{w}, ddp.Config{}))
	vm := G.NewTapeMachine(g, G.BindDualValues(w)) // or machine.New(g, machine.Config{})
	defer vm.Close()
	solver := G.NewVanillaSolver(G.WithLearnRate(0.5))
	for range 3 * sampler.Steps() {
		b := sampler.Next()
		check(d.RunPart(vm, len(b.Indices), ddp.Input{Node: x, Value: column(b.Indices, 1)}, ddp.Input{Node: y, Value: column(b.Indices, 4)}),
			solver.Step(G.NodesToValueGrads(G.Nodes{w})))
		vm.Reset()
	}
	return w.Value().Data().([]float64)[0]
}

// Example_sampler trains on batches that the ranks do not divide and that are shorter at the end of
// an epoch. Any number of ranks finds the same weight: each gradient is the mean over the samples
// of the batch.
func Example_sampler() {
	for _, n := range []int{1, 3, 4} {
		found := make([]float64, n)
		var ranks sync.WaitGroup
		for r, w := range must(sim.New(n, sim.Config{})) {
			ranks.Go(func() { found[r] = fit(w) })
		}
		ranks.Wait()
		fmt.Printf("ranks %d: w = %.9f\n", n, found[n-1])
	}
	// Output:
	// ranks 1: w = 3.488720908
	// ranks 3: w = 3.488720908
	// ranks 4: w = 3.488720908
}
