package lower

import (
	"fmt"
	"slices"
	"testing"

	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
	"github.com/symgrad/symgrad/optim"
)

// fewKilobytes makes several buckets.
var fewKilobytes = ddp.Config{BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024}

// TestMicroBatchesBySteps accumulates parts of different weights, in different numbers on the
// ranks, with the device programs and their updates. It compares weights and gradients with the
// tape machine's.
func TestMicroBatchesBySteps(t *testing.T) {
	idle := fewKilobytes
	idle.Idle = true
	for name, c := range map[string]struct {
		parts
		ddp ddp.Config
		cfg Options
	}{
		"three parts": {parts{steps: 3, weights: func(rank, _ int) []float64 { return []float64{2, 1 + float64(rank), 3} }}, fewKilobytes, Options{}},
		"plain":       {parts{steps: 3, weights: func(rank, _ int) []float64 { return []float64{2, 1, 3} }}, ddp.Config{NoOverlap: true}, Options{NoOptimize: true}},
		"now and then": {parts{steps: 4, weights: func(rank, step int) []float64 {
			return []float64{1, 4, 2}[:1+step%3]
		}}, ddp.Config{}, Options{}},
		"uneven": {parts{steps: 3, weights: func(rank, step int) []float64 {
			return slices.Repeat([]float64{1.5}, 2+(rank+step)%3)
		}}, fewKilobytes, Options{}},
		"idle": {parts{steps: 3, idle: true, weights: func(rank, step int) []float64 {
			all := []float64{2, 1, 3}
			all[(rank+step)%3] = 0
			return all
		}}, idle, Options{}},
		"idle at the end": {parts{steps: 2, idle: true, weights: func(rank, step int) []float64 {
			return []float64{float64(rank % 2), 0, 1 - float64(rank%2)}
		}}, idle, Options{NoOptimize: true}},
	} {
		for _, ranks := range someRanks() {
			for _, rule := range []optim.Config{
				{Name: optim.SGD, LearningRate: 0.1},
				{Name: optim.Adam, LearningRate: 0.01, ClipNorm: 0.2},
			} {
				t.Run(fmt.Sprintf("%s/%d ranks/%s", name, ranks, rule.Name), func(t *testing.T) {
					want, grads := c.onHost(t, ranks, c.ddp, rule)
					rule.KeepGradients = true
					for rank, n := range c.bySteps(t, ranks, c.ddp, c.cfg, rule) {
						if off := worst(n.values(), want[rank]); !(off <= 2e-6) {
							t.Errorf("rank %d: weights are off by %g", rank, off)
						}
						as := LastPart
						if len(c.weights(rank, c.steps-1)) == 1 {
							as = WholeBatch
						}
						if off := worst(n.gradients(as), grads[rank]); !(off <= 2e-6) {
							t.Errorf("rank %d: gradients are off by %g", rank, off)
						}
					}
				})
			}
		}
	}
}

// TestMicroBatchesWithoutWeightCountForNothing has ranks without samples, with finite inputs: no
// guard is needed.
func TestMicroBatchesWithoutWeightCountForNothing(t *testing.T) {
	c := parts{steps: 2, weights: func(rank, step int) []float64 { return []float64{2 * float64(rank%2), 0, 1} }}
	rule := optim.Config{Name: optim.Momentum, LearningRate: 0.1}
	want, _ := c.onHost(t, 2, fewKilobytes, rule)
	for rank, n := range c.bySteps(t, 2, fewKilobytes, Options{}, rule) {
		if off := worst(n.values(), want[rank]); !(off <= 2e-6) {
			t.Errorf("rank %d: weights are off by %g", rank, off)
		}
		for _, p := range n.loaded {
			if k := count(p.Program, program.Select, 1<<30); k != 0 {
				t.Errorf("%d steps look whether gradients count, without Idle:\n%v", k, p.Program)
			}
		}
	}
}

// count returns the number of Maps over 2 to most elements that do op.
func count(p *program.Program, op program.Scalar, most int) int {
	n := 0
	for i := range p.Steps {
		m, ok := p.Steps[i].Op.(*program.Map)
		if ok && draft.SizeOf(m.Space) > 1 && draft.SizeOf(m.Space) <= most &&
			slices.ContainsFunc(m.Code, func(in program.Instr) bool { return in.Op == op }) {
			n++
		}
	}
	return n
}

// TestOnlyIdleRanksPayForTheGuard counts the Maps over buckets in programs with and without Idle.
func TestOnlyIdleRanksPayForTheGuard(t *testing.T) {
	for _, idle := range []bool{false, true} {
		cfg := fewKilobytes
		cfg.Idle = idle
		c := parts{steps: 1, weights: func(int, int) []float64 { return []float64{1} }}
		n := c.bySteps(t, 1, cfg, Options{}, optim.Config{Name: optim.SGD, LearningRate: 0.1})[0]
		want := 0
		if idle {
			want = len(n.d.Plan().Buckets)
		}
		p := n.loaded[WholeBatch].Program
		if got := count(p, program.Select, 1<<30); got != want {
			t.Errorf("idle %v: %d guards, want %d:\n%v", idle, got, want, p)
		}
	}
}
