package cudaexec

import (
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// BenchmarkReplay measures the cost of a run for host and device, with a program of small steps.
func BenchmarkReplay(b *testing.B) {
	p := newBuilder("replay", 8).train(options{batch: 8, dims: []int{6, 6, 3}}).plan(b, true)
	r := newRig(b, p, Config{}, program.Env{})
	for range warmRuns + 1 {
		if err := r.Run(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Run(); err != nil {
			b.Fatal(err)
		}
	}
	if err := r.Wait(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkStep is the MLP of the project's comparisons: 784-512-512-10, batch 128.
func BenchmarkStep(b *testing.B) {
	for _, compute := range []Compute{F32, TF32} {
		b.Run(compute.String(), func(b *testing.B) {
			p := newBuilder("mlp", 9).train(options{batch: 128, dims: []int{784, 512, 512, 10}}).plan(b, true)
			r := newRig(b, p, Config{Compute: compute}, program.Env{})
			t, err := r.Profile(100)
			if err != nil {
				b.Fatal(err)
			}
			b.Log(t.String())
			for b.Loop() {
				if err := r.Run(); err != nil {
					b.Fatal(err)
				}
			}
			if err := r.Wait(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
