package train_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/metrics"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/train"
)

// recorded trains w in y = w x for 100 steps, and records metrics and a timeline of two steps into
// dir.
func recorded(world *dist.World, dir string) error {
	first := 8 * world.Rank() // this rank's rows of y = 3x
	xs := gtensor.New(gtensor.WithShape(8, 1), gtensor.WithBacking(gtensor.Range(gtensor.Float64, first, first+8)))
	ys := must(xs.MulScalar(3.0, true))
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(8, 1), G.WithValue(xs))
	y := G.NewMatrix(g, G.Float64, G.WithName("y"), G.WithShape(8, 1), G.WithValue(ys))
	weight := G.NewMatrix(g, G.Float64, G.WithName("w"), G.WithShape(1, 1), G.WithInit(G.Zeroes()))
	cost := G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(G.Must(G.Mul(x, weight)), y))))))
	d := must(ddp.Attach(world, cost, G.Nodes{weight}, ddp.Config{}))
	solver := must(d.NewSolver(optim.Config{Name: optim.Adam, LearningRate: 0.1, ClipNorm: 100}))
	vm := G.NewTapeMachine(g, G.BindDualValues(weight))
	defer vm.Close()

	var out *metrics.Writer // nil on other ranks: it writes nothing
	if world.Rank() == 0 {
		out = must(metrics.Open(dir, metrics.Config{Every: 10, CSV: true, TensorBoard: true}))
	}
	trace := must(train.NewTrace(world, d))
	for step := 1; step <= 100; step++ {
		if step == 10 || step == 11 {
			trace.Begin(step)
		}
		rate := solver.LearningRate()
		check(trace.Run(vm))
		from := time.Now()
		check(solver.Step(d.Model()))
		trace.Span("optimizer", from)
		trace.End()
		vm.Reset()
		check(out.Write(step, metrics.Values{
			metrics.Loss: cost.Value().Data().(float64), metrics.LearningRate: rate,
			metrics.GradNorm: solver.GradNorm(), metrics.Samples: float64(16 * step),
		}))
	}
	check(out.Close(), trace.Write(filepath.Join(dir, "trace.json")))
	return d.Close()
}

// Two ranks record their training: symgrad plot draws its metrics, and Perfetto opens its trace.
func ExampleTrace() {
	dir := must(os.MkdirTemp("", "recorded"))
	defer os.RemoveAll(dir)
	check(backend.Simulate(2, backend.Config{}, func(world *dist.World) error { return recorded(world, dir) }))

	h := must(metrics.Read(dir))
	_, loss := must2(h.Points(metrics.Loss, metrics.Step))
	fmt.Printf("%d records, the loss falls: %v\n", len(loss), loss[99] < loss[0]/100)
	fmt.Println(strings.Join(h.Names(), " "))

	var trace struct{ TraceEvents []struct{ Name, Ph string } }
	check(json.Unmarshal(must(os.ReadFile(filepath.Join(dir, "trace.json"))), &trace))
	spans := map[string]int{}
	for _, e := range trace.TraceEvents {
		if e.Ph == "X" {
			spans[e.Name]++
		}
	}
	fmt.Println(spans)
	// Output:
	// 100 records, the loss falls: true
	// grad_norm learning_rate loss samples samples_per_second
	// map[backward:4 bucket 0:4 forward:4 optimizer:4 wait:4]
}

func must2[A, B any](a A, b B, err error) (A, B) {
	check(err)
	return a, b
}
