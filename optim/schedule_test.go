package optim

import (
	"math"
	"testing"
)

func TestScheduleTables(t *testing.T) {
	root := math.Sqrt2 / 2 // cos(pi/4)
	for _, c := range []struct {
		schedule Schedule
		base     float64
		want     []float64 // rates of steps 0, 1, ...
	}{
		{Schedule{}, 0.5, []float64{0.5, 0.5, 0.5}},
		{Schedule{Name: Constant}, 0.5, []float64{0.5, 0.5}},
		{Schedule{WarmupSteps: 4}, 1, []float64{0.25, 0.5, 0.75, 1, 1, 1}},
		{Schedule{WarmupSteps: 1}, 1, []float64{1, 1}},
		{Schedule{Name: StepDown, Steps: 2, Gamma: 0.5}, 1, []float64{1, 1, 0.5, 0.5, 0.25, 0.25, 0.125}},
		{Schedule{Name: StepDown, Steps: 1}, 1, []float64{1, 0.1, 0.1 * 0.1}},
		{Schedule{Name: StepDown, WarmupSteps: 2, Steps: 2, Gamma: 0.5}, 1, []float64{0.5, 1, 1, 1, 0.5, 0.5, 0.25}},
		{Schedule{Name: Cosine, Steps: 4}, 1, []float64{1, (1 + root) / 2, 0.5, (1 - root) / 2, 0, 0, 0}},
		{Schedule{Name: Cosine, Steps: 4, MinLearningRate: 0.1}, 1.1, []float64{1.1, 0.1 + (1+root)/2, 0.6, 0.1 + (1-root)/2, 0.1, 0.1}},
		{Schedule{Name: Cosine, WarmupSteps: 2, Steps: 2, MinLearningRate: 0.2}, 1, []float64{0.5, 1, 1, 0.6, 0.2, 0.2}},
	} {
		for step, want := range c.want {
			if got := c.schedule.Rate(c.base, step); math.Abs(got-want) > 2e-16 {
				t.Errorf("%v: rate of step %d is %v, want %v", c.schedule, step, got, want)
			}
		}
	}
}

func TestScheduleRisesThenFallsWithinItsRange(t *testing.T) {
	const base, warmup = 0.3, 7
	for _, s := range []Schedule{
		{Name: Cosine, WarmupSteps: warmup, Steps: 31, MinLearningRate: 0.01},
		{Name: StepDown, WarmupSteps: warmup, Steps: 5, Gamma: 0.9},
		{WarmupSteps: warmup},
	} {
		last := 0.0
		for step := range 100 {
			rate := s.Rate(base, step)
			if !(rate > 0 && rate <= base) || step >= warmup && rate < s.MinLearningRate {
				t.Errorf("%v: rate of step %d is %v", s, step, rate)
			}
			if rising := rate > last; rising != (step < warmup) {
				t.Errorf("%v: from step %d to %d the rate went from %v to %v", s, step-1, step, last, rate)
			}
			last = rate
		}
	}
}

func TestSolverFollowsItsSchedule(t *testing.T) {
	weight, grad := []float64{0}, []float64{0}
	c := Config{Name: SGD, LearningRate: 1, Schedule: Schedule{Name: StepDown, WarmupSteps: 2, Steps: 2, Gamma: 0.5}}
	s, model := newSolver(t, c), vectors(weight, grad)
	sum := 0.0
	for step, rate := range []float64{0.5, 1, 1, 1, 0.5, 0.5, 0.25} {
		if s.LearningRate() != rate {
			t.Errorf("rate before step %d is %v, want %v", step, s.LearningRate(), rate)
		}
		grad[0] = -1
		if err := s.Step(model); err != nil {
			t.Fatal(err)
		}
		if sum += rate; weight[0] != sum {
			t.Errorf("step %d went to %v, want %v", step, weight[0], sum)
		}
	}
}

func TestSetLearningRateReplacesTheBaseOfTheSchedule(t *testing.T) {
	s := newSolver(t, Config{Name: SGD, LearningRate: 1, Schedule: Schedule{WarmupSteps: 4}})
	if err := s.SetLearningRate(8); err != nil {
		t.Fatal(err)
	}
	if s.LearningRate() != 2 {
		t.Errorf("rate %v, want 2: a quarter of the new base", s.LearningRate())
	}
	if err := s.SetLearningRate(0); err != nil || s.LearningRate() != 0 {
		t.Errorf("rate 0 freezes the weights: got %v, error %v", s.LearningRate(), err)
	}
}
