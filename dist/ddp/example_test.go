package ddp_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/sim"
)

// trainAlone is a plain Gorgonia script: it fits y = x w on one process and returns the last cost.
func trainAlone() float64 {
	data := load(0, 1)
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(data.rows, 2))
	y := G.NewMatrix(g, G.Float64, G.WithName("y"), G.WithShape(data.rows, 1))
	w := G.NewMatrix(g, G.Float64, G.WithName("w"), G.WithShape(2, 1), G.WithInit(G.Zeroes()))
	cost := G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(G.Must(G.Mul(x, w)), y))))))
	must(G.Grad(cost, w))
	vm := G.NewTapeMachine(g, G.BindDualValues(w))
	defer vm.Close()
	solver := G.NewAdamSolver(G.WithLearnRate(0.1))
	for range 50 {
		check(G.Let(x, data.x), G.Let(y, data.y), vm.RunAll(), solver.Step(G.NodesToValueGrads(G.Nodes{w})))
		vm.Reset()
	}
	return w.Value().Data().([]float64)[1]
}

// trainTogether is the same script on any number of ranks.
func trainTogether() float64 {
	world := must(open())
	defer world.Close()
	data := load(world.Rank(), world.Size())
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(data.rows, 2))
	y := G.NewMatrix(g, G.Float64, G.WithName("y"), G.WithShape(data.rows, 1))
	w := G.NewMatrix(g, G.Float64, G.WithName("w"), G.WithShape(2, 1), G.WithInit(G.Zeroes()))
	cost := G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(G.Must(G.Mul(x, w)), y))))))
	must(ddp.Attach(world, cost, G.Nodes{w}, ddp.Config{}))
	vm := G.NewTapeMachine(g, G.BindDualValues(w))
	defer vm.Close()
	solver := G.NewAdamSolver(G.WithLearnRate(0.1))
	for range 50 {
		check(G.Let(x, data.x), G.Let(y, data.y), vm.RunAll(), solver.Step(G.NodesToValueGrads(G.Nodes{w})))
		vm.Reset()
	}
	return w.Value().Data().([]float64)[1]
}

// ExampleAttach trains on one process and on four ranks: four lines are new, two of them in the
// place of old ones.
func ExampleAttach() {
	fmt.Printf("one process: w[1] = %.6f\n", trainAlone())
	worlds := must(sim.New(4, sim.Config{})) // a real program opens its world with package dist/backend
	open = take(worlds)
	var ranks sync.WaitGroup
	weights := make([]float64, len(worlds))
	for i := range worlds {
		ranks.Go(func() { weights[i] = trainTogether() })
	}
	ranks.Wait()
	fmt.Printf("four ranks:  w[1] = %.6f\n", weights[0])
	fmt.Println("all ranks agree:", slices.Min(weights) == slices.Max(weights))
	// Output:
	// one process: w[1] = -1.034519
	// four ranks:  w[1] = -1.034519
	// all ranks agree: true
}

// TestAScriptBecomesDistributedByFourLines counts the lines of trainTogether that trainAlone has
// not.
func TestAScriptBecomesDistributedByFourLines(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	body := func(name string) []string {
		_, rest, _ := strings.Cut(string(source), "\nfunc "+name+"() float64 {\n")
		text, _, found := strings.Cut(rest, "\n}\n")
		if !found {
			t.Fatalf("no function %s", name)
		}
		return strings.Split(text, "\n")
	}
	old := body("trainAlone")
	var added []string
	for _, line := range body("trainTogether") {
		if i := slices.Index(old, line); i >= 0 {
			old = slices.Delete(old, i, i+1)
		} else {
			added = append(added, line)
		}
	}
	if len(added) > 4 || len(added) == 0 {
		t.Errorf("%d lines are new:\n%s", len(added), strings.Join(added, "\n"))
	}
}

// open is the world of the calling rank.
var open func() (*dist.World, error)

func take(worlds []*dist.World) func() (*dist.World, error) {
	queue := make(chan *dist.World, len(worlds))
	for _, w := range worlds {
		queue <- w
	}
	return func() (*dist.World, error) { return <-queue, nil }
}

// set is a part of the data: 8 samples of two numbers each, y = 2 x0 - x1.
type set struct {
	rows int
	x, y *gtensor.Dense
}

func load(rank, size int) set {
	var x, y []float64
	for i := 8 * rank / size; i < 8*(rank+1)/size; i++ {
		a, b := float64(i%3), float64(i%5)
		x, y = append(x, a, b), append(y, 2*a-b)
	}
	n := len(y)
	return set{n, gtensor.New(gtensor.WithShape(n, 2), gtensor.WithBacking(x)), gtensor.New(gtensor.WithShape(n, 1), gtensor.WithBacking(y))}
}

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
