package machine_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/host/shm"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/internal/long"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/machine/machinetest"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// stepsOf is n in long tests and a quarter of n in short ones. With invariants or the race detector
// it is a tenth, since these find errors in few steps.
func stepsOf(n int) int {
	if invariants.Enabled {
		return max(n/10, 5)
	}
	return long.Times(max(n/4, 5), n)
}

// deep is a network of equal layers without its gradient: tanh(x w_i + b_i).
func deep(layers, width int) func(rows int) *net {
	return func(rows int) *net {
		n := newNet()
		n.x = n.input("x", rows, width)
		h := n.x
		for i := range layers {
			h = G.Must(G.Tanh(n.affine(fmt.Sprint(i), h, width, width)))
		}
		n.out = h
		n.y = n.input("y", rows, width)
		n.cost = G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(n.out, n.y))))))
		return n
	}
}

// tied is deep with its first matrix again at the end, transposed, and a scalar that multiplies a
// layer in the middle.
func tied(rows int) *net {
	const layers, width = 5, 9
	n := newNet()
	n.x = n.input("x", rows, width)
	scale := G.NewScalar(n.g, G.Float32, G.WithName("scale"), G.WithValue(float32(0.7)))
	first := n.param("first", 0.3, width, width)
	n.params = append(n.params, scale)
	h := G.Must(G.Tanh(G.Must(G.Mul(n.x, first))))
	for i := range layers {
		h = G.Must(G.Tanh(n.affine(fmt.Sprint(i), h, width, width)))
		if i == layers/2 {
			h = G.Must(G.HadamardProd(h, scale))
		}
	}
	n.out = G.Must(G.Mul(h, G.Must(G.Transpose(first))))
	n.y = n.input("y", rows, width)
	n.cost = G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(n.out, n.y))))))
	return n
}

// sharded is a training with ddp's solver.
type sharded struct {
	build  func(rows int) *net
	make   newVM
	cfg    ddp.Config
	solver optim.Config
	steps  int
	whole  int  // samples of all ranks; 0 means 12
	micro  bool // a run inside NoSync comes before every other
	resize bool // rank 0's batches are twice as long from the middle on
}

// on trains on one rank and returns costs and weights.
func (c sharded) on(w *dist.World) (costs, weights []float32, err error) {
	whole := c.whole
	if whole == 0 {
		whole = 12
	}
	n, from, to := share(c.build, whole, w.Rank(), w.Size())
	d, err := ddp.Attach(w, n.cost, n.params, c.cfg)
	if err != nil {
		return nil, nil, err
	}
	vm, err := c.make(n)
	if err != nil {
		return nil, nil, err
	}
	defer vm.Close()
	s, err := d.NewSolver(c.solver)
	if err != nil {
		return nil, nil, err
	}
	for step := range c.steps {
		if c.micro {
			if err := d.NoSync(func() error { return c.run(n, vm, 100+step, from, to) }); err != nil {
				return nil, nil, fmt.Errorf("step %d: %w", step, err)
			}
		}
		if c.resize && w.Rank() == 0 && step == c.steps/2 {
			to += to - from
		}
		if err := errors.Join(d.SetWeight(float64(to-from)), c.run(n, vm, step, from, to)); err != nil {
			return nil, nil, fmt.Errorf("step %d: %w", step, err)
		}
		costs = append(costs, float32(n.cost.Value().Data().(float32)))
		if err := s.Step(d.Model()); err != nil {
			return nil, nil, fmt.Errorf("step %d: %w", step, err)
		}
	}
	if err := d.Consolidate(); err != nil {
		return nil, nil, err
	}
	for _, p := range n.params {
		one, err := elements(p)
		if err != nil {
			return nil, nil, err
		}
		for _, x := range one {
			weights = append(weights, float32(x))
		}
	}
	return costs, weights, d.Close()
}

func (sharded) run(n *net, vm G.VM, step, from, to int) error {
	defer vm.Reset()
	if m, ok := vm.(*machine.Machine); ok && n.x.Shape()[0] != to-from {
		for _, in := range []*G.Node{n.x, n.y} {
			fresh := gtensor.New(gtensor.WithShape(to-from, in.Shape()[1]), gtensor.Of(gtensor.Float32))
			if err := m.Let(in, fresh); err != nil {
				return err
			}
		}
	}
	if err := n.feed(step, from, to); err != nil {
		return err
	}
	return vm.RunAll()
}

// onShm is onRanks on the shm backend.
func onShm(t *testing.T, n int, body func(w *dist.World) error) {
	t.Helper()
	ends, err := shm.Local(n, shm.GoMemory, shm.Config{StepTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, n)
	var ranks sync.WaitGroup
	for r, end := range ends {
		w, err := dist.NewWorld(end, dist.LocalInfo{Rank: r, Size: n, Launcher: "none", Job: "shm"}, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		ranks.Go(func() {
			if errs[r] = body(w); errs[r] != nil {
				_ = w.Abort(fmt.Errorf("rank %d: %w", r, errs[r]))
			}
			errs[r] = errors.Join(errs[r], w.Close())
		})
	}
	ranks.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// both returns the ranks' results after training with Stage 0, and with Stage 3 on a backend.
func (c sharded) both(t *testing.T, ranks int, on func(*testing.T, int, func(*dist.World) error)) (costs, weights [2][][]float32) {
	t.Helper()
	for k, stage := range []int{0, 3} {
		c.cfg.Stage = stage
		costs[k], weights[k] = byRank(ranks), byRank(ranks)
		on(t, ranks, func(w *dist.World) (err error) {
			costs[k][w.Rank()], weights[k][w.Rank()], err = c.on(w)
			return err
		})
	}
	return costs, weights
}

// layerwise has a bucket for each layer, or for a part of one.
var layerwise = ddp.Config{BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024}

func TestStage3GivesTheBitsOfStage0(t *testing.T) {
	for _, m := range []struct {
		name  string
		build func(rows int) *net
	}{{"deep", deep(5, 9)}, {"tied", tied}} {
		t.Run("sim/"+m.name, func(t *testing.T) { testStage3(t, m.build, onRanks) })
		t.Run("shm/"+m.name, func(t *testing.T) { testStage3(t, m.build, onShm) })
	}
}

// worldsUpTo returns the world sizes up to n in long tests. Short tests have 1 and 3, with the race
// detector 3.
func worldsUpTo(n int) []int {
	if invariants.Enabled {
		return []int{3}
	}
	if !long.Enabled() {
		return []int{1, 3}
	}
	all := make([]int, n)
	for i := range all {
		all[i] = i + 1
	}
	return all
}

func testStage3(t *testing.T, build func(rows int) *net, on func(*testing.T, int, func(*dist.World) error)) {
	for _, vm := range []struct {
		name string
		make newVM
	}{{"tape", tape}, {"machine", machined}} {
		for _, ranks := range worldsUpTo(4) {
			t.Run(fmt.Sprintf("%s/%d ranks", vm.name, ranks), func(t *testing.T) {
				c := sharded{build: build, make: vm.make, cfg: layerwise, steps: stepsOf(100), solver: optim.Config{Name: optim.Adam, LearningRate: 0.01}}
				costs, weights := c.both(t, ranks, on)
				for r := range ranks {
					if !slices.Equal(costs[0][r], costs[1][r]) || !slices.Equal(weights[0][r], weights[1][r]) {
						t.Errorf("rank %d: other bits", r)
					}
				}
				trend := long.Enabled() && !invariants.Enabled // few steps show none
				if c := costs[0][0]; trend && c[len(c)-1] >= c[0] {
					t.Errorf("nothing was learned: %v", c)
				}
			})
		}
	}
}

// shardedModel trains one of machinetest's models, with other samples on each rank, and returns
// costs and weights.
func shardedModel(w *dist.World, f machinetest.Builder, dt gtensor.Dtype, cfg machine.Config, stage int) (costs, weights []float64, err error) {
	m, err := f.New(machinetest.Config{DType: dt, NoGradients: true})
	if err != nil {
		return nil, nil, err
	}
	d, err := ddp.Attach(w, m.Cost, m.Learnables, ddp.Config{Stage: stage, BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024})
	if err != nil {
		return nil, nil, err
	}
	cfg.Solver = &optim.Config{Name: optim.Adam, LearningRate: 0.01}
	vm, err := machine.New(m.Graph, cfg)
	if err != nil {
		return nil, nil, err
	}
	defer vm.Close()
	for step := range 10 {
		if err := m.Feed(step*w.Size() + w.Rank()); err != nil {
			return nil, nil, err
		}
		if err := vm.RunAll(); err != nil {
			return nil, nil, fmt.Errorf("step %d: %w", step, err)
		}
		cost, err := elements(m.Cost)
		if err != nil {
			return nil, nil, err
		}
		costs = append(costs, cost...)
	}
	if err := d.Consolidate(); err != nil {
		return nil, nil, err
	}
	for _, p := range m.Learnables {
		one, err := elements(p)
		if err != nil {
			return nil, nil, err
		}
		weights = append(weights, one...)
	}
	return costs, weights, d.Close()
}

// elements returns a copy of a node's value.
func elements(n *G.Node) ([]float64, error) {
	b, err := ops.Elements(n.Value())
	if err != nil {
		return nil, err
	}
	if x, err := tensor.Data[float64](b); err == nil {
		return slices.Clone(x), nil
	}
	x, err := tensor.Data[float32](b)
	wide := make([]float64, len(x))
	for i := range x {
		wide[i] = float64(x[i])
	}
	return wide, err
}

// TestStagesGiveTheBitsOfStage0ForEveryModel has ten models, with the update at the end of each
// run.
func TestStagesGiveTheBitsOfStage0ForEveryModel(t *testing.T) {
	for i, f := range machinetest.Models() {
		for name, cfg := range map[string]machine.Config{"optimized": optimized, "unoptimized": unoptimized} {
			t.Run(f.Name+"/"+name, func(t *testing.T) {
				dt := []gtensor.Dtype{gtensor.Float32, gtensor.Float64}[i%2]
				ranks := 2 + i%2
				var costs, weights [4][][]float64
				for stage := range costs {
					costs[stage], weights[stage] = make([][]float64, ranks), make([][]float64, ranks)
					onRanks(t, ranks, func(w *dist.World) (err error) {
						costs[stage][w.Rank()], weights[stage][w.Rank()], err = shardedModel(w, f, dt, cfg, stage)
						return err
					})
					for r := range ranks {
						if !slices.Equal(costs[0][r], costs[stage][r]) {
							t.Errorf("stage %d, rank %d: costs %v, want %v", stage, r, costs[stage][r], costs[0][r])
						}
						if !slices.Equal(weights[0][r], weights[stage][r]) {
							t.Errorf("stage %d, rank %d: other weights", stage, r)
						}
					}
				}
			})
		}
	}
}

// TestStage3WithBatchesOfAnyLength has ranks whose programs differ: with one sample, with two, and
// one that is compiled anew.
func TestStage3WithBatchesOfAnyLength(t *testing.T) {
	for _, resize := range []bool{false, true} {
		c := sharded{
			build: deep(6, 9), make: machined, cfg: layerwise, steps: 20, whole: 5, resize: resize,
			solver: optim.Config{Name: optim.LAMB, WeightDecay: 0.01},
		}
		costs, weights := c.both(t, 4, onRanks)
		for r := range 4 {
			if !slices.Equal(costs[0][r], costs[1][r]) || !slices.Equal(weights[0][r], weights[1][r]) {
				t.Errorf("resized %v: rank %d: other bits", resize, r)
			}
		}
	}
}

// TestStage3Accumulates has a run inside NoSync before every other run, which changes the order of
// sums.
func TestStage3Accumulates(t *testing.T) {
	for name, make := range map[string]newVM{"tape": tape, "machine": machined} {
		c := sharded{build: deep(3, 9), make: make, cfg: layerwise, steps: 10, micro: true, solver: optim.Config{Name: optim.Momentum, LearningRate: 0.1}}
		_, weights := c.both(t, 3, onRanks)
		for r := range 3 {
			if off := largestDifference(weights[0][r], weights[1][r]); !(off <= 1e-6) {
				t.Errorf("%s: rank %d: weights are off by %g", name, r, off)
			}
		}
	}
}
