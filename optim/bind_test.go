package optim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// TestModelMistakesAreNamedBeforeAnyWeightIsTouched makes one good step, spoils parameter 1 of 3
// and steps again.
func TestModelMistakesAreNamedBeforeAnyWeightIsTouched(t *testing.T) {
	noGrad := errors.New("no Gradient node")
	for _, c := range []struct {
		name  string
		spoil func(model []gorgonia.ValueGrad, p *parameter) []gorgonia.ValueGrad
		kind  error
		says  string
	}{
		{
			"one parameter fewer", func(m []gorgonia.ValueGrad, _ *parameter) []gorgonia.ValueGrad { return m[:2] },
			ErrMismatch, "the model has 2 parameters and the solver has state for 3",
		},
		{
			"one parameter more", func(m []gorgonia.ValueGrad, _ *parameter) []gorgonia.ValueGrad { return append(m, m[0]) },
			ErrMismatch, "the model has 4 parameters and the solver has state for 3",
		},
		{
			"no parameters", func([]gorgonia.ValueGrad, *parameter) []gorgonia.ValueGrad { return nil },
			ErrMismatch, "the model has no parameters",
		},
		{
			"nil parameter", func(m []gorgonia.ValueGrad, _ *parameter) []gorgonia.ValueGrad { m[1] = nil; return m },
			ErrNoGradient, "parameter 1: it is nil",
		},
		{
			"nil node", func(m []gorgonia.ValueGrad, _ *parameter) []gorgonia.ValueGrad {
				m[1] = (*gorgonia.Node)(nil)
				return m
			},
			ErrNoGradient, "parameter 1: it is nil",
		},
		{
			"no gradient", func(m []gorgonia.ValueGrad, p *parameter) []gorgonia.ValueGrad { p.err = noGrad; return m },
			ErrNoGradient, "parameter 1 w1: gradient: no Gradient node: call gorgonia.Grad",
		},
		{
			"nil gradient", func(m []gorgonia.ValueGrad, p *parameter) []gorgonia.ValueGrad { p.grad = nil; return m },
			ErrNoGradient, "parameter 1 w1: gradient: it is nil: run the VM",
		},
		{
			"nil weight", func(m []gorgonia.ValueGrad, p *parameter) []gorgonia.ValueGrad { p.value = nil; return m },
			ErrNoGradient, "parameter 1 w1: weight: it is nil",
		},
		{"gradient of another shape", func(m []gorgonia.ValueGrad, p *parameter) []gorgonia.ValueGrad {
			p.grad = denseOf(make([]float64, 6), 3, 2)
			return m
		}, ErrMismatch, "parameter 1 w1: weight has shape (2, 3) and gradient has shape (3, 2)"},
		{"gradient of another dtype", func(m []gorgonia.ValueGrad, p *parameter) []gorgonia.ValueGrad {
			p.grad = denseOf(make([]float32, 6), 2, 3)
			return m
		}, ErrMismatch, "parameter 1 w1: weight is float64 and gradient is float32"},
		{"parameter of another shape", func(m []gorgonia.ValueGrad, p *parameter) []gorgonia.ValueGrad {
			p.value, p.grad = denseOf(make([]float64, 6), 3, 2), denseOf(make([]float64, 6), 3, 2)
			return m
		}, ErrMismatch, "parameter 1 w1: weight has shape (3, 2) and the solver's state (2, 3)"},
		{"parameter of another dtype", func(m []gorgonia.ValueGrad, p *parameter) []gorgonia.ValueGrad {
			p.value, p.grad = denseOf(make([]float32, 6), 2, 3), denseOf(make([]float32, 6), 2, 3)
			return m
		}, ErrMismatch, "parameter 1 w1: weight is float32 and the solver's state is float64"},
		{"view", func(m []gorgonia.ValueGrad, p *parameter) []gorgonia.ValueGrad {
			_ = p.grad.(*gtensor.Dense).T()
			return m
		}, ErrUnsupported, "parameter 1 w1: gradient: shape (3, 2) with strides [1 3] is a view"},
		{"weight that is its own gradient", func(m []gorgonia.ValueGrad, p *parameter) []gorgonia.ValueGrad {
			p.grad = denseOf(p.value.Data().([]float64), 2, 3)
			return m
		}, ErrUnsupported, "parameter 1 share memory"},
		{"same weight twice", func(m []gorgonia.ValueGrad, _ *parameter) []gorgonia.ValueGrad {
			p0, p2 := m[0].(*parameter), m[2].(*parameter)
			p2.value = denseOf(p0.value.Data().([]float64)[2:])
			return m
		}, ErrUnsupported, "weight of parameter 0 and weight of parameter 2 share memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var model []gorgonia.ValueGrad
			var weights [][]float64
			for i, shape := range [][]int{{6}, {2, 3}, {4}} {
				w, g := make([]float64, shapeSize(shape)), make([]float64, shapeSize(shape))
				w[0] = float64(i + 1)
				weights = append(weights, w)
				model = append(model, &parameter{name: fmt.Sprintf("w%d", i), value: denseOf(w, shape...), grad: denseOf(g, shape...)})
			}
			s := newSolver(t, Config{Name: AdamW, LearningRate: 0.5, WeightDecay: 0.5})
			if err := s.Step(model); err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprint(weights)

			err := s.Step(c.spoil(slices.Clone(model), model[1].(*parameter)))
			if !errors.Is(err, c.kind) {
				t.Fatalf("error %v, want %v", err, c.kind)
			}
			if !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "adamw step 2: ") {
				t.Errorf("error %q does not say %q", err, c.says)
			}
			if got := fmt.Sprint(weights); got != want || s.Steps() != 1 {
				t.Errorf("the refused step changed the weights to %s or the count to %d", got, s.Steps())
			}
		})
	}
}

func TestFirstStepThatFailsLeavesTheSolverFresh(t *testing.T) {
	s := newSolver(t, Config{Name: Adam})
	if err := s.Step(vectors([]float64{1}, []float64{1, 2})); !errors.Is(err, ErrMismatch) {
		t.Fatalf("error %v", err)
	}
	if st := s.State(); len(st.Params) != 0 || st.Steps != 0 {
		t.Fatalf("state %+v after a failed first step", st)
	}
	if err := s.Step(vectors([]float32{1, 2}, []float32{1, 2}, []float32{1}, []float32{1})); err != nil {
		t.Errorf("another model after a failed first step: %v", err)
	}
}

func TestGradientsAreZeroedUnlessKept(t *testing.T) {
	for _, keep := range []bool{false, true} {
		for _, name := range []string{SGD, Momentum, Adam} {
			g32, g64 := noise(spanLen+3, 1), []float64{1, 2}
			before32 := slices.Clone(g32)
			model := append(vectors(noise(spanLen+3, 2), g32), vectors([]float64{0, 0}, g64)...)
			if err := newSolver(t, Config{Name: name, KeepGradients: keep}).Step(model); err != nil {
				t.Fatal(err)
			}
			want32, want64 := make([]float32, spanLen+3), []float64{0, 0}
			if keep {
				want32, want64 = before32, []float64{1, 2}
			}
			if !slices.Equal(g32, want32) || !slices.Equal(g64, want64) {
				t.Errorf("%s with KeepGradients %t: gradients are not as promised", name, keep)
			}
		}
	}
}

// TestSharedGradientServesAllItsParameters is a+b without BindDualValues: both have one gradient
// node, which gorgonia's own solvers consume at the first of them.
func TestSharedGradientServesAllItsParameters(t *testing.T) {
	a, b, c, grad := []float64{1, 2, 3}, []float64{4, 5, 6}, []float64{7}, []float64{1, 2, 3}
	shared := denseOf(grad)
	model := []gorgonia.ValueGrad{
		&parameter{name: "a", value: denseOf(a), grad: shared},
		&parameter{name: "c", value: denseOf(c), grad: denseOf(grad[2:])}, // a part of it
		&parameter{name: "b", value: denseOf(b), grad: shared},
	}
	if err := newSolver(t, Config{Name: SGD, LearningRate: 1}).Step(model); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a, []float64{0, 0, 0}) || !slices.Equal(b, []float64{3, 3, 3}) || c[0] != 4 {
		t.Errorf("a = %v, b = %v, c = %v, want [0 0 0], [3 3 3], [4]", a, b, c)
	}
	if !slices.Equal(grad, []float64{0, 0, 0}) {
		t.Errorf("gradient %v is not zeroed", grad)
	}
}

func TestParametersMayBePiecesOfOneFlatRegion(t *testing.T) {
	const n = 3 * spanLen
	whole, grads := noise(n, 1), noise(n, 2)
	pieces, pieceGrads := slices.Clone(whole), slices.Clone(grads)
	one := newSolver(t, Config{Name: Adam, ClipNorm: 1e9})
	if err := one.Step(vectors(whole, grads)); err != nil {
		t.Fatal(err)
	}
	two := newSolver(t, Config{Name: Adam, ClipNorm: 1e9})
	if err := two.Step(vectors(pieces[:5], pieceGrads[:5], pieces[5:spanLen], pieceGrads[5:spanLen], pieces[spanLen:], pieceGrads[spanLen:])); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(whole, pieces) {
		t.Error("pieces of a region were updated differently from the whole")
	}
}

func TestScalarsAreUpdatedInPlace(t *testing.T) {
	w32, w64, rank0 := gorgonia.NewF32(1), gorgonia.NewF64(2), gtensor.New(gtensor.FromScalar(float64(3)))
	g32, g64, gRank0 := gorgonia.NewF32(0.5), gorgonia.NewF64(0.5), gorgonia.NewF64(0.5)
	model := []gorgonia.ValueGrad{
		&parameter{value: w32, grad: g32}, &parameter{value: w64, grad: g64},
		// Gorgonia turns the gradient of a rank 0 tensor into a scalar.
		&parameter{value: rank0, grad: gRank0},
	}
	s := newSolver(t, Config{Name: Momentum, LearningRate: 1, Momentum: 0.5})
	for range 2 { // 0.5, then 0.25 of momentum alone
		if err := s.Step(model); err != nil {
			t.Fatal(err)
		}
	}
	if *w32 != 0.25 || *w64 != 1.25 || rank0.Data() != 2.25 {
		t.Errorf("weights %v, %v, %v, want 0.25, 1.25, 2.25", *w32, *w64, rank0.Data())
	}
	if *g32 != 0 || *g64 != 0 || *gRank0 != 0 {
		t.Errorf("gradients %v, %v, %v are not zeroed", *g32, *g64, *gRank0)
	}
}

func TestZeroGradientsTouchesNothingWhenOneIsMissing(t *testing.T) {
	grad := []float64{1, 2}
	model := append(vectors([]float64{0, 0}, grad), &parameter{name: "late", value: denseOf([]float64{1})})
	err := ZeroGradients(model)
	if !errors.Is(err, ErrNoGradient) || !strings.Contains(err.Error(), "parameter 1 late: gradient") {
		t.Errorf("error %v", err)
	}
	if !slices.Equal(grad, []float64{1, 2}) {
		t.Errorf("gradient %v was zeroed all the same", grad)
	}
}

func TestGroupsAreThoseOfNew(t *testing.T) {
	c := Config{Name: SGD, LearningRate: 0.25, Groups: []Group{{Names: []string{"w0"}, RateScale: 2}}}
	s := newSolver(t, c)
	c.Groups[0].RateScale, c.Groups[0].Names[0] = 8, "w1"
	weight := []float64{1}
	if err := s.Step(vectors(weight, []float64{1})); err != nil {
		t.Fatal(err)
	}
	if weight[0] != 0.5 {
		t.Errorf("w = %v, want 0.5: the groups have changed under the solver", weight[0])
	}
}
