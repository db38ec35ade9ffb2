package machine_test

import (
	"fmt"
	"runtime"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/machine"
)

// manyParameters returns a graph of n small parameters, each times an input, in a chain of sums,
// with gradients.
func manyParameters(tb testing.TB, n int) *G.ExprGraph {
	tb.Helper()
	g := G.NewGraph()
	x := G.NewVector(g, G.Float32, G.WithName("x"), G.WithShape(2), G.WithInit(G.Ones()))
	var params G.Nodes
	var sum *G.Node
	for i := range n {
		p := G.NewVector(g, G.Float32, G.WithName(fmt.Sprint("p", i)), G.WithShape(2),
			G.WithValue(gtensor.New(gtensor.WithShape(2), gtensor.WithBacking([]float32{1, float32(i)}))))
		params = append(params, p)
		if q := G.Must(G.HadamardProd(p, x)); sum == nil {
			sum = q
		} else {
			sum = G.Must(G.Add(sum, q))
		}
	}
	if _, err := G.Grad(G.Must(G.Sum(sum)), params...); err != nil {
		tb.Fatal(err)
	}
	return g
}

// BenchmarkCompileManyParameters is New for graphs with more and more parameters.
func BenchmarkCompileManyParameters(b *testing.B) {
	for _, n := range []int{500, 1000, 2000, 4000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			g := manyParameters(b, n)
			b.ReportAllocs()
			for b.Loop() {
				m, err := machine.New(g, machine.Config{BLAS: "none"})
				if err != nil {
					b.Fatal(err)
				}
				if err := m.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestCompilingTakesMemoryInProportion compares the bytes that New allocates for 250 and for 1000
// parameters. Passes that read the whole program after each change allocate 10 times as many.
func TestCompilingTakesMemoryInProportion(t *testing.T) {
	bytes := func(n int) float64 {
		g := manyParameters(t, n)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := machine.New(g, machine.Config{BLAS: "none"})
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	bytes(10)
	if few, many := bytes(250), bytes(1000); many > 6*few {
		t.Errorf("250 parameters take %.0f bytes, 1000 take %.0f, %.1f times as many", few, many, many/few)
	}
}
