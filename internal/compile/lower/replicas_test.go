package lower

import (
	"fmt"
	"testing"

	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// TestReplicasBySteps trains in rows that shard and columns that replicate (HSDP), with the device
// programs, in parts of unequal weights. It compares weights with those of plain training by the
// tape machine.
func TestReplicasBySteps(t *testing.T) {
	rule := optim.Config{Name: optim.Adam, LearningRate: 0.01, ClipNorm: 0.2}
	c := parts{steps: 3, weights: func(rank, _ int) []float64 { return []float64{2, 1 + float64(rank), 3} }}
	want, _ := c.onHost(t, 4, fewKilobytes, rule)
	for stage := 1; stage <= 3; stage++ {
		for _, width := range []int{1, 2} {
			for name, change := range map[string]func(*ddp.Config){
				"plain": func(*ddp.Config) {},
				"late":  func(cfg *ddp.Config) { cfg.OverlapGather = stage < 3 },
				"bf16":  func(cfg *ddp.Config) { cfg.WireDType = tensor.BF16 },
			} {
				t.Run(fmt.Sprintf("stage %d/rows of %d/%s", stage, width, name), func(t *testing.T) {
					cfg, bound := fewKilobytes, 4e-6
					cfg.Stage = stage
					if change(&cfg); cfg.WireDType != tensor.Invalid {
						bound = 3e-2
					}
					c.width = width
					for rank, n := range c.bySteps(t, 4, cfg, Options{}, rule) {
						if off := worst(n.values(), want[rank]); !(off <= bound) {
							t.Errorf("rank %d: weights are off by %g", rank, off)
						}
					}
				})
			}
		}
	}
}
