package model

import (
	"math"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/machine"
)

// wide is large enough for kernels of attention.
func wide(context int) Config {
	return Config{Vocabulary: 7, Context: context, Layers: 2, Heads: 4, Width: 256, Hidden: []int{512}, Batch: 4, Seed: 5}
}

// differentiated returns the model with its gradients, and the nodes to check.
func differentiated(t *testing.T, c Config) (*Model, G.Nodes) {
	t.Helper()
	m := build(t, c)
	grads, err := G.Grad(m.Cost, m.Params...)
	if err != nil {
		t.Fatal(err)
	}
	return m, append(G.Nodes{m.Cost}, grads...)
}

// A GPU that multiplies bf16 needs no memory for the scores of a head: four times the tokens of a
// sample take no sixteen times of it.
func TestScoresTakeNoMemoryInBF16(t *testing.T) {
	arena := func(context int, compute string) int64 {
		m, outputs := differentiated(t, wide(context))
		f, err := machine.Foresee(m.Cost.Graph(), machine.Config{Device: machine.CUDA, Compute: compute}, outputs...)
		if err != nil {
			t.Fatal(err)
		}
		return f.Arena
	}
	short, long := arena(256, "bf16"), arena(1024, "bf16")
	if long > 5*short {
		t.Errorf("1024 tokens take %d bytes, 256 take %d", long, short)
	}
	if f32 := arena(1024, "f32"); f32 < 3*long {
		t.Errorf("in f32, with scores, %d bytes; in bf16 %d", f32, long)
	}
}

// In bf16 each number is off by less than a hundredth of the largest of its kind, with attention as
// the kernels make it.
func TestAttentionOnAGPULearnsWhatProductsDo(t *testing.T) {
	cudatest.Devices(t, 1)
	run := func(compute string) (all [][]float64, program string) {
		m, outputs := differentiated(t, wide(256))
		vm, err := machine.New(m.Cost.Graph(), machine.Config{Device: machine.CUDA, Compute: compute}, outputs...)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // captured, and replayed
			if err := vm.RunAll(); err != nil {
				t.Fatal(err)
			}
			vm.Reset()
		}
		for _, n := range outputs {
			var numbers []float64
			switch v := n.Value().Data().(type) {
			case float32:
				numbers = []float64{float64(v)}
			case []float32:
				for _, x := range v {
					numbers = append(numbers, float64(x))
				}
			}
			all = append(all, numbers)
		}
		program = vm.Explain()
		if err := vm.Close(); err != nil {
			t.Fatal(err)
		}
		return all, program
	}
	want, _ := run("f32")
	got, program := run("bf16")
	if strings.Count(program, "attentiongrad") != 2 || strings.Contains(program, "compute softmax") {
		t.Errorf("the program has its scores in memory:\n%s", program)
	}
	for k := range want {
		off, largest := 0.0, 0.0
		for i := range want[k] {
			off, largest = max(off, math.Abs(got[k][i]-want[k][i])), max(largest, math.Abs(want[k][i]))
		}
		if !(off <= 0.03*largest) {
			t.Errorf("output %d is off by %g, its largest number is %g", k, off, largest)
		}
	}
}
