package optim

import (
	"fmt"
	"testing"
)

func TestStepAllocatesNothingAfterTheFirst(t *testing.T) {
	all, names := featured()
	for n, config := range all {
		for _, workers := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/workers=%d", names[n], workers), func(t *testing.T) {
				config := config
				config.Workers, config.ClipNorm = workers, 1
				config.Schedule = Schedule{Name: Cosine, WarmupSteps: 2, Steps: 50}
				model := vectors(noise(10*spanLen, 1), noise(10*spanLen, 2), noise(7, 3), noise(7, 4))
				model = append(model, vectors(make([]float64, spanLen), make([]float64, spanLen))...)
				s := newSolver(t, config)
				// AllocsPerRun calls once before it counts: that is the first step.
				allocs := testing.AllocsPerRun(10, func() {
					if err := s.Step(model); err != nil {
						t.Fatal(err)
					}
				})
				if allocs != 0 {
					t.Errorf("%v allocations a step", allocs)
				}
			})
		}
	}
}
