package train_test

import (
	"fmt"
	"log"
	"os"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/train"
)

// learnTo trains w in y = w x up to a step, from the newest checkpoint in dir. It saves every 10
// steps.
func learnTo(world *dist.World, dir string, steps int) float64 {
	first := 8 * world.Rank() // this rank's rows of y = 3x
	xs := gtensor.New(gtensor.WithShape(8, 1), gtensor.WithBacking(gtensor.Range(gtensor.Float64, first, first+8)))
	ys := must(xs.MulScalar(3.0, true))
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(8, 1))
	y := G.NewMatrix(g, G.Float64, G.WithName("y"), G.WithShape(8, 1))
	weight := G.NewMatrix(g, G.Float64, G.WithName("w"), G.WithShape(1, 1), G.WithInit(G.Zeroes()))
	cost := G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(G.Must(G.Mul(x, weight)), y))))))

	d := must(ddp.Attach(world, cost, G.Nodes{weight}, ddp.Config{}))
	solver := must(d.NewSolver(optim.Config{Name: optim.Adam, LearningRate: 0.1}))
	vm := G.NewTapeMachine(g, G.BindDualValues(weight))
	defer vm.Close()
	state := train.State{World: world, DDP: d, Solver: solver, Keep: 3}
	for step := must(train.Resume(dir, state)) + 1; step <= steps; step++ {
		check(G.Let(x, xs), G.Let(y, ys), vm.RunAll(), solver.Step(d.Model()))
		vm.Reset()
		if step%10 == 0 {
			check(train.Save(dir, step, state))
		}
	}
	return weight.Value().Data().([]float64)[0]
}

// Two ranks stop after 20 steps, and three go on.
func ExampleResume() {
	dir := must(os.MkdirTemp("", "checkpoints"))
	defer os.RemoveAll(dir)
	for _, run := range []struct{ ranks, steps int }{{2, 20}, {3, 100}} {
		check(backend.Simulate(run.ranks, backend.Config{}, func(world *dist.World) error {
			w := learnTo(world, dir, run.steps)
			if world.Rank() == 0 {
				fmt.Printf("%d ranks, step %d: w = %.3f\n", run.ranks, run.steps, w)
			}
			return nil
		}))
	}
	// Output:
	// 2 ranks, step 20: w = 1.881
	// 3 ranks, step 100: w = 3.018
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(errs ...error) {
	for _, err := range errs {
		if err != nil {
			log.Fatal(err)
		}
	}
}
