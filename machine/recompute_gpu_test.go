package machine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/optim"
)

// TestRecomputeOnAGPU trains deep networks on a GPU with and without recomputation, with and
// without cuBLAS and cuDNN: equal bits, and arenas as foreseen.
func TestRecomputeOnAGPU(t *testing.T) {
	cudatest.Devices(t, 1)
	for name, build := range map[string]func() *net{
		"mlp": func() *net { return dropouts(16, 32, 16) }, "cnn": func() *net { return residuals(9, 2, 4, 8) },
	} {
		for _, libraries := range []string{"", "none"} {
			t.Run(fmt.Sprintf("%s/%q", name, libraries), func(t *testing.T) {
				train := func(mode machine.Recompute, limit int64) (all []float32, arena int64) {
					cfg := machine.Config{
						Device: machine.CUDA, Recompute: mode, MemoryBytes: limit, Deterministic: true, CUBLAS: libraries, CUDNN: libraries,
						Solver: &optim.Config{Name: optim.Adam, LearningRate: 0.01},
					}
					foreseen := build()
					f, err := machine.Foresee(foreseen.g, cfg, foreseen.cost)
					if err != nil {
						t.Fatal(err)
					}
					n := build()
					m := newMachine(t, n.g, cfg, n.cost)
					for range 4 {
						run(t, m)
						loss, err := m.Scalar(n.cost)
						if err != nil {
							t.Fatal(err)
						}
						all = append(all, float32(loss))
					}
					if err := m.Sync(); err != nil {
						t.Fatal(err)
					}
					if arena = m.Footprint().Arena; arena != f.Arena {
						t.Errorf("%s: an arena of %d B, foreseen %d B", mode, arena, f.Arena)
					}
					return append(all, n.weights()...), arena
				}
				want, whole := train(machine.RecomputeNone, 0)
				for _, mode := range recomputes {
					limit := int64(0)
					if mode == machine.RecomputeAuto {
						limit = 1
					}
					got, arena := train(mode, limit)
					if !slices.Equal(got, want) || 3*arena > 2*whole {
						t.Errorf("%s: an arena of %d B, %d without; equal bits %v", mode, arena, whole, slices.Equal(got, want))
					}
				}
			})
		}
	}
}

// TestRecomputeAsksTheGPU: on a GPU with room for all, RecomputeAuto without a limit keeps all.
func TestRecomputeAsksTheGPU(t *testing.T) {
	cudatest.Devices(t, 1)
	arena := func(mode machine.Recompute) int64 {
		n := dropouts(16, 32, 16)
		return newMachine(t, n.g, machine.Config{Device: machine.CUDA, Recompute: mode, Solver: &optim.Config{Name: optim.Adam}}, n.cost).Footprint().Arena
	}
	if auto, none := arena(machine.RecomputeAuto), arena(machine.RecomputeNone); auto != none {
		t.Errorf("auto: an arena of %d B, want %d B", auto, none)
	}
}
