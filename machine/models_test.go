package machine_test

import (
	"math"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/machine/machinetest"
)

// compiled makes machines for machinetest.
func compiled(cfg machine.Config) machinetest.NewVM {
	return func(m *machinetest.Model) (gorgonia.VM, error) {
		cfg.Name = m.Name
		return machine.New(m.Graph, cfg, m.Outputs()...)
	}
}

var (
	optimized   = machine.Config{Threads: 2, BLAS: "none"}
	unoptimized = machine.Config{Threads: 1, BLAS: "none", NoOptimize: true}
)

// TestModelsAreThoseOfTheTapeMachine trains ten models for 20 steps in float64, where only the
// order of sums may differ.
func TestModelsAreThoseOfTheTapeMachine(t *testing.T) {
	for name, cfg := range map[string]machine.Config{"optimized": optimized, "unoptimized": unoptimized} {
		t.Run(name, func(t *testing.T) {
			machinetest.Run(t, compiled(cfg), machinetest.Options{
				DType: gtensor.Float64, Tolerance: 1e-11, TruePooling: true, Probability: 0.3,
			})
		})
	}
}

// TestSingleModelsAreThoseOfTheTapeMachine does so in float32: losses to 1e-6, and gradients, which
// sum numbers that cancel, to 1e-5.
func TestSingleModelsAreThoseOfTheTapeMachine(t *testing.T) {
	o := machinetest.Options{TruePooling: true, Solver: func() gorgonia.Solver {
		return gorgonia.NewVanillaSolver(gorgonia.WithLearnRate(0.01))
	}}
	for _, f := range machinetest.Models() {
		t.Run(f.Name, func(t *testing.T) {
			m, err := f.New(machinetest.Config{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := machinetest.Train(m, compiled(optimized), o, nil)
			if err != nil {
				t.Fatal(err)
			}
			expected, err := machinetest.Oracle(f, o, got.Masks)
			if err != nil {
				t.Fatal(err)
			}
			machinetest.Compare(t, expected, got, 1e-5, false)
			for step, loss := range expected.Losses {
				if off := math.Abs(got.Losses[step] - loss); !(off <= 1e-6*math.Max(1, math.Abs(loss))) {
					t.Errorf("step %d: the loss is %v, want %v", step, got.Losses[step], loss)
				}
			}
		})
	}
}

// TestRandomGraphsAreThoseOfTheTapeMachine also compares optimized programs with unoptimized ones.
func TestRandomGraphsAreThoseOfTheTapeMachine(t *testing.T) {
	o := machinetest.Options{DType: gtensor.Float64, Tolerance: 1e-9}
	t.Run("optimized", func(t *testing.T) { machinetest.Random(t, compiled(optimized), o) })
	t.Run("unoptimized", func(t *testing.T) { machinetest.Random(t, compiled(unoptimized), o) })
}
