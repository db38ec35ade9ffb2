package machine_test

import (
	"runtime"
	"testing"
	"time"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/machine"
)

// TestARunAllocatesNothing runs steps with inputs in place.
func TestARunAllocatesNothing(t *testing.T) {
	for name, build := range map[string]func() *net{
		"perceptron": func() *net { return small(6) }, "convolutional": convolutional, "transformer": transformer,
	} {
		t.Run(name, func(t *testing.T) {
			n := build()
			m, err := machine.New(n.g, machine.Config{Threads: 2, BLAS: "none"})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			var failed error
			allocs := testing.AllocsPerRun(5, func() {
				if err := m.RunAll(); err != nil {
					failed = err
				}
			})
			if failed != nil || allocs != 0 {
				t.Errorf("a run allocates %v times (%v)", allocs, failed)
			}
		})
	}
}

// TestMachinesLeaveNothingBehind makes and closes 1000 machines of one graph: heap and goroutines
// must not grow.
func TestMachinesLeaveNothingBehind(t *testing.T) {
	n := small(4)
	cycle := func(times int) {
		for range times {
			m, err := machine.New(n.g, machine.Config{Threads: 2, BLAS: "none"})
			if err == nil {
				err = m.RunAll()
			}
			if err == nil {
				err = m.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	live := func() uint64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	cycle(10)
	heap, goroutines := live(), runtime.NumGoroutine()
	cycle(1000)
	// One that has signalled its end may still be counted for a moment.
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > goroutines; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
		}
	}
	const slack = 200 << 10 // a cycle allocates more than 100 KiB
	if heapNow := live(); heapNow > heap+slack {
		t.Errorf("1000 cycles left %d KiB", (heapNow-heap)>>10)
	}
}

// TestAGradientIsGivenBack sets a parameter's dual value as an input, which the run reads
// transposed while it adds to the gradient.
func TestAGradientIsGivenBack(t *testing.T) {
	const side = 100
	n := newNet()
	x := n.input("x", side, side)
	n.cost = G.Must(G.Sum(G.Must(G.HadamardProd(G.Must(G.Transpose(x, 1, 0)), n.param("w", 1, side, side)))))
	n.differentiate()
	first := make([]float32, side*side)
	for i := range first {
		first[i] = float32(i % 97)
	}
	let(t, x, gtensor.New(gtensor.WithShape(side, side), gtensor.WithBacking(first)))
	cfg := plain
	cfg.DualValues = true
	m := newMachine(t, n.g, cfg)
	run(t, m)
	grad, err := n.params[0].Grad()
	if err != nil {
		t.Fatal(err)
	}
	let(t, x, grad)
	run(t, m)
	sums := make([]float64, side*side)
	for i := range sums {
		sums[i] = float64(first[i] + first[i%side*side+i/side])
	}
	want(t, "the gradient and itself transposed", grad, sums...)
}
