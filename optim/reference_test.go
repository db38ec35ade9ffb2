package optim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	gtensor "gorgonia.org/tensor"
)

// torchSGD is the algorithm on the documentation page of torch.optim.SGD, line by line, for one
// vector in float64.
type torchSGD struct {
	lr, momentum, dampening, weightDecay float64
	nesterov                             bool

	t int
	b []float64
}

func (o *torchSGD) step(theta, grad []float64) {
	o.t++
	g := append([]float64(nil), grad...)
	if o.weightDecay != 0 {
		for i := range g {
			g[i] += o.weightDecay * theta[i]
		}
	}
	if o.momentum != 0 {
		if o.t > 1 {
			for i := range g {
				o.b[i] = o.momentum*o.b[i] + (1-o.dampening)*g[i]
			}
		} else {
			o.b = append([]float64(nil), g...)
		}
		for i := range g {
			if o.nesterov {
				g[i] += o.momentum * o.b[i]
			} else {
				g[i] = o.b[i]
			}
		}
	}
	for i := range theta {
		theta[i] -= o.lr * g[i]
	}
}

// torchAdam is the algorithm on the documentation pages of torch.optim.Adam and torch.optim.AdamW
// (decoupled), line by line, for one vector in float64.
type torchAdam struct {
	lr, beta1, beta2, eps, weightDecay float64
	amsgrad, decoupled                 bool

	t           int
	m, v, vHigh []float64
}

func (o *torchAdam) step(theta, grad []float64) {
	if o.t == 0 {
		o.m, o.v, o.vHigh = make([]float64, len(theta)), make([]float64, len(theta)), make([]float64, len(theta))
	}
	o.t++
	for i := range theta {
		g := grad[i]
		if o.decoupled {
			theta[i] -= o.lr * o.weightDecay * theta[i]
		} else if o.weightDecay != 0 {
			g += o.weightDecay * theta[i]
		}
		o.m[i] = o.beta1*o.m[i] + (1-o.beta1)*g
		o.v[i] = o.beta2*o.v[i] + (1-o.beta2)*g*g
		mHat := o.m[i] / (1 - math.Pow(o.beta1, float64(o.t)))
		high := o.v[i]
		if o.amsgrad {
			o.vHigh[i] = math.Max(o.vHigh[i], o.v[i])
			high = o.vHigh[i]
		}
		vHat := high / (1 - math.Pow(o.beta2, float64(o.t)))
		theta[i] -= o.lr * mHat / (math.Sqrt(vHat) + o.eps)
	}
}

// paperLion is algorithm 2 of arXiv:2302.06675, line by line, for one vector in float64.
type paperLion struct {
	lr, beta1, beta2, weightDecay float64

	m []float64
}

func (o *paperLion) step(theta, grad []float64) {
	if o.m == nil {
		o.m = make([]float64, len(theta))
	}
	for i := range theta {
		c := o.beta1*o.m[i] + (1-o.beta1)*grad[i]
		o.m[i] = o.beta2*o.m[i] + (1-o.beta2)*grad[i]
		sign := 0.0
		if c > 0 {
			sign = 1
		} else if c < 0 {
			sign = -1
		}
		theta[i] -= o.lr * (sign + o.weightDecay*theta[i])
	}
}

// paperLAMB is algorithm 2 of arXiv:1904.00962, line by line, for one layer in float64; without
// weight decay the layer's rate is not adapted.
type paperLAMB struct {
	lr, beta1, beta2, eps, weightDecay float64

	t    int
	m, v []float64
}

func (o *paperLAMB) step(theta, grad []float64) {
	if o.t == 0 {
		o.m, o.v = make([]float64, len(theta)), make([]float64, len(theta))
	}
	o.t++
	direction := make([]float64, len(theta))
	var weights, directions float64
	for i := range theta {
		o.m[i] = o.beta1*o.m[i] + (1-o.beta1)*grad[i]
		o.v[i] = o.beta2*o.v[i] + (1-o.beta2)*grad[i]*grad[i]
		mHat := o.m[i] / (1 - math.Pow(o.beta1, float64(o.t)))
		vHat := o.v[i] / (1 - math.Pow(o.beta2, float64(o.t)))
		direction[i] = mHat/(math.Sqrt(vHat)+o.eps) + o.weightDecay*theta[i]
		weights += theta[i] * theta[i]
		directions += direction[i] * direction[i]
	}
	ratio := 1.0
	if o.weightDecay != 0 && weights != 0 && directions != 0 {
		ratio = math.Sqrt(weights) / math.Sqrt(directions)
	}
	for i := range theta {
		theta[i] -= o.lr * ratio * direction[i]
	}
}

type torchRule interface{ step(theta, grad []float64) }

// torchCases are configs with their reference, including the pitfalls of each rule.
var torchCases = []struct {
	name   string
	config Config
	torch  func() torchRule
}{
	{"sgd", Config{Name: SGD, LearningRate: 0.05}, func() torchRule { return &torchSGD{lr: 0.05} }},
	{"sgd with decay", Config{Name: SGD, LearningRate: 0.05, WeightDecay: 0.1}, func() torchRule { return &torchSGD{lr: 0.05, weightDecay: 0.1} }},
	{"momentum", Config{Name: Momentum, LearningRate: 0.02}, func() torchRule { return &torchSGD{lr: 0.02, momentum: 0.9} }},
	{
		"momentum with dampening and decay",
		Config{Name: Momentum, LearningRate: 0.02, Momentum: 0.8, Dampening: 0.3, WeightDecay: 0.05},
		func() torchRule { return &torchSGD{lr: 0.02, momentum: 0.8, dampening: 0.3, weightDecay: 0.05} },
	},
	{
		"nesterov with decay",
		Config{Name: Momentum, LearningRate: 0.02, Nesterov: true, WeightDecay: 0.05},
		func() torchRule { return &torchSGD{lr: 0.02, momentum: 0.9, nesterov: true, weightDecay: 0.05} },
	},
	{
		"nesterov by its name",
		Config{Name: Nesterov, LearningRate: 0.02, Momentum: 0.7, WeightDecay: 0.05},
		func() torchRule { return &torchSGD{lr: 0.02, momentum: 0.7, nesterov: true, weightDecay: 0.05} },
	},
	{"adam", Config{Name: Adam}, func() torchRule { return &torchAdam{lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8} }},
	{
		"adam with decay",
		Config{Name: Adam, LearningRate: 0.01, Beta1: 0.8, Beta2: 0.95, Epsilon: 1e-4, WeightDecay: 0.1},
		func() torchRule {
			return &torchAdam{lr: 0.01, beta1: 0.8, beta2: 0.95, eps: 1e-4, weightDecay: 0.1}
		},
	},
	{
		"adam amsgrad",
		Config{Name: Adam, LearningRate: 0.01, Beta2: 0.9, AMSGrad: true},
		func() torchRule { return &torchAdam{lr: 0.01, beta1: 0.9, beta2: 0.9, eps: 1e-8, amsgrad: true} },
	},
	{
		"adamw",
		Config{Name: AdamW, LearningRate: 0.01, WeightDecay: 0.1},
		func() torchRule {
			return &torchAdam{lr: 0.01, beta1: 0.9, beta2: 0.999, eps: 1e-8, weightDecay: 0.1, decoupled: true}
		},
	},
	{
		"adamw without decay, which is adam",
		Config{Name: AdamW, LearningRate: 0.01, Groups: []Group{{MaxDims: 1, NoWeightDecay: true}}},
		func() torchRule { return &torchAdam{lr: 0.01, beta1: 0.9, beta2: 0.999, eps: 1e-8} },
	},
	{
		"adamw amsgrad",
		Config{Name: AdamW, LearningRate: 0.01, Beta2: 0.95, WeightDecay: 0.5, AMSGrad: true},
		func() torchRule {
			return &torchAdam{lr: 0.01, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0.5, amsgrad: true, decoupled: true}
		},
	},
	{
		"lamb",
		Config{Name: LAMB, LearningRate: 0.01, WeightDecay: 0.01},
		func() torchRule { return &paperLAMB{lr: 0.01, beta1: 0.9, beta2: 0.999, eps: 1e-6, weightDecay: 0.01} },
	},
	{
		"lamb without decay, which is adam",
		Config{Name: LAMB, LearningRate: 0.01},
		func() torchRule { return &torchAdam{lr: 0.01, beta1: 0.9, beta2: 0.999, eps: 1e-6} },
	},
	{
		"lamb with other moments",
		Config{Name: LAMB, LearningRate: 0.003, Beta1: 0.8, Beta2: 0.95, Epsilon: 1e-4, WeightDecay: 0.2},
		func() torchRule {
			return &paperLAMB{lr: 0.003, beta1: 0.8, beta2: 0.95, eps: 1e-4, weightDecay: 0.2}
		},
	},
	// A float32 weight rounds a step of constant size the same way each time, and drifts, unless
	// the step is a power of 2.
	{"lion", Config{Name: Lion, LearningRate: 1. / 1024}, func() torchRule { return &paperLion{lr: 1. / 1024, beta1: 0.9, beta2: 0.99} }},
	{
		"lion with decay",
		Config{Name: Lion, LearningRate: 1. / 128, Beta1: 0.95, Beta2: 0.98, WeightDecay: 0.3},
		func() torchRule { return &paperLion{lr: 1. / 128, beta1: 0.95, beta2: 0.98, weightDecay: 0.3} },
	},
}

// againstTorch makes 100 steps on two parameters of n elements in all and returns the largest
// difference from the reference, the largest weight that the reference met, and the largest norm of
// the difference relative to that of all weights.
func againstTorch[T float](t *testing.T, c Config, torch func() torchRule, n int) (difference, largest, relative float64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, uint64(n)))
	weight, grad := make([]T, n), make([]T, n)
	theta, g := make([]float64, n), make([]float64, n)
	for i := range weight {
		weight[i] = T(rng.NormFloat64())
		theta[i] = float64(weight[i])
	}
	cut := n / 3
	s, model := newSolver(t, c), vectors(weight[:cut], grad[:cut], weight[cut:], grad[cut:])
	first, second := torch(), torch()
	for range 100 {
		for i := range grad {
			// Gradients whose size differs by element and drifts with the steps, so that moments of
			// every age matter.
			grad[i] = T(rng.NormFloat64()*float64(1+i%5) + theta[i])
			g[i] = float64(grad[i])
		}
		first.step(theta[:cut], g[:cut])
		second.step(theta[cut:], g[cut:])
		if err := s.Step(model); err != nil {
			t.Fatal(err)
		}
		var off, all float64
		for i := range theta {
			difference = max(difference, math.Abs(float64(weight[i])-theta[i]))
			largest = max(largest, math.Abs(theta[i]))
			off += (float64(weight[i]) - theta[i]) * (float64(weight[i]) - theta[i])
			all += theta[i] * theta[i]
		}
		relative = max(relative, math.Sqrt(off/all))
	}
	if s.Steps() != 100 {
		t.Fatalf("%d steps counted, made 100", s.Steps())
	}
	return difference, largest, relative
}

func TestFloat64FollowsPyTorchTo1e12(t *testing.T) {
	for _, c := range torchCases {
		t.Run(c.name, func(t *testing.T) {
			if diff, _, _ := againstTorch[float64](t, c.config, c.torch, 1801); !(diff <= 1e-12) {
				t.Errorf("largest difference %g after 100 steps, bound 1e-12", diff)
			}
		})
	}
}

// TestFloat32FollowsPyTorchTo1e6 compares float32 arithmetic with float64: all weights together to
// 1e-6 of their norm. A step rounds a weight at most twice, half a unit in the last place each. So
// after n steps one weight may be off by n * 2^-23 * the largest weight. The test allows twice
// that, for the roundings of the update, which are relative to a step that is small compared with
// the weight.
func TestFloat32FollowsPyTorchTo1e6(t *testing.T) {
	for _, c := range torchCases {
		t.Run(c.name, func(t *testing.T) {
			diff, largest, relative := againstTorch[float32](t, c.config, c.torch, 1801)
			if bound := 2 * 100 * math.Pow(2, -23) * largest; !(diff <= bound) {
				t.Errorf("largest difference %g after 100 steps, bound %g", diff, bound)
			}
			if !(relative <= 1e-6) {
				t.Errorf("difference of norm %g after 100 steps, relative to the weights; bound 1e-6", relative)
			}
		})
	}
}

// TestUpdateHasExpectedBits pins the float32 bits of a few steps: they must be equal on every
// architecture, which fails where a compiler fuses a product and a sum.
func TestUpdateHasExpectedBits(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Name: SGD, LearningRate: 0.1, WeightDecay: 0.01}, "[3d30fc4b bf20c428 3f851142]"},
		{Config{Name: Momentum, LearningRate: 0.1, Nesterov: true, WeightDecay: 0.01}, "[bcdf01de 3ef5cef5 bf5c2517]"},
		{Config{Name: Adam, LearningRate: 0.1, WeightDecay: 0.01}, "[3c0f8f88 bf308712 40125090]"},
		{Config{Name: AdamW, LearningRate: 0.1, WeightDecay: 0.01, AMSGrad: true}, "[3c39439c bf2d72b3 401082ac]"},
		{Config{Name: LAMB, LearningRate: 0.1, WeightDecay: 0.01}, "[3c07e5b2 bb3466a0 3fc46414]"},
		{Config{Name: Lion, LearningRate: 0.1, WeightDecay: 0.01}, "[bdcd00fa bf300439 4011627c]"},
		{Config{Name: Adam, LearningRate: 0.1, WeightDecay: 0.01, ClipNorm: 0.5, ClipValue: 0.2}, "[bd09da0e bf33f95e 40134aa9]"},
	} {
		weight, grad := []float32{0.1, -1.7, 3.3}, make([]float32, 3)
		s, model := newSolver(t, c.config), vectors(weight, grad)
		for step := range 10 {
			for i := range grad {
				grad[i] = weight[i] * float32(i+step+1) / 7
			}
			if err := s.Step(model); err != nil {
				t.Fatal(err)
			}
		}
		if got := fmt.Sprintf("%08x", bitsOf(weight)); got != c.want {
			t.Errorf("%v: weights %v have bits %s, want %s", c.config, weight, got, c.want)
		}
	}
}

func bitsOf(x []float32) []uint32 {
	bits := make([]uint32, len(x))
	for i, v := range x {
		bits[i] = math.Float32bits(v)
	}
	return bits
}

func TestMixedDTypesAreUpdatedEachInItsOwn(t *testing.T) {
	w32, g32 := []float32{1, 2}, []float32{0.5, 0.25}
	w64, g64 := []float64{1, 2}, []float64{0.5, 0.25}
	model := append(vectors(w32, g32), vectors(w64, g64)...)
	s := newSolver(t, Config{Name: SGD, LearningRate: 0.5})
	if err := s.Step(model); err != nil {
		t.Fatal(err)
	}
	if w32[0] != 0.75 || w32[1] != 1.875 || w64[0] != 0.75 || w64[1] != 1.875 {
		t.Errorf("weights %v and %v, want 0.75 and 1.875 in both", w32, w64)
	}
	if st := s.State(); st.Params[0].DType != gtensor.Float32 || st.Params[1].DType != gtensor.Float64 {
		t.Errorf("state says %v and %v", st.Params[0].DType, st.Params[1].DType)
	}
}
