package machine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/machine/machinetest"
	"github.com/symgrad/symgrad/optim"
)

// recomputing is plain with recomputation. A limit of one byte makes RecomputeAuto find the least.
func recomputing(mode machine.Recompute) machine.Config {
	cfg := plain
	if cfg.Recompute = mode; mode == machine.RecomputeAuto {
		cfg.MemoryBytes = 1
	}
	return cfg
}

var recomputes = []machine.Recompute{machine.RecomputeBlocks, machine.RecomputeAuto}

// TestRecomputeKeepsBitsOfModels trains ten models with and without it: losses, gradients, running
// statistics and weights have the same bits.
func TestRecomputeKeepsBitsOfModels(t *testing.T) {
	less := 0
	for _, f := range machinetest.Models() {
		record := func(cfg machine.Config) (*machinetest.Record, int64) {
			m, err := f.New(machinetest.Config{})
			if err != nil {
				t.Fatal(err)
			}
			arena := int64(0)
			r, err := machinetest.Train(m, func(m *machinetest.Model) (G.VM, error) {
				vm, err := machine.New(m.Graph, cfg, m.Outputs()...)
				if err == nil {
					arena = vm.Footprint().Arena
				}
				return vm, err
			}, machinetest.Options{Steps: 5}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return r, arena
		}
		want, whole := record(plain)
		for _, mode := range recomputes {
			got, arena := record(recomputing(mode))
			machinetest.Compare(t, want, got, 0, false)
			if arena > whole {
				t.Errorf("%s, %s: an arena of %d B, %d without", f.Name, mode, arena, whole)
			}
			if arena < whole {
				less++
			}
		}
	}
	if less == 0 {
		t.Error("nothing was ever computed again")
	}
}

// dropouts is a perceptron of equal layers with dropout.
func dropouts(count, rows, width int) *net {
	n := newNet()
	n.x = n.input("x", rows, width)
	h := n.x
	for i := range count {
		h = G.Must(G.Dropout(G.Must(G.Tanh(n.affine(fmt.Sprint(i), h, width, width))), 0.3))
	}
	return n.classify(n.affine("last", h, width, 5), rows, 5)
}

// residuals is a network of convolutions with batch normalization, each added to its input.
func residuals(count, rows, channels, side int) *net {
	n := newNet()
	n.x = n.input("x", rows, channels, side, side)
	h := n.x
	for i := range count {
		w := n.param(fmt.Sprint("w", i), 0.1, channels, channels, 3, 3)
		scale, shift := n.param(fmt.Sprint("scale", i), 0.1, 1, channels, 1, 1), n.param(fmt.Sprint("shift", i), 0.1, 1, channels, 1, 1)
		y := G.Must(G.Conv2d(h, w, gtensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}))
		y, _, _, _, err := G.BatchNorm(y, scale, shift, 0.9, 1e-5)
		if err != nil {
			panic(err)
		}
		h = G.Must(G.Add(h, G.Must(G.Rectify(y))))
	}
	all := channels * side * side
	return n.classify(n.affine("last", G.Must(G.Reshape(h, gtensor.Shape{rows, all})), all, 5), rows, 5)
}

// TestRecomputeTakesLessMemory has deep networks: arenas of known sizes, which are also foreseen,
// and the bits of a training without recomputation.
func TestRecomputeTakesLessMemory(t *testing.T) {
	for _, c := range []struct {
		name   string
		build  func() *net
		arenas [2]int64 // without, with blocks
	}{
		{"mlp", func() *net { return dropouts(16, 32, 16) }, [2]int64{68680, 18760}},
		{"cnn", func() *net { return residuals(9, 2, 4, 8) }, [2]int64{91144, 36360}},
	} {
		t.Run(c.name, func(t *testing.T) {
			train := func(cfg machine.Config) (all []float32, arena int64) {
				n := c.build()
				cfg.Solver = &optim.Config{Name: optim.Adam, LearningRate: 0.01}
				m := newMachine(t, n.g, cfg, n.cost)
				cfg.Device = machine.CPU
				n2 := c.build()
				if f, err := machine.Foresee(n2.g, cfg, n2.cost); err != nil || f.Arena != m.Footprint().Arena {
					t.Errorf("foreseen: an arena of %d B (%v), it has %d B", f.Arena, err, m.Footprint().Arena)
				}
				for range 4 {
					run(t, m)
					all = append(all, n.cost.Value().Data().(float32))
				}
				return append(all, n.weights()...), m.Footprint().Arena
			}
			want, whole := train(plain)
			got, arena := train(recomputing(machine.RecomputeBlocks))
			if !slices.Equal(got, want) {
				t.Errorf("blocks: other bits")
			}
			if whole != c.arenas[0] || arena != c.arenas[1] {
				t.Errorf("arenas of %d and %d B, want %d", whole, arena, c.arenas)
			}
			half := plain
			half.Recompute, half.MemoryBytes = machine.RecomputeAuto, whole/2
			got, arena = train(half)
			if !slices.Equal(got, want) || arena > whole/2 {
				t.Errorf("auto: an arena of %d B with a limit of %d B; equal bits %v", arena, whole/2, slices.Equal(got, want))
			}
		})
	}
}

// TestRecomputeWithEveryStage has ranks whose gradients are exchanged layer by layer, with one run
// for a step and with two.
func TestRecomputeWithEveryStage(t *testing.T) {
	for stage := range 4 {
		for _, micro := range []bool{false, true} {
			var costs, weights [2][][]float32
			var arenas [2][2]int64 // by rank
			for k, mode := range []machine.Recompute{machine.RecomputeNone, machine.RecomputeBlocks} {
				c := sharded{build: deep(12, 24), cfg: layerwise, steps: 4, whole: 96, micro: micro, solver: optim.Config{Name: optim.Adam, LearningRate: 0.01}}
				c.cfg.Stage = stage
				costs[k], weights[k] = byRank(2), byRank(2)
				onRanks(t, 2, func(w *dist.World) (err error) {
					c := c
					c.make = func(n *net) (G.VM, error) {
						m, err := machine.New(n.g, recomputing(mode))
						if err == nil {
							arenas[k][w.Rank()] = m.Footprint().Arena
						}
						return m, err
					}
					costs[k][w.Rank()], weights[k][w.Rank()], err = c.on(w)
					return err
				})
			}
			for r := range 2 {
				if 5*arenas[1][r] > 4*arenas[0][r] {
					t.Errorf("stage %d, two runs %v, rank %d: arenas of %d B", stage, micro, r, arenas)
				}
				if !slices.Equal(costs[0][r], costs[1][r]) || !slices.Equal(weights[0][r], weights[1][r]) {
					t.Errorf("stage %d, two runs %v, rank %d: other bits", stage, micro, r)
				}
			}
		}
	}
}

// TestRecomputeWithBatchesOfAnyLength has ranks whose programs differ and repeat different steps:
// with one sample, with two, and one that is compiled anew. Their fetches have one order.
func TestRecomputeWithBatchesOfAnyLength(t *testing.T) {
	for _, resize := range []bool{false, true} {
		c := sharded{
			build: deep(12, 9), cfg: layerwise, steps: 8, whole: 5, resize: resize,
			solver: optim.Config{Name: optim.LAMB, WeightDecay: 0.01},
			make:   func(n *net) (G.VM, error) { return machine.New(n.g, recomputing(machine.RecomputeBlocks)) },
		}
		costs, weights := c.both(t, 4, onRanks)
		for r := range 4 {
			if !slices.Equal(costs[0][r], costs[1][r]) || !slices.Equal(weights[0][r], weights[1][r]) {
				t.Errorf("resized %v: rank %d: other bits", resize, r)
			}
		}
	}
}

// TestRecomputeIsForeseenForEveryStage compiles a rank of two for a GPU, which may be missing: with
// recomputation a deep network needs at most two thirds of the arena.
func TestRecomputeIsForeseenForEveryStage(t *testing.T) {
	for stage := range 4 {
		var arenas [2]int64
		for k, mode := range []machine.Recompute{machine.RecomputeNone, machine.RecomputeBlocks} {
			onRanks(t, 2, func(w *dist.World) error {
				n := deep(12, 24)(480)
				c := layerwise
				c.Stage = stage
				d, err := ddp.Attach(w, n.cost, n.params, c)
				if err != nil {
					return err
				}
				f, err := machine.Foresee(n.g, machine.Config{
					Device: machine.CUDA, Recompute: mode, Solver: &optim.Config{Name: optim.Adam},
				}, append(G.Nodes{n.cost}, d.Grads()...)...)
				if w.Rank() == 0 {
					arenas[k] = f.Arena
				}
				return errors.Join(err, d.Close())
			})
		}
		if 3*arenas[1] > 2*arenas[0] {
			t.Errorf("stage %d: arenas of %d B", stage, arenas)
		}
	}
}

func TestRecomputeRefuses(t *testing.T) {
	for want, cfg := range map[string]machine.Config{
		`recompute "all"; want none, blocks or auto`: {Recompute: "all"},
		"a limit of -1 bytes":                        {Recompute: machine.RecomputeAuto, MemoryBytes: -1},
		`without recompute "auto"`:                   {MemoryBytes: 1},
	} {
		if _, err := machine.New(small(2).g, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
}
