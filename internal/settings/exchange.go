package settings

import (
	"fmt"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/tensor"
)

// Exchange returns the configuration of gradient exchange and sharding.
//
// Errors: those of ddp.ParseAverage.
func Exchange(c *config.Config) (ddp.Config, error) {
	d := ddp.Config{
		BucketMB:      inMiB(c.DDP.BucketBytes()),
		FirstBucketMB: inMiB(c.DDP.FirstBucketBytes()),
		NoOverlap:     !c.DDP.Overlap,
		Stage:         c.Shard.Stage,
		OverlapGather: c.Shard.OverlapGather,
		WireDType:     map[string]tensor.DType{"bf16": tensor.BF16, "f16": tensor.F16}[c.Comm.WireDType],
		ErrorFeedback: c.Comm.WireDType != "f32" && c.Comm.ErrorFeedback,
		VirtualRanks:  c.DDP.VirtualRanks,
	}
	if c.DDP.LocalSteps > 1 {
		d.LocalSteps = c.DDP.LocalSteps
	}
	if c.DDP.Hook == "powersgd" {
		d.Hook = compress.PowerSGD{Rank: c.DDP.PowerSGDRank, Seed: uint64(c.Run.Seed)}
	}
	var err error
	d.Average, err = ddp.ParseAverage(c.DDP.Average)
	return d, err
}

func inMiB(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// Check reports conflicts between settings of solver and exchange, which config.Load cannot know.
func Check(c *config.Config) error {
	if err := Solver(c, false, 1, 1).Validate(); err != nil {
		return fmt.Errorf("optim: %w", err)
	}
	d, err := Exchange(c)
	if err == nil {
		err = d.Validate()
	}
	if err != nil {
		return fmt.Errorf("ddp, shard and comm: %w", err)
	}
	if c.Shard.OverlapGather && c.Shard.Stage == 3 {
		return fmt.Errorf("shard.overlap_gather: has no effect, because with shard.stage=3 weights are gathered before each use: remove it, or use shard.stage 1 or 2")
	}
	if c.DDP.VirtualRanks > 0 && c.Data.AccumSteps > 1 {
		return fmt.Errorf("data.accum_steps=%d: ddp.virtual_ranks=%d already sets the number of parts of a batch; set accum_steps to 1",
			c.Data.AccumSteps, c.DDP.VirtualRanks)
	}
	if d.ErrorFeedback && d.Stage > 1 && c.Data.AccumSteps > 1 {
		return fmt.Errorf("comm.error_feedback: residuals belong to whole steps, but with shard.stage=%d each of data.accum_steps=%d parts is reduced separately: use shard.stage 0 or 1, or remove one of these settings",
			d.Stage, c.Data.AccumSteps)
	}
	if c.DDP.LocalSteps > 1 && c.Optim.EMADecay > 0 {
		return fmt.Errorf("optim.ema_decay=%v: with ddp.local_steps=%d each rank would average its own weights: remove one of them",
			c.Optim.EMADecay, c.DDP.LocalSteps)
	}
	if scale, dynamic, err := c.Optim.Scale(); err == nil && c.Run.Precision == "f16" && c.Run.Device != "cpu" && scale == 0 && !dynamic {
		return fmt.Errorf("run.precision=f16: gradients below 6e-8 would become 0; set optim.loss_scale=dynamic, or run.precision=bf16")
	}
	if c.Run.Machine == Tape && c.Run.Recompute != "none" {
		return fmt.Errorf("run.recompute=%s: the tape machine keeps all results; set run.machine=compiled, or remove it", c.Run.Recompute)
	}
	return nil
}

// CheckRanks reports settings that the number of ranks does not allow.
func CheckRanks(c *config.Config, ranks int) error {
	if v := c.DDP.VirtualRanks; v%ranks != 0 {
		return fmt.Errorf("ddp.virtual_ranks=%d: not divisible by %d ranks", v, ranks)
	}
	return nil
}
