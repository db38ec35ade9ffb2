package machine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/cuda/cudatest"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/optim"
)

// gpuWorlds is how tests start ranks: processes with a GPU each.
func gpuWorlds(cfg backend.Config) conformance.Launch {
	return conformance.Processes(func(ctx context.Context, opt conformance.LaunchOptions) (*dist.World, error) {
		cfg.Device, cfg.StepTimeout, cfg.InitTimeout = backend.CUDADevice, opt.StepTimeout, time.Minute
		return backend.Open(ctx, cfg)
	})
}

// gpuCount wants n GPUs, of which two are a must. No context is made here: each rank makes that of its own.
func gpuCount(t *testing.T, n int) {
	t.Helper()
	have := cudatest.Driver(t).Count()
	if have < 2 {
		cudatest.Missing(t, "needs 2 GPUs, there are %d", have)
	}
	if have < n {
		t.Skipf("needs %d GPUs, there are %d; the same test with 2 is what has to run", n, have)
	}
}

// gpuParts is the samples of a rank in a batch, in unequal parts.
func gpuParts(rank, ranks, batch int) (first, n int) {
	first = batch * rank * (rank + 1) / (ranks * (ranks + 1))
	return first, batch*(rank+1)*(rank+2)/(ranks*(ranks+1)) - first
}

// gpuExchange trains the parts of a batch on the ranks' GPUs and gives the weights and the last loss of the rank.
func gpuExchange(w *dist.World, c optim.Config, cfg machine.Config, batch, steps int) (weights [][]float32, loss float64, err error) {
	first, rows := gpuParts(w.Rank(), w.Size(), batch)
	p, err := makeGPUNet(rows)
	if err != nil {
		return nil, 0, err
	}
	d, err := ddp.Attach(w, p.cost, p.params, ddp.Config{BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	vm, err := machine.New(p.g, cfg, append(gorgonia.Nodes{p.cost}, d.Grads()...)...)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(vm.Close(), err) }()
	var s optim.Solver
	if s, err = vm.NewSolver(c); err != nil {
		return nil, 0, err
	}
	if err := d.SetWeight(float64(rows)); err != nil {
		return nil, 0, err
	}
	for step := range steps {
		if err := p.feed(step, first); err != nil {
			return nil, 0, err
		}
		if err := vm.RunAll(); err != nil {
			return nil, 0, fmt.Errorf("step %d: %w", step, err)
		}
		if err := s.Step(d.Model()); err != nil {
			return nil, 0, fmt.Errorf("step %d: %w", step, err)
		}
	}
	if loss, err = vm.Scalar(p.cost); err != nil {
		return nil, 0, err
	}
	if err := vm.Sync(); err != nil {
		return nil, 0, err
	}
	return p.weights(), loss, nil
}

// TestRanksOnGPUsLearnWhatOneDoes holds ranks with parts of a batch against the tape machine with all of it, over 20 steps.
func TestRanksOnGPUsLearnWhatOneDoes(t *testing.T) {
	const batch, steps = 60, 20
	for _, n := range []int{2, 4} {
		for _, tt := range []struct {
			name   string
			within bool
			cfg    machine.Config
			world  backend.Config
			rule   optim.Config
		}{
			{"within", true, machine.Config{}, backend.Config{}, optim.Config{Name: optim.Adam, LearningRate: 0.01}},
			{"apart", false, machine.Config{}, backend.Config{}, optim.Config{Name: optim.Momentum, LearningRate: 0.05, ClipNorm: 0.5}},
			{"plain", true, machine.Config{NoOptimize: true, NoGraph: true}, backend.Config{}, optim.Config{Name: optim.SGD, LearningRate: 0.1}},
		} {
			t.Run(fmt.Sprintf("%d/%s", n, tt.name), func(t *testing.T) {
				gpuCount(t, n)
				gpuWorlds(tt.world)(t, n, conformance.LaunchOptions{StepTimeout: 20 * time.Second}, func(w *dist.World) error {
					want, _, err := gpuAlone(batch, steps, tt.rule)
					if err != nil {
						return err
					}
					cfg := tt.cfg
					if tt.within {
						cfg.Solver = &tt.rule
					}
					got, loss, err := gpuExchange(w, tt.rule, cfg, batch, steps)
					if err != nil {
						return err
					}
					if d := gpuWorst(got, want); !(d <= gpuTolerance) || math.IsNaN(loss) {
						return fmt.Errorf("weights differ by %v, the loss is %v", d, loss)
					}
					return nil
				})
			})
		}
	}
}

// TestGraphsOfGPUWorldsRunOnTheirGPUs looks at what does not fit together.
func TestGraphsOfGPUWorldsRunOnTheirGPUs(t *testing.T) {
	gpuCount(t, 2)
	gpuWorlds(backend.Config{})(t, 2, conformance.LaunchOptions{StepTimeout: 20 * time.Second}, func(w *dist.World) error {
		p, err := makeGPUNet(4)
		if err != nil {
			return err
		}
		d, err := ddp.Attach(w, p.cost, p.params, ddp.Config{})
		if err != nil {
			return err
		}
		if _, err := machine.New(p.g, machine.Config{Device: machine.CPU}); !errors.Is(err, machine.ErrDevice) {
			return fmt.Errorf("a machine on the host: %w", err)
		}
		if err := p.feed(0, 0); err != nil {
			return err
		}
		tape := gorgonia.NewTapeMachine(p.g)
		err = tape.RunAll()
		if err == nil || !strings.Contains(err.Error(), "package machine") {
			return fmt.Errorf("the tape machine: %w", err)
		}
		if err := tape.Close(); err != nil {
			return err
		}
		vm, err := machine.New(p.g, machine.Config{})
		if err != nil {
			return err
		}
		if err := d.SetWeight(0); err != nil {
			return err
		}
		if err := vm.RunAll(); !errors.Is(err, ddp.ErrNoWeight) {
			return fmt.Errorf("weights that sum to 0: %w", err)
		}
		if err := d.SetWeight(1); err != nil {
			return err
		}
		if err := vm.RunAll(); err != nil {
			return err
		}
		return errors.Join(vm.Close(), d.Close())
	})
}
