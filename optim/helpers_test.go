package optim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// parameter is a gorgonia.ValueGrad without a graph.
type parameter struct {
	name        string
	value, grad gorgonia.Value
	err         error
}

func (p *parameter) Value() gorgonia.Value         { return p.value }
func (p *parameter) Grad() (gorgonia.Value, error) { return p.grad, p.err }
func (p *parameter) Name() string                  { return p.name }

// denseOf returns a tensor over data itself; without a shape a vector.
func denseOf[T float](data []T, shape ...int) *gtensor.Dense {
	if len(shape) == 0 {
		shape = []int{len(data)}
	}
	return gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(data))
}

// vectors returns a model of one vector a pair (weight, gradient), over the given memory.
func vectors[T float](pairs ...[]T) []gorgonia.ValueGrad {
	var model []gorgonia.ValueGrad
	for i := 0; i < len(pairs); i += 2 {
		model = append(model, &parameter{name: fmt.Sprintf("w%d", i/2), value: denseOf(pairs[i]), grad: denseOf(pairs[i+1])})
	}
	return model
}

func newSolver(t testing.TB, c Config) Solver {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// norm returns the Euclidean norm of all weights.
func norm(model []gorgonia.ValueGrad) float64 {
	var sum float64
	for _, vg := range model {
		f, err := flatten(vg.Value())
		if err != nil {
			return math.NaN()
		}
		sum += sumSquares(f.f32, [4]float64{}) + sumSquares(f.f64, [4]float64{})
	}
	return math.Sqrt(sum)
}

// noise returns n normal numbers that depend on the seed only.
func noise(n int, seed uint64) []float32 {
	rng := rand.New(rand.NewPCG(seed, 99))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}
