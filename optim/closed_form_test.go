package optim

import (
	"math"
	"testing"
)

// bowl makes steps on f(w) = curvature/2 * w^2 from w0 and returns w before every step and after
// the last.
func bowl(t *testing.T, c Config, curvature, w0 float64, steps int) []float64 {
	t.Helper()
	weight, grad := []float64{w0}, []float64{0}
	s, model := newSolver(t, c), vectors(weight, grad)
	path := []float64{w0}
	for range steps {
		grad[0] = curvature * weight[0]
		if err := s.Step(model); err != nil {
			t.Fatal(err)
		}
		path = append(path, weight[0])
	}
	return path
}

func TestSGDHalvesTheDistanceInABowl(t *testing.T) {
	// w - rate*curvature*w = w/2, exact in binary.
	for i, w := range bowl(t, Config{Name: SGD, LearningRate: 0.25}, 2, 8, 20) {
		if want := 8 / math.Exp2(float64(i)); w != want {
			t.Fatalf("step %d: w = %v, want %v", i, w, want)
		}
	}
}

func TestMomentumFollowsTheHeavyBallRecurrence(t *testing.T) {
	const rate, mu, a = 0.125, 0.5, 1.0
	path := bowl(t, Config{Name: Momentum, LearningRate: rate, Momentum: mu}, a, 1, 40)
	if path[1] != 1-rate*a {
		t.Errorf("first step to %v, want %v: it is plain gradient descent", path[1], 1-rate*a)
	}
	// Polyak: w[t+1] = (1 + mu - rate*a)*w[t] - mu*w[t-1].
	for i := 1; i < 40; i++ {
		want := (1+mu-rate*a)*path[i] - mu*path[i-1]
		if math.Abs(path[i+1]-want) > 1e-15 {
			t.Fatalf("step %d: w = %v, want %v", i+1, path[i+1], want)
		}
	}
}

func TestNesterovMatchesHandComputation(t *testing.T) {
	// rate 1/2, momentum 1/2, gradient = w, from w = 1:
	//	g = 1:    buffer 1,     direction 1 + 1/2 = 3/2,         w = 1 - 3/4 = 1/4
	//	g = 1/4:  buffer 3/4,   direction 1/4 + 3/8 = 5/8,       w = 1/4 - 5/16 = -1/16
	//	g = -1/16: buffer 5/16, direction -1/16 + 5/32 = 3/32,   w = -1/16 - 3/64 = -7/64
	path := bowl(t, Config{Name: Momentum, LearningRate: 0.5, Momentum: 0.5, Nesterov: true}, 1, 1, 3)
	for i, want := range []float64{1, 1. / 4, -1. / 16, -7. / 64} {
		if path[i] != want {
			t.Errorf("step %d: w = %v, want %v", i, path[i], want)
		}
	}
}

func TestDampeningSparesTheFirstStep(t *testing.T) {
	// rate 1, momentum 1/2, dampening 1/2, gradient 1 throughout: every buffer is 1, as 1/2 + 1/2 =
	// 1.
	weight, grad := []float64{10}, []float64{0}
	s, model := newSolver(t, Config{Name: Momentum, LearningRate: 1, Momentum: 0.5, Dampening: 0.5}), vectors(weight, grad)
	for step := 1; step <= 4; step++ {
		grad[0] = 1
		if err := s.Step(model); err != nil {
			t.Fatal(err)
		}
		if want := float64(10 - step); weight[0] != want {
			t.Errorf("step %d: w = %v, want %v", step, weight[0], want)
		}
	}
}

func TestFirstAdamStepIsTheRateTimesTheSign(t *testing.T) {
	const rate, eps = 1e-2, 1e-8
	grad := []float64{3, -0.5, 1e-3, -1e5, 1e-6}
	for _, c := range []Config{{Name: Adam, LearningRate: rate}, {Name: Adam, LearningRate: rate, AMSGrad: true}} {
		weight, g := make([]float64, len(grad)), append([]float64(nil), grad...)
		if err := newSolver(t, c).Step(vectors(weight, g)); err != nil {
			t.Fatal(err)
		}
		for i, w := range weight {
			// mean/(1-beta1) = g and sqrt(square/(1-beta2)) = |g|, so the step is rate*g/(|g|+eps).
			want := -rate * grad[i] / (math.Abs(grad[i]) + eps)
			if math.Abs(w-want) > 1e-15 {
				t.Errorf("%v: gradient %g moved the weight by %g, want %g", c, grad[i], w, want)
			}
			if sign := -math.Copysign(rate, grad[i]); math.Abs(w-sign) > rate*eps/math.Abs(grad[i])+1e-15 {
				t.Errorf("%v: gradient %g moved the weight by %g, not by %g up to epsilon", c, grad[i], w, sign)
			}
		}
	}
}

func TestAdamOfAConstantGradientMovesByTheRateEveryStep(t *testing.T) {
	// Bias correction makes mean and root of square exactly g and |g| at every t.
	weight, grad := []float64{0}, []float64{0}
	s, model := newSolver(t, Config{Name: Adam, LearningRate: 0.5}), vectors(weight, grad)
	for step := 1; step <= 30; step++ {
		grad[0] = 4
		if err := s.Step(model); err != nil {
			t.Fatal(err)
		}
		if want := -0.5 * float64(step); math.Abs(weight[0]-want) > 1e-7 {
			t.Fatalf("step %d: w = %v, want %v", step, weight[0], want)
		}
	}
}

func TestAMSGradKeepsTheLargestSecondMoment(t *testing.T) {
	run := func(amsgrad bool) float64 {
		weight, grad := []float64{0}, []float64{0}
		s, model := newSolver(t, Config{Name: Adam, LearningRate: 1, Beta2: 0.5, AMSGrad: amsgrad}), vectors(weight, grad)
		for _, g := range []float64{100, 1, 1, 1, 1, 1, 1, 1, 1, 1} {
			grad[0] = g
			if err := s.Step(model); err != nil {
				t.Fatal(err)
			}
		}
		return weight[0]
	}
	plain, ams := run(false), run(true)
	if !(plain < 2*ams) || !(ams < 0) {
		t.Errorf("after one large gradient adam went to %v and amsgrad to %v: amsgrad must hold back", plain, ams)
	}
}

func TestAdamWDecaysWeightsWithoutAGradient(t *testing.T) {
	// 1 - rate*decay = 1 - 1/4, exact in binary for eight steps.
	weight32, weight64 := []float32{8, -2}, []float64{8, -2}
	model := append(vectors(weight32, []float32{0, 0}), vectors(weight64, []float64{0, 0})...)
	s := newSolver(t, Config{Name: AdamW, LearningRate: 0.5, WeightDecay: 0.5})
	want := 8.0
	for step := 1; step <= 8; step++ {
		if err := s.Step(model); err != nil {
			t.Fatal(err)
		}
		want *= 0.75
		if weight64[0] != want || weight64[1] != -want/4 || float64(weight32[0]) != want || float64(weight32[1]) != -want/4 {
			t.Fatalf("step %d: weights %v and %v, want %v and %v", step, weight32, weight64, want, -want/4)
		}
	}
}

func TestAdamDecayGoesThroughTheMoments(t *testing.T) {
	// Coupled decay without a gradient is a gradient of decay*w, whose size Adam divides out again.
	weight := []float64{8}
	if err := newSolver(t, Config{Name: Adam, LearningRate: 0.5, WeightDecay: 0.25}).Step(vectors(weight, []float64{0})); err != nil {
		t.Fatal(err)
	}
	if math.Abs(weight[0]-7.5) > 1e-8 {
		t.Errorf("w = %v, want 7.5: one step of the rate against the weight's sign", weight[0])
	}
}

func TestBeta1BelowPrecisionActsAsNone(t *testing.T) {
	// Without a mean, the direction is the last gradient alone.
	weight, grad := []float32{0}, []float32{0}
	s, model := newSolver(t, Config{Name: Adam, LearningRate: 1, Beta1: 1e-20, Beta2: 1e-20}), vectors(weight, grad)
	for i, g := range []float32{5, -3, 2, 2, -1} {
		before := weight[0]
		grad[0] = g
		if err := s.Step(model); err != nil {
			t.Fatal(err)
		}
		if moved := float64(weight[0] - before); math.Abs(moved+math.Copysign(1, float64(g))) > 1e-6 {
			t.Errorf("step %d: gradient %v moved the weight by %v", i+1, g, moved)
		}
	}
}
