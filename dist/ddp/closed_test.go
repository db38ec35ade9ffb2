package ddp_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/host/shm"
	"github.com/symgrad/symgrad/optim"
)

// mappedWorld is a world of one rank whose memory is unmapped when it is freed.
func mappedWorld(t *testing.T) *dist.World {
	t.Helper()
	ends, err := shm.Local(1, shm.Mapped, shm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := dist.NewWorld(ends[0], dist.LocalInfo{Size: 1}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestHookStateTouchesNothingThatIsFreed asks for the state of hooks after a step to be undone,
// when the buckets are freed.
func TestHookStateTouchesNothingThatIsFreed(t *testing.T) {
	for _, cfg := range forks {
		for _, first := range []string{"ddp", "world"} {
			t.Run(fmt.Sprintf("%v %v stage %d/%s", cfg.WireDType, cfg.Hook, cfg.Stage, first), func(t *testing.T) {
				w := mappedWorld(t)
				l, err := forkLearner(w, cfg, optim.Config{Name: optim.SGD, LearningRate: 0.01, SkipNonFinite: true})
				if err != nil {
					t.Fatal(err)
				}
				if err := l.train(1, 1); err != nil {
					t.Fatal(err)
				}
				if err := l.overflow(); err != nil {
					t.Fatal(err)
				}
				if first == "ddp" {
					err = l.d.Close()
				} else {
					err = w.Close()
				}
				if err != nil {
					t.Fatal(err)
				}
				residual, err := kept(l.d.HookState(), "b", "residual")
				if err != nil || slices.ContainsFunc(residual, func(x float64) bool { return x != 0 }) {
					t.Errorf("what is kept of b is of the step that is not made: %v", err)
				}
				if m := l.d.Memory(); m.Staging == 0 {
					t.Errorf("it had %v", m)
				}
				_ = l.d.Close() // weights of a world that is closed are lost
				_ = l.vm.Close()
				_ = w.Close()
			})
		}
	}
}

// TestGatherWeightsIsRefusedWhenClosed asks for a collective on weights that are no more.
func TestGatherWeightsIsRefusedWhenClosed(t *testing.T) {
	for _, stage := range []int{1, 2} {
		w := mappedWorld(t)
		l, err := newLearner(w, mlp, gtensor.Float32, 3, ddp.Config{Stage: stage}, optim.Config{Name: optim.SGD})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.d.Machine().GatherWeights(); err != nil {
			t.Errorf("stage %d: %v", stage, err)
		}
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
		if err := l.d.Machine().GatherWeights(); !errors.Is(err, dist.ErrClosed) {
			t.Errorf("stage %d: %v, want ErrClosed", stage, err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}
