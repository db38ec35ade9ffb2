package machine_test

import (
	"reflect"
	"testing"

	G "gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/machine"
)

// TestStatementsOnGPU counts runs in an input, which the device must copy again although only its
// elements change, and reads bools and integers.
func TestStatementsOnGPU(t *testing.T) {
	cudatest.Devices(t, 1)
	for _, keep := range []bool{false, true} {
		g := G.NewGraph()
		w := list(g, "w", []float64{1, 1})
		G.Set(w, G.Must(G.Add(w, G.NewConstant(1.0))))
		s := G.Must(G.Sum(G.Must(G.Square(w))))
		over := G.Must(G.Gt(w, G.NewConstant(1.5), false))
		var read G.Value
		G.Read(over, &read)
		i := list(g, "i", []int{1<<53 + 1, -7})
		sum := G.Must(G.Add(i, i))
		m := newMachine(t, g, machine.Config{Device: machine.CUDA, KeepInputs: keep}, s, sum)
		for k := 1.0; k < 5; k++ {
			run(t, m)
			want(t, "sum of squares", s.Value(), 2*k*k)
			want(t, "w", w.Value(), k+1, k+1)
			if large := k > 1.5; !reflect.DeepEqual(read.Data(), []bool{large, large}) {
				t.Errorf("run %v: bools %v, want %v", k, read, large)
			}
		}
		if got := sum.Value().Data(); !reflect.DeepEqual(got, []int{1<<54 + 2, -14}) {
			t.Errorf("integers %v", got)
		}
	}
}

// TestIntegerDivisorsOfZeroOnGPU has the error of the CPU.
func TestIntegerDivisorsOfZeroOnGPU(t *testing.T) {
	cudatest.Devices(t, 1)
	g := G.NewGraph()
	G.Must(G.HadamardDiv(list(g, "a", []int{1, 2}), list(g, "b", []int{1, 0})))
	m, err := machine.New(g, machine.Config{Device: machine.CUDA})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.RunAll(); err == nil {
		t.Error("a division by zero is no error")
	}
	_ = m.Close() // it may report the fault once more
}
