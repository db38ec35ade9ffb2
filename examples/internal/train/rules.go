package train

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// optimConfig is the settings of the solver for a run of so many steps. Those that the rule does not read stay zero, which
// the solver insists on.
func optimConfig(c config.Optim, steps, threads int) optim.Config {
	o := optim.Config{
		Name: c.Name, LearningRate: c.LR, WeightDecay: c.WeightDecay, Groups: groups(c),
		ClipNorm: c.ClipNorm, ClipValue: c.ClipValue, EMADecay: c.EMADecay,
		Schedule:      optim.Schedule{Name: c.Schedule.Name, WarmupSteps: c.Schedule.WarmupSteps},
		KeepGradients: true, // every run overwrites them
		Workers:       threads,
	}
	// A loss whose scale adapts is too large now and then: that is how it finds out.
	_, dynamic, _ := c.Scale()
	o.SkipNonFinite = c.SkipNonFinite || dynamic
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

// groups is the parameters without weight decay.
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

// ddpConfig is how gradients are exchanged, and what is shared out.
func ddpConfig(c *config.Config) (ddp.Config, error) {
	d := ddp.Config{
		BucketMB:      mebibytes(c.DDP.BucketBytes()),
		FirstBucketMB: mebibytes(c.DDP.FirstBucketBytes()),
		NoOverlap:     !c.DDP.Overlap,
		Stage:         c.Shard.Stage,
		WireDType:     map[string]tensor.DType{"bf16": tensor.BF16, "f16": tensor.F16}[c.Comm.WireDType],
		ErrorFeedback: c.Comm.WireDType != "f32" && c.Comm.ErrorFeedback,
		VirtualRanks:  c.DDP.VirtualRanks,
	}
	if c.DDP.LocalSteps > 1 {
		d.LocalSteps = c.DDP.LocalSteps
	}
	if c.DDP.Hook == "powersgd" {
		d.Hook = ddp.PowerSGD{Rank: c.DDP.PowerSGDRank, Seed: uint64(c.Run.Seed)}
	}
	var err error
	if d.Average, err = ddp.ParseAverage(c.DDP.Average); err != nil {
		return d, err
	}
	return d, nil
}

// checkRules reports what config.Load cannot know: which settings exclude each other for solver and exchange.
func (o *options) checkRules() error {
	c := o.cfg
	if c.Optim.NoDecay != "" && c.Optim.WeightDecay == 0 {
		return Usage("optim.no_decay: has no effect, because optim.weight_decay is 0: remove it, or set that")
	}
	if err := optimConfig(c.Optim, 1, 1).Validate(); err != nil {
		return usageError{fmt.Errorf("optim: %w", err)}
	}
	d, err := ddpConfig(c)
	if err == nil {
		err = d.Validate()
	}
	// Bounds of buckets are told by Attach, which knows the model.
	if err != nil {
		return usageError{fmt.Errorf("ddp, shard and comm: %w", err)}
	}
	if c.DDP.VirtualRanks > 0 && c.Data.AccumSteps > 1 {
		return Usage("data.accum_steps=%d: ddp.virtual_ranks=%d says already in how many parts a batch is computed; set accum_steps to 1",
			c.Data.AccumSteps, c.DDP.VirtualRanks)
	}
	if c.DDP.LocalSteps > 1 && c.Optim.EMADecay > 0 {
		return Usage("optim.ema_decay=%v: with ddp.local_steps=%d each rank would have averages of its own weights: leave one of them out",
			c.Optim.EMADecay, c.DDP.LocalSteps)
	}
	if o.timing.kept && c.Optim.LossScale == "dynamic" {
		return Usage("--kept: optim.loss_scale=dynamic is an input that changes; use a number")
	}
	if o.verify {
		return o.checkVerify()
	}
	return nil
}

// checkRanks reports settings that so many ranks cannot have.
func checkRanks(c *config.Config, ranks int) error {
	if v := c.DDP.VirtualRanks; v%ranks != 0 {
		return Usage("ddp.virtual_ranks=%d: %s do not divide it", v, plural(ranks, "rank"))
	}
	return nil
}

// checkNames reports patterns of optim.no_decay that are of no parameter: a slip, which would change what is learned.
func checkNames(c config.Optim, params gorgonia.Nodes) error {
	for _, pattern := range c.NoDecayPatterns() {
		names, found := make([]string, len(params)), pattern == config.Vectors
		for i, p := range params {
			names[i] = p.Name()
			match, _ := path.Match(pattern, p.Name()) // config.Load has tried it
			found = found || match
		}
		if !found {
			return Usage("optim.no_decay: %q is the name of no parameter; there are %s", pattern, strings.Join(names, ", "))
		}
	}
	return nil
}

var errVerify = errors.New("--verify compares the gradient of all ranks with that of one")

// checkVerify refuses to compare gradients that are not meant to be equal.
func (o *options) checkVerify() error {
	c := o.cfg
	switch {
	case c.DDP.LocalSteps > 1:
		return usageError{fmt.Errorf("%w, and with ddp.local_steps=%d gradients are not exchanged", errVerify, c.DDP.LocalSteps)}
	case c.DDP.Hook != "none":
		return usageError{fmt.Errorf("%w, and ddp.hook=%s does not send all of it", errVerify, c.DDP.Hook)}
	}
	return nil
}
