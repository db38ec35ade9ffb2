package lower

import (
	"fmt"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/oracle"
	"github.com/symgrad/symgrad/internal/compile/values"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/machine/machinetest"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// TestModelsInEveryStageBySteps trains ten kinds of models on two ranks with the device programs.
// Weights must not depend on the stage, for any readers of weights and any order of gradients.
func TestModelsInEveryStageBySteps(t *testing.T) {
	const ranks, steps = 2, 3
	for i, f := range machinetest.Models() {
		for j, cfg := range []Options{{}, {NoOptimize: true}} {
			if invariants.Enabled && (i+j)%2 == 1 {
				continue // the race detector needs few
			}
			t.Run(fmt.Sprintf("%s/optimized %v", f.Name, !cfg.NoOptimize), func(t *testing.T) {
				var want [][]float32
				for _, spread := range append([]ddp.Config{fewKilobytes}, stagesOf(fewKilobytes)...) {
					lanes := trainModel(t, func() (*machinetest.Model, error) { return f.New(machinetest.Config{NoGradients: true}) }, ranks, steps, spread, cfg)
					for rank, n := range lanes {
						if want == nil {
							want = n.values()
						}
						if off := worst(n.values(), want); !(off <= 1e-6) {
							t.Errorf("stage %d, late %v, rank %d: weights are off by %g", spread.Stage, spread.OverlapGather, rank, off)
						}
					}
				}
			})
		}
	}
}

// trainModel returns the ranks after some steps.
func trainModel(t *testing.T, newModel func() (*machinetest.Model, error), ranks, steps int, spread ddp.Config, cfg Options) []*lane {
	t.Helper()
	rule := optim.Config{Name: optim.AdamW, LearningRate: 0.01, WeightDecay: 0.1}
	lanes, models := make([]*lane, ranks), make([]*machinetest.Model, ranks)
	inWorld(t, ranks, func(w *dist.World) error {
		m, err := newModel()
		if err != nil {
			return err
		}
		r := &rankGraph{g: m.Graph, cost: m.Cost, params: m.Learnables}
		if r.d, err = ddp.Attach(w, m.Cost, m.Learnables, spread); err != nil {
			return err
		}
		models[w.Rank()] = m
		lanes[w.Rank()], err = newLane(r, cfg, &rule)
		return err
	})
	for step := range steps {
		all := make([]oracle.Rank, ranks)
		for rank, n := range lanes {
			if err := models[rank].Feed(step*ranks + rank); err != nil {
				t.Fatal(err)
			}
			p, err := n.prepare()
			if err != nil {
				t.Fatal(err)
			}
			if err := p.refresh(uint64(step), uint64(rank*models[rank].Rows())); err != nil {
				t.Fatal(err)
			}
			all[rank] = p.memory
		}
		err := oracle.RunRanks(all)
		for _, n := range lanes {
			n.d.Machine().Ran(err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if spread.Stage == 3 || spread.OverlapGather {
		consolidate(t, lanes)
	}
	return lanes
}

// refresh gives the program the current values of inputs and states of ops, and sets its clock.
func (p *loadedLane) refresh(step, sample uint64) error {
	for _, b := range p.Inputs {
		if b.Slot {
			continue
		}
		at, err := values.Memory(b.Node.Value(), p.Program.Values[b.ID].DType)
		if err != nil {
			return fmt.Errorf("input %q: %w", b.Node.Name(), err)
		}
		p.memory.Memory[b.ID] = at.Raw()
	}
	for _, s := range p.States {
		p.memory.Memory[s.ID] = s.At.Raw()
	}
	if id := p.Program.Clock; id != program.None {
		p.memory.Memory[id] = tensor.Of([]uint64{step, sample}).Raw()
	}
	return nil
}
