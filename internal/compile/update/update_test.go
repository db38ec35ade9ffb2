package update

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
	"github.com/symgrad/symgrad/internal/compile/program/oracle"
	"github.com/symgrad/symgrad/internal/compile/values"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// testParam is a parameter of a test: a value and a gradient.
type testParam struct {
	name         string
	weight, grad *gtensor.Dense
}

func (p testParam) Name() string { return p.name }

func (p testParam) Value() gorgonia.Value         { return p.weight }
func (p testParam) Grad() (gorgonia.Value, error) { return p.grad, nil }

// testParams has parameters of both types, one with a shape of its own.
func testParams(rng *rand.Rand) []testParam {
	var all []testParam
	for i, shape := range [][]int{{3, 4}, {5}, {1}, {2, 3, 2}} {
		n := gtensor.Shape(shape).TotalSize()
		single := make([]float32, 2*n)
		double := make([]float64, 2*n)
		for k := range single {
			double[k] = rng.NormFloat64()
			single[k] = float32(double[k])
		}
		if i%2 == 1 {
			all = append(all, testParam{
				"",
				gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(double[:n:n])),
				gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(double[n:])),
			})
			continue
		}
		all = append(all, testParam{
			"",
			gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(single[:n:n])),
			gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(single[n:])),
		})
	}
	return all
}

// updateRun is the program of an optimizer with memory on the host.
type updateRun struct {
	u      *Update
	p      *program.Program
	memory map[program.ID][]byte
	ids    []*program.ID
	slots  [][]tensor.Buffer // states, by parameter
}

func newUpdateRun(t *testing.T, c optim.Config, params []testParam, optimize bool) *updateRun {
	t.Helper()
	b := draft.New("update")
	u := &Update{Config: c.WithDefaults()}
	x := &updateRun{u: u, p: b.Program, memory: map[program.ID][]byte{}}
	outside := func(name string, role program.Role, at tensor.Buffer, shape ...int) program.ID {
		id := b.Program.Add(program.Value{Name: name, DType: at.DType(), Shape: shape, Role: role, Place: program.Outside})
		x.memory[id] = at.Raw()
		return id
	}
	for i, id := range []*program.ID{&u.Rate, &u.Scale, &u.Pow1, &u.Pow2, &u.Count, &u.Norm, &u.Skipped} {
		*id = outside(fmt.Sprint("word ", i), program.State, tensor.Of(make([]float64, 1)))
		x.ids = append(x.ids, id)
	}
	for i, p := range params {
		w, err := tensor.BufferOf(p.weight)
		if err != nil {
			t.Fatal(err)
		}
		g, err := tensor.BufferOf(p.grad)
		if err != nil {
			t.Fatal(err)
		}
		shape := p.weight.Shape()
		q := Param{
			Name:   fmt.Sprint("w", i),
			Whole:  shape,
			Weight: b.Whole(outside(fmt.Sprint("w", i), program.Param, w, shape...)),
			Grad:   b.Whole(outside(fmt.Sprint("d", i), program.Gradient, g, shape...)),
		}
		var slots []tensor.Buffer
		for _, name := range c.Slots() {
			zeros, err := values.New(w.DType(), w.Len())
			if err != nil {
				t.Fatal(err)
			}
			q.Slots = append(q.Slots, outside(name, program.State, zeros, shape...))
			slots = append(slots, zeros)
		}
		x.slots = append(x.slots, slots)
		u.Params = append(u.Params, q)
	}
	if err := u.Emit(b); err != nil {
		t.Fatal(err)
	}
	finish := program.Pack
	if optimize {
		finish = program.Optimize
	}
	b.Program.Rows, b.Program.Again = true, true // as for a GPU
	if err := errors.Join(finish(b.Program), program.Plan(b.Program), program.Validate(b.Program)); err != nil {
		t.Fatal(err)
	}
	x.set(2, 1)
	x.set(3, 1)
	return x
}

func (x *updateRun) set(word int, v float64) {
	program.SetElement(tensor.F64, x.memory[*x.ids[word]], 0, v)
}

func (x *updateRun) word(word int) float64 {
	return program.Element(tensor.F64, x.memory[*x.ids[word]], 0)
}

// TestUpdatesAreThoseOfOptim compares the programs of all rules with the solvers of the host, over
// ten steps.
func TestUpdatesAreThoseOfOptim(t *testing.T) {
	schedule := optim.Schedule{Name: optim.Cosine, WarmupSteps: 3, Steps: 6, MinLearningRate: 1e-4}
	for name, c := range map[string]optim.Config{
		"sgd":       {Name: optim.SGD, LearningRate: 0.1},
		"decay":     {Name: optim.SGD, LearningRate: 0.1, WeightDecay: 0.01, ClipNorm: 0.5},
		"momentum":  {Name: optim.Momentum, LearningRate: 0.05, WeightDecay: 0.01},
		"dampening": {Name: optim.Momentum, LearningRate: 0.05, Dampening: 0.3, ClipNorm: 1},
		"nesterov":  {Name: optim.Momentum, LearningRate: 0.05, Nesterov: true, Schedule: schedule},
		"adam":      {Name: optim.Adam, LearningRate: 0.01, WeightDecay: 0.1},
		"amsgrad":   {Name: optim.Adam, LearningRate: 0.01, AMSGrad: true, ClipNorm: math.Inf(1)},
		"adamw":     {Name: optim.AdamW, LearningRate: 0.01, WeightDecay: 0.1, ClipNorm: 2, Schedule: schedule},
		"by name":   {Name: optim.Nesterov, LearningRate: 0.05, ClipValue: 0.5, EMADecay: 0.9},
		"lion":      {Name: optim.Lion, LearningRate: 0.01, WeightDecay: 0.1, EMADecay: 0.5},
		"lamb":      {Name: optim.LAMB, LearningRate: 0.01, WeightDecay: 0.1},
		"groups": {
			Name: optim.LAMB, LearningRate: 0.01, WeightDecay: 0.1, ClipNorm: 1, EMADecay: 0.9, SkipNonFinite: true, Schedule: schedule,
			Groups: []optim.Group{{Names: []string{"w3"}, RateScale: 0.5, WeightDecay: 0.3}, {MaxDims: 1, NoWeightDecay: true}},
		},
		"adam groups": {
			Name: optim.Adam, LearningRate: 0.01, WeightDecay: 0.1, ClipNorm: 1, ClipValue: 0.2, AMSGrad: true, EMADecay: 0.9,
			Groups: []optim.Group{{Names: []string{"w[03]"}, RateScale: 0.5}, {MaxDims: 1, NoWeightDecay: true}},
		},
		"adamw groups": {
			Name: optim.AdamW, LearningRate: 0.01, WeightDecay: 0.1,
			Groups: []optim.Group{{MaxDims: 1, NoWeightDecay: true, RateScale: 2}},
		},
		"skip":     {Name: optim.Momentum, LearningRate: 0.05, Dampening: 0.3, SkipNonFinite: true, EMADecay: 0.7},
		"skip sgd": {Name: optim.SGD, LearningRate: 0.05, SkipNonFinite: true, ClipNorm: 1},
	} {
		for _, optimize := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/optimized=%t", name, optimize), func(t *testing.T) { compareUpdates(t, c, optimize) })
		}
	}
}

func compareUpdates(t *testing.T, c optim.Config, optimize bool) {
	mine, theirs := testParams(rand.New(rand.NewPCG(1, 2))), testParams(rand.New(rand.NewPCG(1, 2)))
	x := newUpdateRun(t, c, mine, optimize)
	c.KeepGradients = true
	s, err := optim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	model := make([]gorgonia.ValueGrad, len(theirs))
	for i := range theirs {
		theirs[i].name = fmt.Sprint("w", i)
		model[i] = theirs[i]
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for step := range 10 {
		scale := 1 / float64(1+step%3)
		if err := s.SetGradientScale(scale); err != nil {
			t.Fatal(err)
		}
		x.set(0, s.LearningRate())
		x.set(1, scale)
		for i := range mine {
			fillGradient(rng, mine[i].grad, theirs[i].grad)
		}
		if c.SkipNonFinite && step%4 == 0 { // the first step too
			mine[3].grad.Float64s()[4], theirs[3].grad.Float64s()[4] = math.NaN(), math.NaN()
		}
		if err := oracle.Run(x.p, x.memory); err != nil {
			t.Fatal(err)
		}
		if err := s.Step(model); err != nil {
			t.Fatal(err)
		}
		for i := range mine {
			closeTo(t, fmt.Sprintf("step %d: weight %d", step, i), mine[i].weight, theirs[i].weight)
		}
		if want := s.GradNorm(); c.ClipNorm > 0 && math.Abs(x.word(5)-want) > 1e-9*want {
			t.Errorf("step %d: norm %v, want %v", step, x.word(5), want)
		}
	}
	if int(x.word(6)) != s.Skipped() || c.SkipNonFinite && s.Skipped() != 3 {
		t.Errorf("%v steps skipped, want %d", x.word(6), s.Skipped())
	}
	x.closeState(t, s.State())
}

// closeState compares the program's states with a solver's.
func (x *updateRun) closeState(t *testing.T, want optim.State) {
	t.Helper()
	for i, p := range want.Params {
		for k, slot := range p.Slots {
			got := x.slots[i][k]
			for e := range got.Len() {
				a, b := program.Element(got.DType(), got.Raw(), e), 0.0
				if got.DType() == tensor.F64 {
					b = slot.F64[e]
				} else {
					b = float64(slot.F32[e])
				}
				if !(math.Abs(a-b) <= 1e-6*math.Max(1, math.Abs(b))) {
					t.Errorf("slot %s of parameter %d, element %d: %v, want %v", slot.Name, i, e, a, b)
					return
				}
			}
		}
	}
}

// fillGradient sets two tensors to the same random numbers.
func fillGradient(rng *rand.Rand, a, b *gtensor.Dense) {
	for k := range a.Shape().TotalSize() {
		v := rng.NormFloat64()
		if a.Dtype() == gtensor.Float64 {
			a.Float64s()[k], b.Float64s()[k] = v, v
		} else {
			a.Float32s()[k], b.Float32s()[k] = float32(v), float32(v)
		}
	}
}

func closeTo(t *testing.T, what string, got, want *gtensor.Dense) {
	t.Helper()
	for k := range got.Shape().TotalSize() {
		var a, b float64
		if got.Dtype() == gtensor.Float64 {
			a, b = got.Float64s()[k], want.Float64s()[k]
		} else {
			a, b = float64(got.Float32s()[k]), float64(want.Float32s()[k])
		}
		if !(math.Abs(a-b) <= 1e-6*math.Max(1, math.Abs(b))) {
			t.Errorf("%s, element %d: %v, want %v", what, k, a, b)
			return
		}
	}
}

// TestAnUpdateByGradientsThatAreNoNumbersChangesNothing checks weights, states and the count of
// steps.
func TestAnUpdateByGradientsThatAreNoNumbersChangesNothing(t *testing.T) {
	params := testParams(rand.New(rand.NewPCG(5, 6)))
	x := newUpdateRun(t, optim.Config{Name: optim.Adam, AMSGrad: true, ClipNorm: 1}, params, true)
	x.set(0, 0.1)
	x.set(1, 1)
	params[1].grad.Float64s()[2] = math.NaN()
	before := map[program.ID]string{}
	for i := range x.p.Values {
		if id := program.ID(i); x.p.Values[i].Place == program.Outside && id != x.u.Norm {
			before[id] = string(x.memory[id])
		}
	}
	if err := oracle.Run(x.p, x.memory); err != nil {
		t.Fatal(err)
	}
	for id, was := range before {
		if string(x.memory[id]) != was {
			t.Errorf("%s has changed", x.p.Values[id].Name)
		}
	}
	if !math.IsNaN(x.word(5)) {
		t.Errorf("the norm is %v", x.word(5))
	}
	params[1].grad.Float64s()[2] = 1
	if err := oracle.Run(x.p, x.memory); err != nil {
		t.Fatal(err)
	}
	if x.word(2) != 0.9 || math.IsNaN(x.word(5)) {
		t.Errorf("after a good step beta1^t is %v and the norm %v", x.word(2), x.word(5))
	}
}
