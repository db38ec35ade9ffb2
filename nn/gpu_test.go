package nn

import (
	"fmt"
	"math"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/ops"
)

// onGPU runs a graph twice on a GPU, captured and replayed.
func onGPU(t *testing.T, g *G.ExprGraph, compute string, outputs ...*G.Node) (program string) {
	t.Helper()
	m := newMachineOf(t, machine.Config{Device: machine.CUDA, Compute: compute}, g, outputs...)
	for range 2 {
		if err := m.RunAll(); err != nil {
			t.Fatal(err)
		}
		m.Reset()
	}
	return m.Explain()
}

// On a GPU layers have the values of their definitions, and the gradients of the CPU.
func TestLayersOnAGPU(t *testing.T) {
	cudatest.Devices(t, 1)
	for _, e := range append(examples(), moreExamples()...) {
		t.Run(e.name, func(t *testing.T) {
			for dt, bound := range map[gtensor.Dtype]float64{gtensor.Float32: 1e-4, gtensor.Float64: 1e-10} {
				exact, s := e.sample(t, gtensor.Float64), e.sample(t, dt)
				for _, s := range []*sample{exact, s} {
					if _, err := ops.Grad(s.cost, s.in...); err != nil {
						t.Fatal(err)
					}
				}
				outputs := func(s *sample) (all G.Nodes) {
					all = append(all, s.y)
					for _, in := range s.in {
						all = append(all, in.Deriv())
					}
					return all
				}
				if err := newMachine(t, exact.g, outputs(exact)...).RunAll(); err != nil {
					t.Fatal(err)
				}
				onGPU(t, s.g, "f32", outputs(s)...)
				near(t, fmt.Sprint(dt), floats(t, s.y.Value()), e.want(exact.values, e.ints), bound)
				for i, n := range outputs(s) {
					near(t, fmt.Sprintf("%v: output %d", dt, i), floats(t, n.Value()), floats(t, outputs(exact)[i].Value()), bound)
				}
			}
		})
	}
}

// On a GPU a target that is no class is an error of the run, too, with its row.
func TestATargetThatIsNoClassIsAnErrorOnAGPU(t *testing.T) {
	cudatest.Devices(t, 1)
	for name, loss := range losses {
		g := G.NewGraph()
		x, w := input(g, "x", gtensor.Float32, make([]float64, 12), 3, 4), input(g, "w", gtensor.Float32, make([]float64, 20), 4, 5)
		cost, err := loss(x, w, intNode(g, "targets", []int{0, -100, 5}, 3), CrossEntropyConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := G.Grad(cost, w); err != nil {
			t.Fatal(err)
		}
		err = newMachineOf(t, machine.Config{Device: machine.CUDA}, g).RunAll()
		if err == nil || !strings.Contains(err.Error(), "row 2 has target 5, want 0 to 4, or -100") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// In bf16 a loss over a large vocabulary and attention with groups and rotations are within the
// rounding of bf16 of those in f32: each number is off by less than a twentieth of the largest.
func TestABlockInBF16OnAGPU(t *testing.T) {
	cudatest.Devices(t, 1)
	const samples, context, width, classes = 4, 256, 256, 5000
	for name, loss := range losses {
		if name == "LinearCrossEntropy by rows" {
			continue
		}
		run := func(compute string) (all [][]float64, program string) {
			g := G.NewGraph()
			node := func(name string, deviation float64, shape ...int) *G.Node {
				v := make([]float64, gtensor.Shape(shape).TotalSize())
				for i := range v {
					v[i] = deviation * math.Sin(float64(i)*1.7+float64(len(name)))
				}
				return input(g, name, gtensor.Float32, v, shape...)
			}
			targets := make([]int, samples*context)
			for i := range targets {
				targets[i] = i * i % classes
			}
			q, k, v := node("q", 1, samples, context, width), node("keys", 1, samples, context, width/2), node("values", 1, samples, context, width/2)
			w := node("head", 0.1, width, classes)
			turned, err := RoPE(q, RoPEConfig{Heads: 4})
			if err != nil {
				t.Fatal(err)
			}
			y, err := Attention(turned, k, v, AttentionConfig{Heads: 4, KVHeads: 2, Causal: true})
			if err != nil {
				t.Fatal(err)
			}
			cost, err := loss(y, w, intNode(g, "targets", targets, samples*context), CrossEntropyConfig{LabelSmoothing: 0.1, ChunkRows: 256})
			if err != nil {
				t.Fatal(err)
			}
			grads, err := G.Grad(cost, q, k, v, w)
			if err != nil {
				t.Fatal(err)
			}
			program = onGPU(t, g, compute, append(G.Nodes{cost}, grads...)...)
			for _, n := range append(G.Nodes{cost}, grads...) {
				all = append(all, floats(t, n.Value()))
			}
			return all, program
		}
		want, _ := run("f32")
		got, program := run("bf16")
		if !strings.Contains(program, "attentiongrad") || strings.Contains(program, "compute softmax") {
			t.Errorf("%s: the program has scores in memory:\n%s", name, program)
		}
		for k := range want {
			off, largest := 0.0, 0.0
			for i := range want[k] {
				off, largest = max(off, math.Abs(got[k][i]-want[k][i])), max(largest, math.Abs(want[k][i]))
			}
			if !(off <= 0.05*largest) {
				t.Errorf("%s: output %d is off by %g, its largest number is %g", name, k, off, largest)
			}
		}
	}
}
