package settings_test

import (
	"strings"
	"testing"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/internal/settings"
	"github.com/symgrad/symgrad/tensor"
)

func TestEveryExchangeSettingIsTaken(t *testing.T) {
	c := config.Default()
	d, err := settings.Exchange(&c)
	if err != nil || d.BucketMB != 25 || d.FirstBucketMB != 1 || d.NoOverlap || d.Stage != 0 || d.WireDType.Size() != 0 && d.WireDType != tensor.F32 ||
		d.Hook != nil || d.Average != ddp.Mean || d.LocalSteps > 1 || d.VirtualRanks != 0 {
		t.Errorf("the defaults are %+v, %v", d, err)
	}
	c.DDP.BucketMB, c.DDP.FirstBucketMB, c.DDP.Overlap, c.DDP.Average, c.DDP.LocalSteps, c.DDP.VirtualRanks = 2, 0.5, false, "predivide", 7, 4
	c.Shard.Stage, c.Comm.WireDType, c.Comm.ErrorFeedback = 1, "bf16", true
	d, err = settings.Exchange(&c)
	if err != nil || d.BucketMB != 2 || d.FirstBucketMB != 0.5 || !d.NoOverlap || d.Stage != 1 || d.WireDType != tensor.BF16 || !d.ErrorFeedback ||
		d.Average != ddp.PreDivide || d.LocalSteps != 7 || d.VirtualRanks != 4 {
		t.Errorf("got %+v, %v", d, err)
	}
	c = config.Default()
	c.DDP.Hook, c.DDP.PowerSGDRank, c.Run.Seed = "powersgd", 3, 9
	if d, err = settings.Exchange(&c); err != nil || d.Hook != (compress.PowerSGD{Rank: 3, Seed: 9}) {
		t.Errorf("got %+v, %v", d, err)
	}
}

func TestSettingsThatExcludeEachOtherAreNamed(t *testing.T) {
	for want, change := range map[string]func(c *config.Config){
		"":                       func(*config.Config) {},
		"optim: ":                func(c *config.Config) { c.Optim.Name = "adma" },
		"ddp, shard and comm: ":  func(c *config.Config) { c.DDP.Hook, c.DDP.PowerSGDRank, c.Shard.Stage = "powersgd", 2, 1 },
		"data.accum_steps=2":     func(c *config.Config) { c.DDP.VirtualRanks, c.Data.AccumSteps = 4, 2 },
		"shard.overlap_gather: ": func(c *config.Config) { c.Shard.Stage, c.Shard.OverlapGather = 3, true },
		"comm.error_feedback: ": func(c *config.Config) {
			c.Comm.WireDType, c.Comm.ErrorFeedback, c.Shard.Stage, c.Data.AccumSteps = "bf16", true, 2, 2
		},
		"optim.ema_decay=0.9":   func(c *config.Config) { c.DDP.LocalSteps, c.Optim.EMADecay = 4, 0.9 },
		"run.precision=f16: ":   func(c *config.Config) { c.Run.Precision = "f16" },
		"run.recompute=auto: ":  func(c *config.Config) { c.Run.Recompute, c.Run.Machine = "auto", settings.Tape },
		"ddp.virtual_ranks=4: ": func(c *config.Config) { c.DDP.VirtualRanks = 4 },
	} {
		c := config.Default()
		change(&c)
		err := settings.Check(&c)
		if err == nil {
			err = settings.CheckRanks(&c, 3)
		}
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v", want, err)
		}
	}
}
