package optim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"
)

// benchModel is the parameters of an MLP 784-512-512-10 in one dtype, 669,706 elements, with gradients of the usual size.
func benchModel[T float]() (model []gorgonia.ValueGrad, elements int) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, shape := range [][]int{{784, 512}, {512}, {512, 512}, {512}, {512, 10}, {10}} {
		weight, grad := make([]T, shapeSize(shape)), make([]T, shapeSize(shape))
		for i := range weight {
			weight[i], grad[i] = T(rng.NormFloat64()/20), T(rng.NormFloat64()/100)
		}
		model = append(model, &parameter{value: denseOf(weight, shape...), grad: denseOf(grad, shape...)})
		elements += len(weight)
	}
	return model, elements
}

// BenchmarkStep counts as bytes what one fused pass must move: every array read once and written once.
func BenchmarkStep(b *testing.B) {
	type arrays struct{ read, written int }
	for _, c := range []struct {
		config Config
		moved  arrays
	}{
		{Config{Name: SGD}, arrays{2, 2}},
		{Config{Name: Momentum}, arrays{3, 3}},
		{Config{Name: Adam}, arrays{4, 4}},
		{Config{Name: Adam, KeepGradients: true}, arrays{4, 3}},
		{Config{Name: Adam, ClipNorm: 1}, arrays{5, 4}},
		{Config{Name: Adam, AMSGrad: true}, arrays{5, 5}},
	} {
		for _, workers := range []int{1, 2} {
			c.config.Workers = workers
			name := c.config.Name
			if c.config.KeepGradients {
				name += "-keep"
			}
			if c.config.AMSGrad {
				name += "-amsgrad"
			}
			if c.config.ClipNorm > 0 {
				name += "-clip"
			}
			b.Run(fmt.Sprintf("%s/float32/workers=%d", name, workers), func(b *testing.B) {
				model, n := benchModel[float32]()
				benchSolver(b, newSolver(b, c.config), model, (c.moved.read+c.moved.written)*4*n)
			})
		}
	}
	b.Run("adam/float64/workers=1", func(b *testing.B) {
		model, n := benchModel[float64]()
		benchSolver(b, newSolver(b, Config{Name: Adam, Workers: 1}), model, 8*8*n)
	})
}

// BenchmarkGorgoniaAdam is the same model under gorgonia's Adam, with the same count of bytes.
func BenchmarkGorgoniaAdam(b *testing.B) {
	model, n := benchModel[float32]()
	benchSolver(b, gorgonia.NewAdamSolver(), model, 8*4*n)
}

// benchSolver gives every step the same gradients. Left zeroed, they would let the moments decay to subnormal numbers,
// which is another benchmark.
func benchSolver(b *testing.B, s gorgonia.Solver, model []gorgonia.ValueGrad, bytes int) {
	grads, saved := make([]flat, len(model)), make([]flat, len(model))
	for i, vg := range model {
		f, err := gradient(vg)
		if err != nil {
			b.Fatal(err)
		}
		grads[i], saved[i] = f, flat{f32: slices.Clone(f.f32), f64: slices.Clone(f.f64)}
	}
	b.SetBytes(int64(bytes))
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for i := range grads {
			copy(grads[i].f32, saved[i].f32)
			copy(grads[i].f64, saved[i].f64)
		}
		b.StartTimer()
		if err := s.Step(model); err != nil {
			b.Fatal(err)
		}
	}
	if math.IsNaN(norm(model)) {
		b.Fatal("weights are lost")
	}
}
