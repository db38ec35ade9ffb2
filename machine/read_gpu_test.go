package machine_test

import (
	"slices"
	"testing"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/optim"
)

// TestReadOfAParameterOnAGPU reads a parameter that the machine updates, and an input, in every
// run.
func TestReadOfAParameterOnAGPU(t *testing.T) {
	cudatest.Devices(t, 1)
	c := optim.Config{Name: optim.SGD, LearningRate: 0.1}
	p := newGPUNet(t, 8)
	var weight, input gorgonia.Value
	gorgonia.Read(p.params[0], &weight)
	gorgonia.Read(p.x, &input)
	vm, s := gpuTrainer(t, p, c)
	defer vm.Close()
	before := slices.Clone(p.weights()[0])
	gpuTrain(t, p, vm, s, 0, 3)
	got := slices.Clone(weight.Data().([]float32))
	if err := vm.Sync(); err != nil {
		t.Fatal(err)
	}
	if want := p.weights()[0]; !slices.Equal(got, want) || slices.Equal(got, before) {
		t.Errorf("the weights that were read are not those of the last update")
	}
	if want := p.x.Value().Data().([]float32); !slices.Equal(input.Data().([]float32), want) {
		t.Errorf("the input that was read is %v, want %v", input, want)
	}
}
