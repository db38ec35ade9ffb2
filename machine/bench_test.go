package machine_test

import (
	"testing"

	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/machine/machinetest"
)

// BenchmarkStepMLP is a step of a 784-512-512-10 perceptron on 128 samples.
func BenchmarkStepMLP(b *testing.B) { benchmarkLarge(b, perceptron) }

// BenchmarkStepCNN is a step of a convolutional network on 64 images of 28x28.
func BenchmarkStepCNN(b *testing.B) { benchmarkLarge(b, convolutional) }

// BenchmarkStepAttention is a step of a block of a transformer on 8 sequences of 64 words of 128
// numbers, in 4 heads.
func BenchmarkStepAttention(b *testing.B) { benchmarkLarge(b, transformer) }

// BenchmarkCompile is New for the model with the most nodes.
func BenchmarkCompile(b *testing.B) {
	f, err := machinetest.Find("attention")
	if err != nil {
		b.Fatal(err)
	}
	m, err := f.New(machinetest.Config{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		vm, err := compiled(machine.Config{BLAS: "none"})(m)
		if err != nil {
			b.Fatal(err)
		}
		if err := vm.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
