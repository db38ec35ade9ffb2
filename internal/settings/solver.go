package settings

import (
	"math"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/optim"
)

// Solver returns the configuration of the solver for a run of so many steps and goroutines.
// Settings that the rule does not use stay zero, as the solver requires.
//
// A gradient that is not finite ends a run at its step, before it spoils the weights. Detecting it
// costs the norm of the gradients. On a GPU that takes extra kernels, so only gradients that are
// narrow on the wire, or scaled, are checked; others show in the loss.
func Solver(all *config.Config, gpu bool, steps, threads int) optim.Config {
	c := all.Optim
	o := optim.Config{
		Name: c.Name, LearningRate: c.LR, WeightDecay: c.WeightDecay, Groups: groups(c),
		ClipNorm: c.ClipNorm, ClipValue: c.ClipValue, EMADecay: c.EMADecay,
		Schedule:      optim.Schedule{Name: c.Schedule.Name, WarmupSteps: c.Schedule.WarmupSteps},
		KeepGradients: true, // every run overwrites them
		Workers:       threads,
	}
	// An adaptive loss scale is sometimes too large, and adapts by skipping that step.
	scale, dynamic, _ := c.Scale()
	o.SkipNonFinite = c.SkipNonFinite || dynamic
	if o.ClipNorm == 0 && !o.SkipNonFinite && (!gpu || all.Comm.WireDType != "f32" || scale != 0) {
		o.ClipNorm = math.Inf(1)
	}
	switch c.Name {
	case optim.Momentum:
		o.Momentum, o.Nesterov = c.Momentum, c.Nesterov
	case optim.Nesterov:
		o.Momentum = c.Momentum
	case optim.Adam, optim.AdamW, optim.LAMB:
		o.Beta1, o.Beta2, o.Epsilon = c.Beta1, c.Beta2, c.Eps
	case optim.Lion:
		o.Beta1, o.Beta2 = c.Beta1, c.Beta2
	}
	switch c.Schedule.Name {
	case optim.Cosine:
		o.Schedule.Steps, o.Schedule.MinLearningRate = c.Schedule.CosineSteps(steps), c.Schedule.MinLR
	case optim.StepDown:
		o.Schedule.Steps, o.Schedule.Gamma = c.Schedule.StepSize, c.Schedule.Gamma
	}
	return o
}

// groups returns the parameters without weight decay.
func groups(c config.Optim) []optim.Group {
	if c.WeightDecay == 0 {
		return nil
	}
	var all []optim.Group
	names := optim.Group{NoWeightDecay: true}
	for _, p := range c.NoDecayPatterns() {
		if p == config.Vectors {
			all = append(all, optim.Group{MaxDims: 1, NoWeightDecay: true})
		} else {
			names.Names = append(names.Names, p)
		}
	}
	if len(names.Names) > 0 {
		all = append(all, names)
	}
	return all
}
