package optim_test

import (
	"fmt"
	"log"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/optim"
)

// A Solver takes the place of one of gorgonia's: the loop stays as it is.
func Example() {
	g := gorgonia.NewGraph()
	xs := gtensor.New(gtensor.WithBacking([]float32{-2, -1, 0, 1, 2}))
	ys := gtensor.New(gtensor.WithBacking([]float32{-3, -1, 1, 3, 5}))
	x := gorgonia.NewVector(g, gorgonia.Float32, gorgonia.WithName("x"), gorgonia.WithValue(xs))
	y := gorgonia.NewVector(g, gorgonia.Float32, gorgonia.WithName("y"), gorgonia.WithValue(ys))
	a := gorgonia.NewScalar(g, gorgonia.Float32, gorgonia.WithName("a"), gorgonia.WithValue(float32(0)))
	b := gorgonia.NewScalar(g, gorgonia.Float32, gorgonia.WithName("b"), gorgonia.WithValue(float32(0)))
	line := gorgonia.Must(gorgonia.Add(gorgonia.Must(gorgonia.Mul(x, a)), b))
	cost := gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Sub(line, y))))))
	learnables := gorgonia.Nodes{a, b}
	if _, err := gorgonia.Grad(cost, learnables...); err != nil {
		log.Fatal(err)
	}

	solver, err := optim.New(optim.Config{
		Name:         optim.Adam,
		LearningRate: 0.1,
		ClipNorm:     5,
		Schedule:     optim.Schedule{Name: optim.Cosine, WarmupSteps: 10, Steps: 290},
	})
	if err != nil {
		log.Fatal(err)
	}
	vm := gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(learnables...))
	defer vm.Close()
	for range 300 {
		if err := vm.RunAll(); err != nil {
			log.Fatal(err)
		}
		if err := solver.Step(gorgonia.NodesToValueGrads(learnables)); err != nil {
			log.Fatal(err)
		}
		vm.Reset()
	}
	fmt.Printf("y = %.3f x + %.3f after %d steps\n", a.Value(), b.Value(), solver.Steps())
	// Output: y = 2.000 x + 1.000 after 300 steps
}

// A schedule is a value: it can be looked at before a run.
func ExampleSchedule() {
	s := optim.Schedule{Name: optim.Cosine, WarmupSteps: 2, Steps: 4, MinLearningRate: 0.1}
	for step := range 7 {
		fmt.Printf("%.3f ", s.Rate(1, step))
	}
	// Output: 0.500 1.000 1.000 0.868 0.550 0.232 0.100
}

// String prints a config with defaults filled in, and New names the wrong field.
func ExampleConfig() {
	fmt.Println(optim.Config{Name: optim.Nesterov, LearningRate: 1})
	_, err := optim.New(optim.Config{Name: optim.SGD, AMSGrad: true})
	fmt.Println(err)
	// Output:
	// nesterov learning_rate=1 momentum=0.9 weight_decay=0 clip_norm=0 schedule=constant(warmup=0)
	// sgd: amsgrad has no effect: leave it out or use adam or adamw: invalid optimizer config
}
