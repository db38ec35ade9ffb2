package optim

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestClipScalesToTheLimitLikePyTorch(t *testing.T) {
	// clip_grad_norm_: max_norm / (total_norm + 1e-6), at most 1. A variable, so that it rounds as
	// the rule does.
	epsilon := 1e-6
	for _, c := range []struct {
		name   string
		limit  float64
		factor float64
	}{
		{"far above the limit", 1, 1 / (5 + epsilon)},
		{"norm equals limit", 5, 5 / (5 + epsilon)},
		{"just below the limit", 5 + 2*epsilon, 1},
		{"far below the limit", 100, 1},
		{"infinite limit", math.Inf(1), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			// One norm over two parameters and both dtypes: 3, 4 and 0 in three pieces.
			w64, w32 := []float64{0, 0}, []float32{0}
			model := append(vectors(w64, []float64{3, 0}), vectors(w32, []float32{4})...)
			s := newSolver(t, Config{Name: SGD, LearningRate: 1, ClipNorm: c.limit})
			if err := s.Step(model); err != nil {
				t.Fatal(err)
			}
			if s.GradNorm() != 5 {
				t.Errorf("norm %v, want exactly 5", s.GradNorm())
			}
			if w64[0] != -3*c.factor || w64[1] != 0 || w32[0] != -4*float32(c.factor) {
				t.Errorf("weights %v and %v, want -3 and -4 times %v", w64, w32, c.factor)
			}
		})
	}
}

func TestClipBelowTheLimitChangesNoBit(t *testing.T) {
	for _, name := range []string{SGD, Momentum, Adam} {
		var results [2][]float32
		for i, limit := range []float64{0, 1e6} {
			weight, grad := noise(3*spanLen+17, 3), noise(3*spanLen+17, 4)
			s, model := newSolver(t, Config{Name: name, ClipNorm: limit, KeepGradients: true}), vectors(weight, grad)
			for range 3 {
				if err := s.Step(model); err != nil {
					t.Fatal(err)
				}
			}
			results[i] = weight
		}
		if !slices.Equal(results[0], results[1]) {
			t.Errorf("%s: a limit that is not reached changed the weights", name)
		}
	}
}

func TestGradNormIsNaNWhenNothingMeasuresIt(t *testing.T) {
	s := newSolver(t, Config{Name: SGD})
	if !math.IsNaN(s.GradNorm()) {
		t.Errorf("before the first step the norm is %v, want NaN", s.GradNorm())
	}
	if err := s.Step(vectors([]float64{1}, []float64{2})); err != nil {
		t.Fatal(err)
	}
	if !math.IsNaN(s.GradNorm()) {
		t.Errorf("norm %v without ClipNorm, want NaN", s.GradNorm())
	}
}

func TestNormIsExactForLargeFloat32Gradients(t *testing.T) {
	// The squares overflow float32, and 2^24 ones added to a large float32 sum would vanish in it.
	weight, grad := make([]float32, 1<<16+1), make([]float32, 1<<16+1)
	for i := range grad {
		grad[i] = 1
	}
	grad[0] = 1e30
	s := newSolver(t, Config{Name: SGD, LearningRate: 1, ClipNorm: 1})
	if err := s.Step(vectors(weight, grad)); err != nil {
		t.Fatal(err)
	}
	if want := float64(float32(1e30)); s.GradNorm() != want {
		t.Errorf("norm %v, want %v", s.GradNorm(), want)
	}
	for i := range grad {
		grad[i] = 1
	}
	if err := s.Step(vectors(weight, grad)); err != nil {
		t.Fatal(err)
	}
	if want := math.Sqrt(1<<16 + 1); s.GradNorm() != want {
		t.Errorf("norm %v, want %v", s.GradNorm(), want)
	}
}

func TestGradientScaleActsBeforeNormAndClip(t *testing.T) {
	weight := []float64{0, 0}
	s := newSolver(t, Config{Name: SGD, LearningRate: 1, ClipNorm: 1})
	if err := s.SetGradientScale(0.25); err != nil {
		t.Fatal(err)
	}
	if err := s.Step(vectors(weight, []float64{24, 32})); err != nil {
		t.Fatal(err)
	}
	if s.GradNorm() != 10 {
		t.Errorf("norm %v, want 10: a quarter of 40", s.GradNorm())
	}
	norm := 10.0 // a variable, as above
	factor := 1 / (norm + 1e-6)
	if want := []float64{-24 * (0.25 * factor), -32 * (0.25 * factor)}; !slices.Equal(weight, want) {
		t.Errorf("weights %v, want %v", weight, want)
	}
}

func TestGradientScaleEqualsScaledGradients(t *testing.T) {
	// A power of two commutes with rounding: the bits must be equal for every rule.
	for _, c := range torchCases {
		var results [2][]float32
		for i, scale := range []float64{1, 1. / 64} {
			weight, grad := noise(100, 5), noise(100, 6)
			s, model := newSolver(t, c.config), vectors(weight, grad)
			if err := s.SetGradientScale(scale); err != nil {
				t.Fatal(err)
			}
			for step := range uint64(5) {
				copy(grad, noise(100, 10+step))
				for k := range grad {
					grad[k] /= float32(scale)
				}
				if err := s.Step(model); err != nil {
					t.Fatal(err)
				}
			}
			results[i] = weight
		}
		if !slices.Equal(results[0], results[1]) {
			t.Errorf("%s: scaling inside the step differs from scaling the gradients", c.name)
		}
	}
}

func TestNonFiniteNormStopsTheStep(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		name string
		grad []float64
		clip float64
		says []string
	}{
		{"nan", []float64{1, 2, nan}, 1, []string{"parameter 1 w1 (3)", "element 2 is NaN or infinite"}},
		{"infinity", []float64{1, -inf, nan}, 1, []string{"parameter 1 w1 (3)", "element 1 is"}},
		{"infinite limit checks too", []float64{inf, 2, 3}, inf, []string{"element 0 is"}},
		{"overflowing squares", []float64{1e200, 1, 1}, 1, []string{"squared gradients overflow"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w0, g0, w1, g1 := []float32{1, 2}, []float32{3, 4}, []float64{5, 6, 7}, slices.Clone(c.grad)
			model := append(vectors(w0, g0), &parameter{name: "w1", value: denseOf(w1), grad: denseOf(g1)})
			s := newSolver(t, Config{Name: Adam, ClipNorm: c.clip})
			err := s.Step(model)
			if !errors.Is(err, ErrNonFinite) {
				t.Fatalf("error %v, want ErrNonFinite", err)
			}
			for _, part := range append(c.says, "adam step 1") {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
			if !slices.Equal(w0, []float32{1, 2}) || !slices.Equal(w1, []float64{5, 6, 7}) || !slices.Equal(g0, []float32{3, 4}) || s.Steps() != 0 {
				t.Errorf("the refused step left weights %v %v, gradient %v, %d steps", w0, w1, g0, s.Steps())
			}
			if n := s.GradNorm(); !math.IsNaN(n) && !math.IsInf(n, 0) {
				t.Errorf("norm %v, want the one that was refused", n)
			}

			// Skip the step and continue: the state is as if the step had never been tried.
			if err := ZeroGradients(model); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(g0, []float32{0, 0}) || !slices.Equal(g1, []float64{0, 0, 0}) {
				t.Fatalf("gradients %v and %v after ZeroGradients", g0, g1)
			}
			copy(g1, []float64{1, 1, 1})
			if err := s.Step(model); err != nil || s.Steps() != 1 {
				t.Fatalf("after the skipped step: %d steps, error %v", s.Steps(), err)
			}
			if moved := w1[0] - 5; math.Abs(moved+1e-3) > 1e-8 {
				t.Errorf("the first step that counts moved the weight by %v, want -0.001", moved)
			}
		})
	}
}
