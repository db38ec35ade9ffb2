package machine_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/optim"
)

// solverRules has optimizers with settings that gpuRules lacks.
func solverRules() map[string]optim.Config {
	decay := []optim.Group{{Names: []string{"w1"}, RateScale: 0.5}, {MaxDims: 1, NoWeightDecay: true}}
	return map[string]optim.Config{
		"nesterov":     {Name: optim.Nesterov, LearningRate: 0.05, ClipValue: 0.02},
		"lion":         {Name: optim.Lion, LearningRate: 0.001, WeightDecay: 0.1, EMADecay: 0.9},
		"lamb":         {Name: optim.LAMB, LearningRate: 0.01, WeightDecay: 0.01},
		"lamb clipped": {Name: optim.LAMB, LearningRate: 0.01, WeightDecay: 0.01, ClipNorm: 0.5, SkipNonFinite: true, Groups: decay},
		"adamw groups": {Name: optim.AdamW, LearningRate: 0.01, WeightDecay: 0.1, ClipValue: 0.05, EMADecay: 0.5, Groups: decay},
	}
}

// solverOn returns a machine for a gpuNet on a device, and its solver.
func solverOn(t *testing.T, device machine.Device, c optim.Config, within bool) (*gpuNet, *machine.Machine, optim.Solver) {
	t.Helper()
	p := newGPUNet(t, 8)
	if _, err := gorgonia.Grad(p.cost, p.params...); err != nil {
		t.Fatal(err)
	}
	cfg := machine.Config{Device: device, BLAS: "none"}
	if within {
		cfg.Solver = &c
	}
	vm, err := machine.New(p.g, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := vm.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := vm.NewSolver(c)
	if err != nil {
		t.Fatal(err)
	}
	return p, vm, s
}

func TestRulesOfAMachineOnTheCPU(t *testing.T) { testRules(t, machine.CPU) }

func TestRulesOfAMachineOnAGPU(t *testing.T) {
	cudatest.Devices(t, 1)
	testRules(t, machine.CUDA)
}

// testRules compares each rule, in the run and separate, with that of the host and the tape machine
// over 20 steps; and weights and averages, swapped twice.
func testRules(t *testing.T, device machine.Device) {
	const steps = 20
	for name, c := range solverRules() {
		c.KeepGradients = true
		want, _, err := gpuAlone(8, steps, c)
		if err != nil {
			t.Fatal(err)
		}
		for _, within := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/within=%t", name, within), func(t *testing.T) {
				p, vm, s := solverOn(t, device, c, within)
				gpuTrain(t, p, vm, s, 0, steps)
				if d := gpuWorst(p.weights(), want); !(d <= gpuTolerance) {
					t.Errorf("weights differ by %v", d)
				}
				if s.Steps() != steps || s.Skipped() != 0 {
					t.Errorf("%d steps and %d skipped, want %d and none", s.Steps(), s.Skipped(), steps)
				}
				if c.EMADecay > 0 {
					checkSwap(t, p, vm, s)
				}
			})
		}
	}
}

// checkSwap swaps the averages into the weights and back.
func checkSwap(t *testing.T, p *gpuNet, vm *machine.Machine, s optim.Solver) {
	t.Helper()
	st := s.State()
	model := gorgonia.NodesToValueGrads(p.params)
	before := p.weights()
	if err := errors.Join(s.SwapAverages(model), vm.Sync()); err != nil {
		t.Fatal(err)
	}
	for i, n := range p.params {
		at := slices.IndexFunc(st.Params, func(q optim.ParamState) bool { return q.Name == n.Name() })
		slots := st.Params[at].Slots
		if last := slots[len(slots)-1]; last.Name != "ema" || !slices.Equal(p.weights()[i], last.F32) {
			t.Errorf("%s holds %v, want the averages %s %v", n.Name(), p.weights()[i], last.Name, last.F32)
		}
	}
	if err := s.SetState(st); !errors.Is(err, optim.ErrSwapped) {
		t.Errorf("setting a state while averages are swapped in: %v, want %v", err, optim.ErrSwapped)
	}
	if err := errors.Join(s.SwapAverages(model), vm.Sync()); err != nil {
		t.Fatal(err)
	}
	for i, w := range p.weights() {
		if !slices.Equal(w, before[i]) {
			t.Errorf("weights of %s are not what they were", p.params[i].Name())
		}
	}
}

func TestSkippedStepsOfAMachineOnTheCPU(t *testing.T) { testSkipped(t, machine.CPU) }

func TestSkippedStepsOfAMachineOnAGPU(t *testing.T) {
	cudatest.Devices(t, 1)
	testSkipped(t, machine.CUDA)
}

// testSkipped gives a machine NaN inputs, in steps that must change nothing.
func testSkipped(t *testing.T, device machine.Device) {
	c := optim.Config{Name: optim.Adam, LearningRate: 0.01, SkipNonFinite: true, EMADecay: 0.9, KeepGradients: true}
	for _, within := range []bool{false, true} {
		t.Run(fmt.Sprintf("within=%t", within), func(t *testing.T) {
			p, vm, s := solverOn(t, device, c, within)
			q, other, plain := solverOn(t, device, c, within)
			for step := range 12 {
				if err := p.feed(step, 0); err != nil {
					t.Fatal(err)
				}
				if step%5 == 0 {
					p.x.Value().Data().([]float32)[3] = float32(math.Inf(1))
				}
				if err := errors.Join(vm.RunAll(), s.Step(gorgonia.NodesToValueGrads(p.params))); err != nil {
					t.Fatal(err)
				}
				if step%5 != 0 {
					gpuTrain(t, q, other, plain, step, 1)
				}
			}
			if err := vm.Sync(); err != nil {
				t.Fatal(err)
			}
			if s.Steps() != 9 || s.Skipped() != 3 || s.State().Steps != 9 {
				t.Errorf("%d steps and %d skipped, want 9 and 3", s.Steps(), s.Skipped())
			}
			if d := gpuWorst(p.weights(), q.weights()); !(d <= gpuTolerance) {
				t.Errorf("weights differ by %v from those of a run without the skipped steps", d)
			}
		})
	}
}
