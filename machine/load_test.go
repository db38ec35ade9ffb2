package machine_test

import (
	"math"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/machine"
)

// loadsStates changes the running statistics of a batch normalization on the host between runs, in
// evaluation and in training.
func loadsStates(t *testing.T, device machine.Device) {
	t.Helper()
	g := G.NewGraph()
	node := func(name string, values []float32, shape ...int) *G.Node {
		return G.NewTensor(g, G.Float32, len(shape), G.WithName(name), G.WithShape(shape...),
			G.WithValue(gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(values))))
	}
	x := node("x", []float32{1, 5, 3, 9}, 2, 2)
	scale, offset := node("scale", []float32{1, 1}, 1, 2), node("offset", []float32{0, 0}, 1, 2)
	y, _, _, op, err := G.BatchNorm(x, scale, offset, 0.5, 1e-5)
	if err != nil {
		t.Fatal(err)
	}
	mean, variance := op.Stats()
	m, v := mean.Data().([]float32), variance.Data().([]float32)
	for _, eval := range []bool{true, false} {
		vm, err := machine.New(g, machine.Config{Device: device, Eval: eval}, y)
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range []float32{0, 2} {
			m[0], m[1], v[0], v[1] = to, to+1, 4, 9
			vm.Load()
			if err := vm.RunAll(); err != nil {
				t.Fatal(err)
			}
			if err := vm.Sync(); err != nil {
				t.Fatal(err)
			}
			vm.Reset()
			got := []float32{y.Value().Data().([]float32)[0], y.Value().Data().([]float32)[3], m[0], m[1]}
			want := []float32{(1 - to) / 2, (9 - to - 1) / 3, to, to + 1}
			if !eval { // normalized over the batch; the means are 2 and 7
				want = []float32{-1, 1, (to + 2) / 2, (to + 1 + 7) / 2}
			}
			for i := range want {
				if math.Abs(float64(got[i]-want[i])) > 1e-4 {
					t.Errorf("evaluation %v, mean %v: %v, want %v", eval, to, got, want)
					break
				}
			}
		}
		if err := vm.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLoadTakesStatesFromTheHost(t *testing.T) { loadsStates(t, machine.CPU) }

func TestLoadTakesStatesFromTheHostOnAGPU(t *testing.T) {
	cudatest.Devices(t, 1)
	loadsStates(t, machine.CUDA)
}
