package machine_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/ops"
)

// oneNorm is a normalized product, with its gradient.
type oneNorm struct {
	g        *G.ExprGraph
	x, y, dw *G.Node
	scale    *G.Node
	norm     *ops.BatchNorm
}

func newOneNorm(group *dist.Group, dt gtensor.Dtype, rows, channels int) (*oneNorm, error) {
	building.Lock()
	defer building.Unlock()
	b := &block{g: G.NewGraph(), dt: dt}
	n := &oneNorm{g: b.g}
	n.x = G.NewMatrix(n.g, dt, G.WithName("x"), G.WithShape(rows, channels))
	n.scale = G.NewVector(n.g, dt, G.WithName("scale"), G.WithShape(channels),
		G.WithValue(b.tensor(ramp(channels, 1, 0.5), channels)))
	w := G.NewMatrix(n.g, dt, G.WithName("w"), G.WithShape(channels, channels),
		G.WithValue(b.tensor(ramp(channels*channels, 1, 0.3), channels, channels)))
	var err error
	if n.y, n.norm, err = ops.SyncBatchNorm(group, G.Must(G.Mul(n.x, w)), n.scale, nil, ops.BatchNormConfig{}); err != nil {
		return nil, err
	}
	cost := G.Must(G.Sum(G.Must(G.Cube(n.y))))
	grads, err := G.Grad(cost, w, n.scale)
	if err != nil {
		return nil, err
	}
	n.dw = grads[0]
	return n, nil
}

func ramp(n int, from, step float64) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = from + step*float64(i)
	}
	return v
}

// numbers returns the elements of a value.
func numbers(v G.Value) []float64 {
	switch d := v.Data().(type) {
	case []float64:
		return append([]float64(nil), d...)
	case []float32:
		all := make([]float64, len(d))
		for i, x := range d {
			all[i] = float64(x)
		}
		return all
	}
	return nil
}

// TestSyncBatchNormFarFromZero normalizes float32 numbers around 10000, which differ by about 1, on
// two ranks. The result must agree with float64 to the precision of float32.
func TestSyncBatchNormFarFromZero(t *testing.T) {
	const rows = 50
	for name, cfg := range map[string]machine.Config{"optimized": optimized, "unoptimized": unoptimized} {
		all := make([]float64, 0, 2*rows)
		for i := range 2 * rows {
			all = append(all, float64(float32(1e4+math.Sin(float64(i*i)))))
		}
		mean, variance := 0.0, 0.0
		for _, x := range all {
			mean += x / (2 * rows)
		}
		for _, x := range all {
			variance += (x - mean) * (x - mean) / (2 * rows)
		}
		onRanks(t, 2, func(w *dist.World) error {
			n, err := newOneNorm(w.Group, gtensor.Float32, rows, 1)
			if err != nil {
				return err
			}
			m, err := machine.New(n.g, cfg, n.y)
			if err != nil {
				return err
			}
			defer m.Close()
			mine := all[rows*w.Rank() : rows*(w.Rank()+1)]
			if err := errors.Join(G.Let(n.x, (&block{dt: gtensor.Float32}).tensor(mine, rows, 1)), m.RunAll()); err != nil {
				return err
			}
			for i, got := range numbers(n.y.Value()) {
				if want := (mine[i] - mean) / math.Sqrt(variance+1e-5); !(math.Abs(got-want) <= 1e-6) {
					return fmt.Errorf("%s: y[%d] is %.8g, want %.8g", name, i, got, want)
				}
			}
			return nil
		})
	}
}

// TestSyncBatchNormFollowsItsMode trains, then runs one rank alone with the running statistics, and
// trains again, under both machines.
func TestSyncBatchNormFollowsItsMode(t *testing.T) {
	results := map[string][][]float64{}
	for name, vm := range map[string]func(n *oneNorm) (G.VM, error){
		"tape":    func(n *oneNorm) (G.VM, error) { return G.NewTapeMachine(n.g, G.BindDualValues()), nil },
		"machine": func(n *oneNorm) (G.VM, error) { return machine.New(n.g, optimized, n.y, n.dw, n.scale.Deriv()) },
	} {
		onRanks(t, 2, func(w *dist.World) error {
			n, err := newOneNorm(w.Group, gtensor.Float64, 4, 3)
			if err != nil {
				return err
			}
			vm, err := vm(n)
			if err != nil {
				return err
			}
			defer vm.Close()
			var seen [][]float64
			for step, training := range []bool{true, false, true} {
				n.norm.SetTraining(training)
				if w.Rank() == 1 && !training {
					continue
				}
				x := ramp(12, float64(w.Rank()+step), 0.7)
				x[3] += 5
				if err := errors.Join(G.Let(n.x, (&block{dt: gtensor.Float64}).tensor(x, 4, 3)), vm.RunAll()); err != nil {
					return err
				}
				mean, variance := n.norm.Stats()
				seen = append(seen, numbers(n.dw.Value()), numbers(n.scale.Deriv().Value()), numbers(mean), numbers(variance))
				vm.Reset()
			}
			if w.Rank() == 0 {
				results[name] = seen
			}
			return nil
		})
	}
	for i, want := range results["tape"] {
		if off := farthest(results["machine"][i], want); !(off <= 1e-10) { // of numbers up to 1e4
			t.Errorf("step %d, result %d is off by %g: %v, want %v", i/4, i%4, off, results["machine"][i], want)
		}
	}
	if len(results["tape"]) != 12 {
		t.Errorf("%d results", len(results["tape"]))
	}
}

// TestSyncBatchNormTakesBatchesOfOtherLengths gives ranks batches of other lengths than their
// graphs were built with.
func TestSyncBatchNormTakesBatchesOfOtherLengths(t *testing.T) {
	lengths := [][2]int{{4, 4}, {2, 5}, {4, 1}, {4, 4}}
	onRanks(t, 2, func(w *dist.World) error {
		n, err := newOneNorm(w.Group, gtensor.Float64, 4, 2)
		if err != nil {
			return err
		}
		m, err := machine.New(n.g, optimized, n.y, n.dw)
		if err != nil {
			return err
		}
		defer m.Close()
		for step, l := range lengths {
			rows := l[w.Rank()]
			x := make([]float64, 2*rows)
			for i := range x {
				x[i] = math.Sin(float64(100*step + 31*w.Rank() + i))
			}
			if err := errors.Join(m.Let(n.x, (&block{dt: gtensor.Float64}).tensor(x, rows, 2)), m.RunAll()); err != nil {
				return err
			}
			fresh, err := newOneNorm(w.Group, gtensor.Float64, rows, 2)
			if err != nil {
				return err
			}
			var y G.Value
			G.Read(fresh.y, &y)
			vm := G.NewTapeMachine(fresh.g)
			err = errors.Join(G.Let(fresh.x, (&block{dt: gtensor.Float64}).tensor(x, rows, 2)), vm.RunAll(), vm.Close())
			if err != nil {
				return err
			}
			if off := max(farthest(numbers(n.y.Value()), numbers(y)), farthest(numbers(n.dw.Value()), numbers(fresh.dw.Value()))); !(off <= 1e-12) {
				return fmt.Errorf("step %d: off by %g", step, off)
			}
		}
		return nil
	})
}

// TestSyncBatchNormOfAnInput normalizes an input before any parameter. No output needs its
// gradient, yet all ranks must communicate equally, one with each machine.
func TestSyncBatchNormOfAnInput(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		building.Lock()
		n := newNet()
		x, scale := n.input("x", 4, 3), n.param("scale", 1, 3)
		y, _, err := ops.SyncBatchNorm(w.Group, x, scale, n.param("bias", 1, 3), ops.BatchNormConfig{})
		if err == nil {
			n.cost = G.Must(G.Mean(G.Must(G.Tanh(y))))
		}
		building.Unlock()
		if err != nil {
			return err
		}
		d, err := ddp.Attach(w, n.cost, n.params, ddp.Config{})
		if err != nil {
			return err
		}
		vm, err := []newVM{tape, machined}[w.Rank()](n)
		if err != nil {
			return err
		}
		defer vm.Close()
		for range 2 {
			if err := vm.RunAll(); err != nil {
				return err
			}
			vm.Reset()
		}
		v, err := scale.Grad()
		if err == nil && len(numbers(v)) != 3 {
			err = fmt.Errorf("a gradient of %v", v)
		}
		return errors.Join(err, d.Close())
	})
}

// TestADeadPeerEndsACompiledBatchNorm has a rank that dies in the forward or in the backward pass.
func TestADeadPeerEndsACompiledBatchNorm(t *testing.T) {
	for op, what := range map[int]string{1: ".statistics", 2: ".gradient"} {
		worlds, err := sim.New(3, sim.Config{Script: fmt.Sprintf("die rank=1 op=%d", op)})
		if err != nil {
			t.Fatal(err)
		}
		errs := make([]error, len(worlds))
		var ranks sync.WaitGroup
		for r, w := range worlds {
			ranks.Go(func() {
				n, err := newOneNorm(w.Group, gtensor.Float32, 2, 1)
				if err == nil {
					err = G.Let(n.x, (&block{dt: gtensor.Float32}).tensor(ramp(2, float64(r), 1), 2, 1))
				}
				var m *machine.Machine
				if err == nil {
					m, err = machine.New(n.g, optimized, n.y, n.dw)
				}
				if err == nil {
					err = errors.Join(m.RunAll(), m.Close())
				}
				errs[r] = errors.Join(err, w.Close())
			})
		}
		ranks.Wait()
		for _, r := range []int{0, 2} {
			var dead *dist.RankError
			if !errors.As(errs[r], &dead) || dead.Rank != 1 || !strings.Contains(errs[r].Error(), what) {
				t.Errorf("rank %d: %v; want one that names rank 1 and %s", r, errs[r], what)
			}
		}
	}
}
