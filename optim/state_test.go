package optim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	gtensor "gorgonia.org/tensor"
)

// steps makes n steps on two vectors with gradients that depend on the number of the step.
func steps(t *testing.T, s Solver, weight []float32, n int) {
	t.Helper()
	for range n {
		grad := noise(len(weight), uint64(1000+s.Steps()))
		if err := s.Step(vectors(weight[:5], grad[:5], weight[5:], grad[5:])); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRestoredSolverGoesOnWithTheSameBits(t *testing.T) {
	for _, c := range torchCases {
		config := c.config
		config.Schedule = Schedule{Name: StepDown, WarmupSteps: 3, Steps: 4, Gamma: 0.5}
		for _, used := range []bool{false, true} { // whether the restored solver has made steps of its own
			t.Run(fmt.Sprintf("%s/used=%t", c.name, used), func(t *testing.T) {
				weight := noise(20, 1)
				straight := newSolver(t, config)
				steps(t, straight, weight, 6)
				saved, at6 := straight.State(), slices.Clone(weight)
				steps(t, straight, weight, 6) // must not reach into saved

				restored := newSolver(t, config)
				if used {
					steps(t, restored, noise(20, 2), 3)
				}
				if err := restored.SetState(saved); err != nil {
					t.Fatal(err)
				}
				if restored.Steps() != 6 || restored.LearningRate() != config.Schedule.Rate(config.withDefaults().LearningRate, 6) {
					t.Errorf("restored to step %d, rate %v", restored.Steps(), restored.LearningRate())
				}
				steps(t, restored, at6, 6)
				if !slices.Equal(bitsOf(at6), bitsOf(weight)) {
					t.Error("weights differ after the same steps")
				}
			})
		}
	}
}

func TestStateNamesItsParts(t *testing.T) {
	s := newSolver(t, Config{Name: Adam, AMSGrad: true})
	if st := s.State(); st.Name != Adam || st.Steps != 0 || len(st.Params) != 0 {
		t.Errorf("fresh state %+v", st)
	}
	if err := s.Step(vectors([]float64{1, 2}, []float64{0.5, -2})); err != nil {
		t.Fatal(err)
	}
	st := s.State()
	if st.Steps != 1 || len(st.Params) != 1 {
		t.Fatalf("state %+v", st)
	}
	p := st.Params[0]
	if p.Name != "w0" || !slices.Equal(p.Shape, []int{2}) || p.DType != gtensor.Float64 {
		t.Errorf("parameter %+v", p)
	}
	// (1-beta1)*g, (1-beta2)*g*g and its maximum with 0, computed as the rule does.
	beta1, beta2 := 0.9, 0.999
	for i, want := range []struct {
		name  string
		value float64
	}{{"exp_avg", (1 - beta1) * -2}, {"exp_avg_sq", (1 - beta2) * 4}, {"max_exp_avg_sq", (1 - beta2) * 4}} {
		if slot := p.Slots[i]; slot.Name != want.name || slot.F64[1] != want.value || slot.F32 != nil {
			t.Errorf("slot %d is %+v, want %+v", i, slot, want)
		}
	}
}

func TestSetStateOfAFreshSolverStartsOver(t *testing.T) {
	s := newSolver(t, Config{Name: Momentum})
	steps(t, s, noise(20, 1), 3)
	if err := s.SetState(State{Name: Momentum}); err != nil {
		t.Fatal(err)
	}
	if s.Steps() != 0 {
		t.Errorf("%d steps", s.Steps())
	}
	// Another model fits now, and its first step is a first step: without dampening or old
	// momentum.
	weight := []float64{1}
	if err := s.Step(vectors(weight, []float64{1})); err != nil || weight[0] != 1-1e-3 {
		t.Errorf("weight %v, error %v", weight[0], err)
	}
}

func TestStatesThatDoNotFitAreRefused(t *testing.T) {
	good := func() State {
		s := newSolver(t, Config{Name: Adam})
		steps(t, s, noise(20, 1), 2)
		return s.State()
	}
	for _, c := range []struct {
		name  string
		spoil func(st *State)
		says  string
	}{
		{"other rule", func(st *State) { st.Name = AdamW }, `the state is of "adamw"`},
		{"negative steps", func(st *State) { st.Steps = -1 }, "-1 steps"},
		{"steps without parameters", func(st *State) { st.Params = nil }, "2 steps with 0 parameters"},
		{"parameter missing", func(st *State) { st.Params = st.Params[:1] }, "the state has 1 parameters and the model 2"},
		{"other shape", func(st *State) {
			st.Params[1].Shape = []int{3}
			st.Params[1].Slots[0].F32 = make([]float32, 3)
			st.Params[1].Slots[1].F32 = make([]float32, 3)
		}, "parameter 1 w1 (3) float32 is w1 (15) float32 in the model"},
		{"negative dim", func(st *State) { st.Params[1].Shape = []int{-3, -5} }, "parameter 1 w1 (-3, -5): negative dimension"},
		{"huge dims", func(st *State) { st.Params[1].Shape = []int{1 << 40, 1 << 40} }, "parameter 1 w1 (1099511627776, 1099511627776): more than 1099511627776 elements"},
		{"huge in all", func(st *State) { st.Params[1].Shape = []int{1 << 40} }, "more than 1099511627776 elements in all"},
		{"no dtype", func(st *State) { st.Params[0].DType = gtensor.Dtype{} }, "parameter 0 w0 (5): dtype none: use float32"},
		{"integer dtype", func(st *State) { st.Params[0].DType = gtensor.Int }, "dtype int: use float32 or float64"},
		{"other dtype", func(st *State) {
			p := &st.Params[0]
			p.DType = gtensor.Float64
			for i := range p.Slots {
				p.Slots[i].F64 = make([]float64, 5)
			}
		}, "parameter 0 w0 (5) float64 is w0 (5) float32 in the model"},
		{"slot missing", func(st *State) { st.Params[1].Slots = st.Params[1].Slots[:1] }, "1 slots, adam keeps 2"},
		{"slots swapped", func(st *State) { slices.Reverse(st.Params[1].Slots) }, `slot 0 is "exp_avg_sq"`},
		{"slot too short", func(st *State) { st.Params[1].Slots[1].F32 = make([]float32, 14) }, `slot 1 is "exp_avg_sq" with 14 float32 elements from 0 on: it must be "exp_avg_sq" with 15 from 0 on`},
		{"slot in the other dtype", func(st *State) {
			st.Params[1].Slots[0] = Slot{Name: "exp_avg", F64: make([]float64, 15)}
		}, `slot 0 is "exp_avg" with 0 float32`},
	} {
		t.Run(c.name, func(t *testing.T) {
			weight, undisturbed := noise(20, 3), noise(20, 3)
			s, twin := newSolver(t, Config{Name: Adam}), newSolver(t, Config{Name: Adam})
			steps(t, s, weight, 4)
			steps(t, twin, undisturbed, 4)
			st := good()
			c.spoil(&st)
			err := s.SetState(st)
			if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("error %v, want ErrMismatch saying %q", err, c.says)
			}
			steps(t, s, weight, 2)
			steps(t, twin, undisturbed, 2)
			if s.Steps() != 6 || !slices.Equal(weight, undisturbed) {
				t.Error("the refused state had an effect")
			}
		})
	}
}

func TestRestoredStateIsComparedWithTheModel(t *testing.T) {
	s := newSolver(t, Config{Name: SGD})
	steps(t, s, noise(20, 1), 1)
	restored := newSolver(t, Config{Name: SGD})
	if err := restored.SetState(s.State()); err != nil {
		t.Fatal(err)
	}
	err := restored.Step(vectors([]float64{1}, []float64{1}, []float64{1}, []float64{1}))
	if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "parameter 0 w0: weight is float64 and the solver's state is float32") {
		t.Errorf("error %v", err)
	}
}
