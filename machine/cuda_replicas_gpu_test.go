package machine_test

import (
	"fmt"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/optim"
)

// TestReplicasOnGPUsLearnWhatOneRankDoes shards in two rows of GPUs and replicates in the columns
// (HSDP), over 20 steps. It compares weights with the tape machine on the whole batch.
func TestReplicasOnGPUsLearnWhatOneRankDoes(t *testing.T) {
	small := ddp.Config{BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024}
	cases := map[string]func(w *dist.World) error{}
	for name, g := range map[string]gpuTraining{
		"adam":  {rule: optim.Config{Name: optim.Adam, LearningRate: 0.01}, ddp: small, parts: 1},
		"clip":  {rule: optim.Config{Name: optim.Momentum, LearningRate: 0.05, ClipNorm: 0.5}, parts: 1},
		"parts": {rule: optim.Config{Name: optim.Adam, LearningRate: 0.01}, ddp: small, parts: 3},
	} {
		cases[name] = func(w *dist.World) error {
			for i, stage := range []int{1, 2, 3, 1} {
				g := g
				g.batch, g.steps, g.cfg.Solver, g.mesh = 180, 20, &g.rule, true
				g.ddp.Stage, g.ddp.OverlapGather = stage, i > 2
				if err := g.hold(w, gpuTolerance); err != nil {
					return fmt.Errorf("stage %d, gathered by the next run %v: %w", stage, i > 2, err)
				}
			}
			return nil
		}
	}
	onGPUs(t, cases)
}
