package machine_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/ops"
)

// verbs is a graph with every collective of package ops except messages and barriers, without ddp.
type verbs struct {
	g    *G.ExprGraph
	x, w *G.Node
	cost *G.Node
}

func newVerbs(group *dist.Group) (*verbs, error) {
	building.Lock()
	defer building.Unlock()
	n := group.Size()
	v := &verbs{g: G.NewGraph()}
	v.x = G.NewMatrix(v.g, G.Float32, G.WithName("x"), G.WithShape(2*n, 3))
	weights := make([]float32, 3*n)
	for i := range weights {
		weights[i] = float32(math.Sin(float64(i + 7*group.Rank())))
	}
	v.w = G.NewMatrix(v.g, G.Float32, G.WithName("w"), G.WithShape(3, n), G.WithValue(gtensor.New(gtensor.WithShape(3, n), gtensor.WithBacking(weights))))
	h, err := G.Mul(v.x, v.w)
	if err != nil {
		return nil, err
	}
	var failed error
	must := func(y *G.Node, err error) *G.Node {
		failed = errors.Join(failed, err)
		return y
	}
	scattered := must(ops.ReduceScatter(group, h, dist.Avg))
	if failed != nil {
		return nil, failed
	}
	var parts []*G.Node
	for _, y := range []*G.Node{
		must(ops.AllReduce(group, h, dist.Sum)), must(ops.AllReduce(group, h, dist.PreMulSum(float32(group.Rank()+1)))),
		must(ops.AllGather(group, scattered)), must(ops.AllToAll(group, h)), must(ops.Broadcast(group, h, n-1)),
		must(ops.Reduce(group, h, dist.Sum, 0)), must(ops.Scatter(group, must(ops.Gather(group, scattered, 0)), 0)),
	} {
		if failed != nil {
			return nil, failed
		}
		parts = append(parts, must(G.Sum(must(G.Tanh(y)))))
	}
	v.cost = parts[0]
	for i, p := range parts[1:] {
		v.cost = must(G.Add(v.cost, must(G.Mul(p, G.NewConstant(float32(i+2)))))) // no two alike
	}
	if failed == nil {
		_, failed = G.Grad(v.cost, v.w)
	}
	return v, failed
}

// run returns cost and gradient of some runs with the machine of vm.
func (v *verbs) run(vm G.VM, rank, runs int) (all []float64, err error) {
	for step := range runs {
		x := make([]float32, v.x.Shape().TotalSize())
		for i := range x {
			x[i] = float32(math.Cos(float64(i+5*rank+11*step))) / 2
		}
		if err := G.Let(v.x, gtensor.New(gtensor.WithShape(v.x.Shape()...), gtensor.WithBacking(x))); err != nil {
			return nil, err
		}
		if err := vm.RunAll(); err != nil {
			return nil, err
		}
		grad, err := v.w.Grad()
		if err != nil {
			return nil, err
		}
		all = append(append(all, numbers(v.cost.Value())...), numbers(grad)...)
		vm.Reset()
	}
	return all, nil
}

const verbRuns = 4

// verbsByTape returns the results of tape machines on ranks of the host.
func verbsByTape(n int) ([][]float64, error) {
	worlds, err := sim.New(n, sim.Config{})
	if err != nil {
		return nil, err
	}
	want, errs := make([][]float64, n), make([]error, n)
	var ranks sync.WaitGroup
	for r, w := range worlds {
		ranks.Go(func() {
			v, err := newVerbs(w.Group)
			if err == nil {
				vm := G.NewTapeMachine(v.g, G.BindDualValues(v.w))
				want[r], err = v.run(vm, r, verbRuns)
				err = errors.Join(err, vm.Close())
			}
			if err != nil {
				_ = w.Abort(err)
			}
			errs[r] = errors.Join(err, w.Close())
		})
	}
	ranks.Wait()
	return want, errors.Join(errs...)
}

// verbsAgree compares a rank's machine with the tape machine of the same rank, relative to the
// largest number.
func verbsAgree(w *dist.World, cfg machine.Config, within float64) error {
	want, err := verbsByTape(w.Size())
	if err != nil {
		return err
	}
	v, err := newVerbs(w.Group)
	if err != nil {
		return err
	}
	vm, err := machine.New(v.g, cfg)
	if err != nil {
		return err
	}
	got, err := v.run(vm, w.Rank(), verbRuns)
	if err = errors.Join(err, vm.Close()); err != nil {
		return err
	}
	largest := 0.0
	for _, x := range want[w.Rank()] {
		largest = max(largest, math.Abs(x))
	}
	if off := farthest(got, want[w.Rank()]); !(off <= within*largest) {
		return fmt.Errorf("costs and gradients are off by %g: %v, want %v", off, got, want[w.Rank()])
	}
	return nil
}

// TestCollectivesOfGraphsOnTheHost is the GPU test with ranks of the host.
func TestCollectivesOfGraphsOnTheHost(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4} {
		onRanks(t, n, func(w *dist.World) error { return verbsAgree(w, machine.Config{DualValues: true}, 5e-6) })
	}
}

// TestCollectivesOfGraphsOnGPUs runs collectives of package ops on a world of GPUs, without ddp.
func TestCollectivesOfGraphsOnGPUs(t *testing.T) {
	cases := map[string]func(w *dist.World) error{}
	for name, cfg := range map[string]machine.Config{"graph": {DualValues: true}, "step by step": {DualValues: true, NoGraph: true, NoOptimize: true}} {
		cases[name] = func(w *dist.World) error { return verbsAgree(w, cfg, 2e-5) }
	}
	onGPUs(t, cases)
}

// TestCollectivesOfGPUsNeedAMachine checks the errors of the tape machine and of a machine with
// Device CPU.
func TestCollectivesOfGPUsNeedAMachine(t *testing.T) {
	gpuCount(t, 2)
	gpuWorlds(backend.Config{})(t, 2, conformance.LaunchOptions{StepTimeout: 20 * time.Second}, func(w *dist.World) error {
		v, err := newVerbs(w.Group)
		if err != nil {
			return err
		}
		if _, err := machine.New(v.g, machine.Config{Device: machine.CPU}); !errors.Is(err, machine.ErrDevice) {
			return fmt.Errorf("a machine on the host: error %w, want ErrDevice", err)
		}
		vm := G.NewTapeMachine(v.g)
		_, err = v.run(vm, w.Rank(), 1)
		if err == nil || !strings.Contains(err.Error(), dist.ErrDevice.Error()) { // Gorgonia's error leads to no other
			return errors.Join(fmt.Errorf("the tape machine: error %v, want %w", err, dist.ErrDevice), vm.Close())
		}
		return vm.Close()
	})
}
