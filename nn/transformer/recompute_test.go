package transformer_test

import (
	"errors"
	"slices"
	"testing"

	G "gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/nn/transformer"
)

// TestRecomputeKeepsBits trains transformers of six layers with dropout, with and without
// recomputation: equal losses and weights, and arenas within the limit.
func TestRecomputeKeepsBits(t *testing.T) {
	for _, family := range []transformer.Family{transformer.GPT2, transformer.Llama} {
		t.Run(string(family), func(t *testing.T) {
			var flop int64 // of the last program
			train := func(mode machine.Recompute, limit int64) (all []float32, f machine.Footprint) {
				t.Helper()
				c := transformer.Config{Family: family, Vocabulary: 11, Context: 16, Width: 32, Layers: 6, Heads: 2, Inner: 64, Tied: true}
				if family == transformer.GPT2 {
					c.ResidualDropout = 0.1
				}
				m, err := transformer.New(c, transformer.Options{Batch: 2, Seed: 3, Train: true})
				if err != nil {
					t.Fatal(err)
				}
				tokens, targets := m.Tokens.Value().Data().([]int), m.Targets.Value().Data().([]int)
				for i := range tokens {
					tokens[i], targets[i] = (i*i+1)%11, i*3%11
				}
				if _, err := G.Grad(m.Cost, m.Params...); err != nil {
					t.Fatal(err)
				}
				vm, err := machine.New(m.Cost.Graph(), machine.Config{
					Device: machine.CPU, Threads: 1, BLAS: "none", Recompute: mode, MemoryBytes: limit,
				})
				if err != nil {
					t.Fatal(err)
				}
				defer vm.Close()
				solver := G.NewVanillaSolver(G.WithLearnRate(0.1))
				for range 3 {
					if err := errors.Join(vm.RunAll(), solver.Step(G.NodesToValueGrads(m.Params))); err != nil {
						t.Fatal(err)
					}
					all = append(all, m.Cost.Value().Data().(float32))
				}
				for _, p := range m.Params {
					all = append(all, p.Value().Data().([]float32)...)
				}
				flop = vm.FLOP()
				return all, vm.Footprint()
			}
			want, whole := train(machine.RecomputeNone, 0)
			once := flop
			got, blocks := train(machine.RecomputeBlocks, 0)
			if !slices.Equal(got, want) || 2*blocks.Arena > whole.Arena {
				t.Errorf("blocks: arenas of %d and %d B, equal bits %v", whole.Arena, blocks.Arena, slices.Equal(got, want))
			}
			if flop != once {
				t.Errorf("%d FLOP with repeated steps, %d without", flop, once)
			}
			for _, limit := range []int64{whole.Total() * 9 / 10, whole.Total() * 2 / 3} {
				got, auto := train(machine.RecomputeAuto, limit)
				if !slices.Equal(got, want) || auto.Total()-auto.Scratch > limit+256 || auto.Arena < blocks.Arena {
					t.Errorf("auto with %d B: %+v; equal bits %v", limit, auto, slices.Equal(got, want))
				}
			}
		})
	}
}
