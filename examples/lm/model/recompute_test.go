package model

import (
	"slices"
	"testing"

	G "gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/optim"
)

// TestRecomputeKeepsBits trains a transformer of six layers with and without recomputation: equal
// losses and weights, and arenas of known sizes.
func TestRecomputeKeepsBits(t *testing.T) {
	train := func(mode machine.Recompute, limit int64) (all []float32, f machine.Footprint) {
		t.Helper()
		c := Config{Vocabulary: 11, Context: 16, Layers: 6, Heads: 2, Width: 32, Hidden: []int{128}, Tied: true, Batch: 2, Seed: 3}
		m := build(t, c)
		if _, err := G.Grad(m.Cost, m.Params...); err != nil {
			t.Fatal(err)
		}
		vm, err := machine.New(m.Cost.Graph(), machine.Config{
			Device: machine.CPU, Threads: 1, BLAS: "none", Recompute: mode, MemoryBytes: limit,
			Solver: &optim.Config{Name: optim.AdamW, LearningRate: 0.01},
		}, m.Cost)
		if err != nil {
			t.Fatal(err)
		}
		defer vm.Close()
		for range 3 {
			if err := vm.RunAll(); err != nil {
				t.Fatal(err)
			}
			all = append(all, m.Cost.Value().Data().(float32))
		}
		for _, p := range m.Params {
			all = append(all, p.Value().Data().([]float32)...)
		}
		return all, vm.Footprint()
	}
	want, whole := train(machine.RecomputeNone, 0)
	got, blocks := train(machine.RecomputeBlocks, 0)
	if !slices.Equal(got, want) {
		t.Error("blocks: other bits")
	}
	if whole.Arena != 567368 || blocks.Arena != 112968 {
		t.Errorf("arenas of %d and %d B, want 567368 and 112968", whole.Arena, blocks.Arena)
	}
	for _, limit := range []int64{whole.Total() - 1, whole.Total() * 2 / 3, whole.Total() / 2} {
		got, auto := train(machine.RecomputeAuto, limit)
		if !slices.Equal(got, want) || auto.Total()-auto.Scratch > limit || auto.Arena < blocks.Arena {
			t.Errorf("auto with %d B: %+v; equal bits %v", limit, auto, slices.Equal(got, want))
		}
	}
}
