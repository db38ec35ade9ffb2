package settings_test

import (
	"math"
	"testing"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/internal/settings"
	"github.com/symgrad/symgrad/optim"
)

// Every valid setting of the optimizer is one that the solver takes: it refuses those that its rule
// does not read.
func TestEveryOptimizerSettingIsTaken(t *testing.T) {
	for _, rule := range []string{"sgd", "momentum", "nesterov", "adam", "adamw", "lamb", "lion"} {
		for _, schedule := range []string{"constant", "cosine", "step"} {
			for _, steps := range []int{1, 100} {
				all := config.Default()
				c := &all.Optim // with defaults of the settings of other rules
				c.Name, c.Schedule.Name, c.Schedule.WarmupSteps = rule, schedule, 5
				c.WeightDecay, c.ClipNorm, c.Schedule.MinLR = 0.01, 1, 1e-5
				c.NoDecay, c.ClipValue, c.EMADecay, c.LossScale = "vectors, *.gain", 2, 0.99, "dynamic"
				o := settings.Solver(&all, false, steps, 2)
				if _, err := optim.New(o); err != nil {
					t.Errorf("%s, %s, %d steps: %v", rule, schedule, steps, err)
				}
				if o.LearningRate != c.LR || o.WeightDecay != 0.01 || o.ClipNorm != 1 || o.Schedule.WarmupSteps != 5 || o.Workers != 2 ||
					o.ClipValue != 2 || o.EMADecay != 0.99 || !o.SkipNonFinite {
					t.Errorf("%s, %s: settings are lost in %+v", rule, schedule, o)
				}
			}
		}
	}
	all := config.Default()
	c := &all.Optim
	c.WeightDecay, c.NoDecay = 0.1, "vectors, *.gain"
	for name, shape := range map[string][]int{"w": {3, 4}, "b": {4}, "x.gain": {2, 2}} {
		if decay, _ := settings.Solver(&all, false, 10, 1).Of(name, shape); (decay == 0.1) != (name == "w") {
			t.Errorf("%s %v: weight decay %v", name, shape, decay)
		}
	}
	*c = config.Default().Optim
	c.Name, c.Momentum, c.Nesterov = "momentum", 0.8, true
	if o := settings.Solver(&all, false, 10, 1); o.Momentum != 0.8 || !o.Nesterov {
		t.Errorf("momentum is %v, nesterov %v", o.Momentum, o.Nesterov)
	}
	c.Name, c.Beta1, c.Beta2, c.Eps = "adam", 0.8, 0.99, 1e-6
	c.Schedule = config.Schedule{Name: "cosine", MinLR: 1e-4}
	if o := settings.Solver(&all, false, 10, 1); o.Beta1 != 0.8 || o.Beta2 != 0.99 || o.Epsilon != 1e-6 || o.Schedule.Steps != 10 || o.Schedule.MinLearningRate != 1e-4 {
		t.Errorf("adam with cosine is %+v", o)
	}
	c.Schedule = config.Schedule{Name: "step", StepSize: 7, Gamma: 0.5}
	if o := settings.Solver(&all, false, 10, 1); o.Schedule.Steps != 7 || o.Schedule.Gamma != 0.5 {
		t.Errorf("steps are %+v", o.Schedule)
	}
}

// Where gradients are not looked at otherwise, their norm is measured and nothing is clipped.
func TestGradientsAreLookedAt(t *testing.T) {
	for _, test := range []struct {
		wire, scale string
		clip        float64
		skip, gpu   bool
		want        float64
	}{
		{"f32", "0", 0, false, false, math.Inf(1)},
		{"f32", "0", 2, false, false, 2},
		{"f32", "0", 0, true, false, 0},
		{"f32", "dynamic", 0, false, false, 0}, // whose steps are left out
		{"f32", "0", 0, false, true, 0},
		{"f16", "0", 0, false, true, math.Inf(1)},
		{"f32", "1024", 0, false, true, math.Inf(1)},
	} {
		c := config.Default()
		c.Comm.WireDType, c.Optim.LossScale, c.Optim.ClipNorm, c.Optim.SkipNonFinite = test.wire, test.scale, test.clip, test.skip
		o := settings.Solver(&c, test.gpu, 10, 1)
		if o.ClipNorm != test.want {
			t.Errorf("%+v: clip norm %v", test, o.ClipNorm)
		}
		if _, err := optim.New(o); err != nil {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
