package optim

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// plainParam is a parameter of the float64 reference below.
type plainParam struct {
	rule             torchRule
	theta, grad, ema []float64
}

// plainStep makes one step of all parameters, written plainly: clip by norm, clip by value, update,
// average.
func plainStep(params []plainParam, scale, clipNorm, clipValue, emaDecay float64) (norm float64, skipped bool) {
	var sum float64
	for _, p := range params {
		for _, g := range p.grad {
			sum += g * scale * g * scale
		}
	}
	norm = math.Sqrt(sum)
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return norm, true
	}
	factor := scale
	if clipNorm > 0 && norm+1e-6 > clipNorm {
		factor *= clipNorm / (norm + 1e-6)
	}
	for i := range params {
		p := &params[i]
		if p.ema == nil {
			p.ema = slices.Clone(p.theta)
		}
		g := make([]float64, len(p.grad))
		for k := range g {
			g[k] = p.grad[k] * factor
			if clipValue > 0 && math.Abs(g[k]) > clipValue {
				g[k] = math.Copysign(clipValue, g[k])
			}
		}
		p.rule.step(p.theta, g)
		for k := range p.ema {
			p.ema[k] = emaDecay*p.ema[k] + (1-emaDecay)*p.theta[k]
		}
	}
	return norm, false
}

// withGroups has each rule with three parameters of its reference: one in a group with its own rate
// and decay, one in a group without decay, and one in no group.
var withGroups = []struct {
	config Config
	rule   func(rate, decay float64) torchRule
}{
	{Config{Name: SGD, LearningRate: 0.02}, func(rate, decay float64) torchRule { return &torchSGD{lr: rate, weightDecay: decay} }},
	{Config{Name: Nesterov, LearningRate: 0.02}, func(rate, decay float64) torchRule {
		return &torchSGD{lr: rate, weightDecay: decay, momentum: 0.9, nesterov: true}
	}},
	{Config{Name: Adam, LearningRate: 0.01}, func(rate, decay float64) torchRule {
		return &torchAdam{lr: rate, weightDecay: decay, beta1: 0.9, beta2: 0.999, eps: 1e-8}
	}},
	{Config{Name: AdamW, LearningRate: 0.01}, func(rate, decay float64) torchRule {
		return &torchAdam{lr: rate, weightDecay: decay, beta1: 0.9, beta2: 0.999, eps: 1e-8, decoupled: true}
	}},
	{Config{Name: LAMB, LearningRate: 0.01}, func(rate, decay float64) torchRule {
		return &paperLAMB{lr: rate, weightDecay: decay, beta1: 0.9, beta2: 0.999, eps: 1e-6}
	}},
	{Config{Name: Lion, LearningRate: 1. / 256}, func(rate, decay float64) torchRule {
		return &paperLion{lr: rate, weightDecay: decay, beta1: 0.9, beta2: 0.99}
	}},
}

// TestAllTogetherFollowsThePlainReference makes 100 steps with groups, both clips, averages and
// steps that are skipped.
func TestAllTogetherFollowsThePlainReference(t *testing.T) {
	for _, c := range withGroups {
		t.Run(c.config.Name, func(t *testing.T) {
			config := c.config
			config.WeightDecay = 0.1
			config.Groups = []Group{
				{Names: []string{"head/*", "top"}, RateScale: 0.5, WeightDecay: 0.3},
				{MaxDims: 1, NoWeightDecay: true},
			}
			config.ClipNorm, config.ClipValue, config.EMADecay, config.SkipNonFinite = 12, 0.5, 0.95, true
			rate := config.LearningRate
			compareAll(t, config, []torchRule{c.rule(rate/2, 0.3), c.rule(rate, 0), c.rule(rate, 0.1)})
		})
	}
}

func compareAll(t *testing.T, config Config, rules []torchRule) {
	t.Helper()
	rng := rand.New(rand.NewPCG(11, 12))
	var model []gorgonia.ValueGrad
	var params []plainParam
	var weights, grads [][]float64
	for i, p := range []struct {
		name  string
		shape []int
	}{{"head/w", []int{3, 150}}, {"bias", []int{1, 40}}, {"body", []int{30, 20}}} {
		n := shapeSize(p.shape)
		w, g := make([]float64, n), make([]float64, n)
		for k := range w {
			w[k] = rng.NormFloat64()
		}
		weights, grads = append(weights, w), append(grads, g)
		model = append(model, &parameter{name: p.name, value: denseOf(w, p.shape...), grad: denseOf(g, p.shape...)})
		params = append(params, plainParam{rule: rules[i], theta: slices.Clone(w), grad: make([]float64, n)})
	}
	s := newSolver(t, config)
	skipped := 0
	for step := range 100 {
		scale := 1 / float64(1+step%3)
		if err := s.SetGradientScale(scale); err != nil {
			t.Fatal(err)
		}
		for i := range params {
			for k := range grads[i] {
				grads[i][k] = rng.NormFloat64() * float64(1+step%2)
			}
			if step%10 == 0 && i == 1 {
				grads[i][7] = math.Inf(1)
			}
			copy(params[i].grad, grads[i])
		}
		norm, skip := plainStep(params, scale, config.ClipNorm, config.ClipValue, config.EMADecay)
		if err := s.Step(model); err != nil {
			t.Fatal(err)
		}
		if skip {
			skipped++
		}
		if got := s.GradNorm(); !skip && !(math.Abs(got-norm) <= 1e-12*norm) {
			t.Errorf("step %d: norm %v, want %v", step, got, norm)
		}
		if s.Skipped() != skipped || s.Steps() != step+1-skipped || grads[1][7] != 0 {
			t.Fatalf("step %d: %d skipped and %d made, want %d and %d; gradient %v", step, s.Skipped(), s.Steps(), skipped, step+1-skipped, grads[1][7])
		}
	}
	st := s.State()
	for i, p := range params {
		slots := st.Params[i].Slots
		last := slots[len(slots)-1]
		for k := range p.theta {
			if !(math.Abs(weights[i][k]-p.theta[k]) <= 1e-12) {
				t.Fatalf("parameter %d, element %d: %v, want %v", i, k, weights[i][k], p.theta[k])
			}
			if last.Name != "ema" || !(math.Abs(last.F64[k]-p.ema[k]) <= 1e-12) {
				t.Fatalf("average of parameter %d, element %d: %v, want %v", i, k, last.F64[k], p.ema[k])
			}
		}
	}
}

func TestAveragesSwapWithTheWeights(t *testing.T) {
	w32, w64 := []float32{1, 2, 3}, []float64{4, 5}
	model := append(vectors(w32, []float32{1, 1, 1}), vectors(w64, []float64{1, 1})...)
	s := newSolver(t, Config{Name: SGD, LearningRate: 1, EMADecay: 0.75, KeepGradients: true})
	if err := s.SwapAverages(model); err != nil || w32[0] != 1 {
		t.Fatalf("before the first step: weight %v, error %v", w32[0], err)
	}
	if err := s.Step(model); err != nil { // from 1 to 0: the average is 1 - 1/4
		t.Fatal(err)
	}
	if err := s.SwapAverages(model); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(w32, []float32{0.75, 1.75, 2.75}) || !slices.Equal(w64, []float64{3.75, 4.75}) {
		t.Errorf("averages %v and %v", w32, w64)
	}
	if err := s.Step(model); !errors.Is(err, ErrSwapped) || !strings.Contains(err.Error(), "sgd step 2: the weights are averages") {
		t.Errorf("a step of averages: error %v", err)
	}
	if err := s.SetState(State{Name: SGD}); !errors.Is(err, ErrSwapped) {
		t.Errorf("a state for averages: error %v", err)
	}
	if err := s.SwapAverages(model[:1]); !errors.Is(err, ErrMismatch) || w32[0] != 0.75 {
		t.Errorf("half the model: error %v, weight %v", err, w32[0])
	}
	if err := s.SwapAverages(vectors(w32, w32, w32, w32)); !errors.Is(err, ErrMismatch) {
		t.Errorf("another model: error %v", err)
	}
	if err := s.SwapAverages(model); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(w32, []float32{0, 1, 2}) || !slices.Equal(w64, []float64{3, 4}) {
		t.Errorf("weights %v and %v after swapping back", w32, w64)
	}
	if err := s.Step(model); err != nil { // to -1: the average is 3/4 - (3/4+1)/4
		t.Fatal(err)
	}
	if got := s.State().Params[0].Slots[0]; got.Name != "ema" || got.F32[0] != 0.75-1.75/4 {
		t.Errorf("average %+v", got)
	}
	if err := newSolver(t, Config{Name: SGD}).SwapAverages(model); !errors.Is(err, ErrConfig) {
		t.Errorf("without averages: error %v", err)
	}
}

func TestAveragesOfPiecesSwap(t *testing.T) {
	f := newFleet(t, Config{Name: SGD, LearningRate: 1, EMADecay: 0.5}, 2)
	f.fill(false, draw(1), 0)
	f.fill(true, draw(2), 0)
	if err := f.step(); err != nil {
		t.Fatal(err)
	}
	made := slices.Clone(f.weight32)
	average := f.merged().Params[0].Slots[0].F32
	for range 2 {
		if err := errors.Join(f.each(func(_ int, s PieceSolver) error { return s.SwapAverages() })...); err != nil {
			t.Fatal(err)
		}
		if got := f.weight32[:len(average)]; !slices.Equal(got, average) {
			t.Errorf("weights %v, want %v", got[:4], average[:4])
		}
		average = made[:len(average)]
	}
	if err := newFleet(t, Config{Name: SGD}, 1).ranks[0].SwapAverages(); !errors.Is(err, ErrConfig) {
		t.Errorf("without averages: error %v", err)
	}
}

func TestASkippedStepChangesNothingElse(t *testing.T) {
	for _, keep := range []bool{false, true} {
		weight, grad, once := []float64{1, 2}, []float64{1, math.NaN()}, []float64{3, 4}
		model := append(vectors(weight, grad), &parameter{name: "w1", value: denseOf([]float64{5, 6}), grad: denseOf(once)})
		s := newSolver(t, Config{Name: Adam, SkipNonFinite: true, KeepGradients: keep, Schedule: Schedule{WarmupSteps: 10}})
		rate := s.LearningRate()
		if err := s.Step(model); err != nil {
			t.Fatal(err)
		}
		if s.Skipped() != 1 || s.Steps() != 0 || s.LearningRate() != rate || weight[0] != 1 || !math.IsNaN(s.GradNorm()) {
			t.Errorf("%d skipped, %d made, rate %v, weight %v, norm %v", s.Skipped(), s.Steps(), s.LearningRate(), weight[0], s.GradNorm())
		}
		if kept := once[0] == 3 && math.IsNaN(grad[1]); kept != keep {
			t.Errorf("with KeepGradients %t the skipped step left %v and %v", keep, grad, once)
		}
		grad[1] = 1
		if err := s.Step(model); err != nil || s.Skipped() != 1 || s.Steps() != 1 {
			t.Errorf("the step after: %d skipped, %d made, error %v", s.Skipped(), s.Steps(), err)
		}
	}
}

func TestClipValueBoundsEachElement(t *testing.T) {
	weight, grad := []float32{0, 0, 0, 0}, []float32{-3, 0.5, 8, float32(math.NaN())}
	s := newSolver(t, Config{Name: SGD, LearningRate: 1, ClipValue: 2})
	if err := s.SetGradientScale(0.5); err != nil {
		t.Fatal(err)
	}
	if err := s.Step(vectors(weight, grad)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(weight[:3], []float32{1.5, -0.25, -2}) || !math.IsNaN(float64(weight[3])) {
		t.Errorf("weights %v, want 1.5, -0.25, -2 and NaN, which shows", weight)
	}
}

func TestClipValueSeesSharedGradientsWhole(t *testing.T) {
	a, b, grad := []float64{0, 0}, []float64{0, 0}, []float64{5, -1}
	shared := denseOf(grad)
	model := []gorgonia.ValueGrad{&parameter{value: denseOf(a), grad: shared}, &parameter{value: denseOf(b), grad: shared}}
	if err := newSolver(t, Config{Name: SGD, LearningRate: 1, ClipValue: 2}).Step(model); err != nil {
		t.Fatal(err)
	}
	if want := []float64{-2, 1}; !slices.Equal(a, want) || !slices.Equal(b, want) || grad[0] != 0 {
		t.Errorf("weights %v and %v, want %v; gradient %v", a, b, want, grad)
	}
}

func TestLAMBsTrustRatioIsTheParameters(t *testing.T) {
	// The first direction of a gradient is its sign, up to epsilon; without decay it moves by the
	// rate, with decay by the rate times |w|/|u|, whatever the direction's length.
	const rate, decay = 0.5, 1e-3
	free, bound := []float64{3, 4}, []float64{3, 4}
	zero := []float64{0, 0}
	model := append(vectors(free, []float64{7, -9}, bound, []float64{7, -9}), &parameter{name: "zero", value: denseOf(zero), grad: denseOf([]float64{1, 1})})
	s := newSolver(t, Config{Name: LAMB, LearningRate: rate, WeightDecay: decay, Groups: []Group{{Names: []string{"w0"}, NoWeightDecay: true}}})
	if err := s.Step(model); err != nil {
		t.Fatal(err)
	}
	if math.Abs(free[0]-2.5) > 1e-6 || math.Abs(free[1]-4.5) > 1e-6 {
		t.Errorf("without decay the weights are %v, want 2.5 and 4.5", free)
	}
	if moved := math.Hypot(bound[0]-3, bound[1]-4); math.Abs(moved-rate*5) > 1e-12 {
		t.Errorf("with decay the weights moved by %v, want the rate times their norm, %v", moved, rate*5)
	}
	if math.Abs(zero[0]+rate) > 1e-5 {
		t.Errorf("weights of zero moved to %v, want by the rate", zero)
	}
}

func TestLionMovesByTheRate(t *testing.T) {
	// Signs of 0.9*mean + 0.1*g, then mean = 0.99*mean + 0.01*g: a change of the gradient's sign is
	// followed at once unless the mean is more than g/9.
	weight, grad := []float64{0, 0, 0}, []float64{0, 0, 0}
	s, model := newSolver(t, Config{Name: Lion, LearningRate: 0.25}), vectors(weight, grad)
	for i, step := range []struct{ grad, want []float64 }{
		{[]float64{5, -1e-9, 0}, []float64{-0.25, 0.25, 0}},
		{[]float64{-0.1, -1e-9, 0}, []float64{-0.5, 0.5, 0}},
		{[]float64{-100, 1, 0}, []float64{-0.25, 0.25, 0}},
	} {
		copy(grad, step.grad)
		if err := s.Step(model); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(weight, step.want) {
			t.Errorf("step %d: weights %v, want %v", i+1, weight, step.want)
		}
	}
	grad[2] = math.NaN()
	if err := s.Step(model); err != nil || !math.IsNaN(weight[2]) {
		t.Errorf("a NaN does not show: weight %v, error %v", weight[2], err)
	}
}

func TestEveryDecayDecays(t *testing.T) {
	for _, name := range []string{SGD, Momentum, Nesterov, Adam, AdamW, LAMB, Lion} {
		weight := []float64{2, -2}
		s := newSolver(t, Config{Name: name, LearningRate: 0.01, WeightDecay: 0.1})
		for range 50 {
			if err := s.Step(vectors(weight, []float64{0, 0})); err != nil {
				t.Fatal(err)
			}
		}
		if !(weight[0] > 0 && weight[0] < 1.95) || weight[1] != -weight[0] {
			t.Errorf("%s: weights %v after 50 steps without a gradient, from 2 and -2", name, weight)
		}
	}
}

func TestFirstGroupThatMatchesWins(t *testing.T) {
	c := Config{Name: AdamW, WeightDecay: 0.1, Groups: []Group{
		{Names: []string{"*.norm"}},
		{Names: []string{"head.*", "tail?"}, WeightDecay: 0.2, RateScale: 3},
		{MaxDims: 1, NoWeightDecay: true},
		{Names: []string{"[xyz]*"}, MaxDims: 2, RateScale: 0.5},
	}}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []struct {
		name         string
		shape        []int
		decay, scale float64
	}{
		{"a.norm", []int{7}, 0.1, 1},
		{"head.norm", []int{7}, 0.1, 1},
		{"head.bias", []int{7}, 0.2, 3},
		{"tail1", []int{2, 2}, 0.2, 3},
		{"tail", []int{2, 2}, 0.1, 1},
		{"b", []int{7}, 0, 1},
		{"b", []int{1, 7}, 0, 1},
		{"b", []int{1, 7, 1, 1}, 0, 1},
		{"b", nil, 0, 1},
		{"b", []int{2, 7}, 0.1, 1},
		{"x", []int{2, 7}, 0.1, 0.5},
		{"x", []int{2, 7, 2}, 0.1, 1},
		{"", []int{2, 7}, 0.1, 1},
	} {
		if decay, scale := c.Of(p.name, p.shape); decay != p.decay || scale != p.scale {
			t.Errorf("%q %v: decay %v and factor %v, want %v and %v", p.name, p.shape, decay, scale, p.decay, p.scale)
		}
	}
}

// TestGroupsGoByTheNamesOfTheModel restores a state with other names, which are not compared.
func TestGroupsGoByTheNamesOfTheModel(t *testing.T) {
	c := Config{Name: SGD, LearningRate: 1, Groups: []Group{{Names: []string{"w0"}, RateScale: 2}}}
	st := State{Name: SGD, Steps: 3, Params: []ParamState{
		{Name: "w1", Shape: []int{1}, DType: gtensor.Float64}, {Name: "w0", Shape: []int{1}, DType: gtensor.Float64},
	}}
	s := newSolver(t, c)
	if err := s.SetState(st); err != nil {
		t.Fatal(err)
	}
	a, b := []float64{0}, []float64{0}
	if err := s.Step(vectors(a, []float64{1}, b, []float64{1})); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%v %v %s", a, b, s.State().Params[0].Name); got != "[-2] [-1] w0" {
		t.Errorf("weights and name %s, want [-2] [-1] w0", got)
	}
}
