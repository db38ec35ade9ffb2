package optim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"
)

// benchModel returns the parameters of an MLP 784-512-512-10 in one dtype, 669,706 elements, with
// gradients of the usual size.
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

// arrays counts the memory traffic of a step, in arrays of the model's size.
type arrays struct{ read, written int }

// benchStep measures a config in float32, on one goroutine and on two. Bytes are those of one fused
// pass.
func benchStep(b *testing.B, name string, c Config, moved arrays) {
	for _, workers := range []int{1, 2} {
		c.Workers = workers
		b.Run(fmt.Sprintf("%sfloat32/workers=%d", name, workers), func(b *testing.B) {
			model, n := benchModel[float32]()
			benchSolver(b, newSolver(b, c), model, (moved.read+moved.written)*4*n)
		})
	}
}

func BenchmarkStepSGD(b *testing.B)      { benchStep(b, "", Config{Name: SGD}, arrays{2, 2}) }
func BenchmarkStepMomentum(b *testing.B) { benchStep(b, "", Config{Name: Momentum}, arrays{3, 3}) }
func BenchmarkStepNesterov(b *testing.B) { benchStep(b, "", Config{Name: Nesterov}, arrays{3, 3}) }
func BenchmarkStepLion(b *testing.B)     { benchStep(b, "", Config{Name: Lion}, arrays{3, 3}) }

func BenchmarkStepAdam(b *testing.B) {
	benchStep(b, "", Config{Name: Adam}, arrays{4, 4})
	benchStep(b, "keep/", Config{Name: Adam, KeepGradients: true}, arrays{4, 3})
	benchStep(b, "clip/", Config{Name: Adam, ClipNorm: 1}, arrays{5, 4})
	benchStep(b, "clip-value/", Config{Name: Adam, ClipValue: 1}, arrays{4, 4})
	benchStep(b, "average/", Config{Name: Adam, EMADecay: 0.999}, arrays{5, 5})
	benchStep(b, "amsgrad/", Config{Name: Adam, AMSGrad: true}, arrays{5, 5})
	b.Run("float64/workers=1", func(b *testing.B) {
		model, n := benchModel[float64]()
		benchSolver(b, newSolver(b, Config{Name: Adam, Workers: 1}), model, 8*8*n)
	})
}

func BenchmarkStepAdamW(b *testing.B) {
	c := Config{Name: AdamW, WeightDecay: 0.01}
	benchStep(b, "", c, arrays{4, 4})
	c.Groups = []Group{{MaxDims: 1, NoWeightDecay: true}}
	benchStep(b, "groups/", c, arrays{4, 4})
}

// BenchmarkStepLAMB reads everything twice: norms come before the update.
func BenchmarkStepLAMB(b *testing.B) {
	c := Config{Name: LAMB, WeightDecay: 0.01}
	benchStep(b, "", c, arrays{8, 4})
	c.ClipNorm = 1
	benchStep(b, "clip/", c, arrays{9, 4})
}

// BenchmarkStepPieces is Adam, clipped, over the pieces of one rank in both dtypes.
func BenchmarkStepPieces(b *testing.B) {
	f := newFleet(b, Config{Name: Adam, ClipNorm: 1, Workers: 1, KeepGradients: true}, 1)
	f.fill(false, draw(1), 0)
	f.fill(true, draw(2), 0)
	b.SetBytes(int64(8 * (4*len(f.weight32) + 8*len(f.weight64))))
	b.ReportAllocs()
	for b.Loop() {
		if err := f.ranks[0].Step(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGorgoniaAdam is the same model under gorgonia's Adam, with the same count of bytes.
func BenchmarkGorgoniaAdam(b *testing.B) {
	model, n := benchModel[float32]()
	benchSolver(b, gorgonia.NewAdamSolver(), model, 8*4*n)
}

// benchSolver gives every step the same gradients. Left zeroed, they would let the moments decay to
// subnormal numbers, which is another benchmark.
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
