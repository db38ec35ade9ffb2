package machine_test

import (
	"testing"

	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/machine/machinetest"
)

// TestForeseeIsWhatAGPUHas compares the prediction, made without a GPU, with a machine on a GPU.
// Arena, constants and inputs must be equal, and the total within 5 %, since scratch memory depends
// on the GPU and its libraries.
func TestForeseeIsWhatAGPUHas(t *testing.T) {
	cudatest.Devices(t, 1)
	rule := gpuMomentum()
	for _, f := range machinetest.Models() {
		t.Run(f.Name, func(t *testing.T) {
			cfg := machine.Config{Name: f.Name, Device: machine.CUDA, Solver: &rule}
			model, err := f.New(machinetest.Config{})
			if err != nil {
				t.Fatal(err)
			}
			want, err := machine.Foresee(model.Graph, cfg, model.Outputs()...)
			if err != nil {
				t.Fatal(err)
			}
			if model, err = f.New(machinetest.Config{}); err != nil {
				t.Fatal(err)
			}
			m, err := machine.New(model.Graph, cfg, model.Outputs()...)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			}()
			if err := m.RunAll(); err != nil {
				t.Fatal(err)
			}
			got := m.Footprint()
			if got.Arena != want.Arena || got.Constants != want.Constants || got.Inputs != want.Inputs || got.Outputs != want.Outputs {
				t.Errorf("%+v, foreseen %+v", got, want)
			}
			if off := got.Total() - want.Total(); 20*max(off, -off) > got.Total() {
				t.Errorf("%d B in all, foreseen %d", got.Total(), want.Total())
			}
		})
	}
}
