package reduce_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"github.com/symgrad/symgrad/tensor"
)

// Bytes are those read from all sources and written once.
func BenchmarkInto(b *testing.B) {
	for _, red := range []dist.RedKind{dist.RedSum, dist.RedAvg, dist.RedMax, dist.RedPreMulSum} {
		for _, dt := range []tensor.DType{tensor.F32, tensor.F64, tensor.BF16, tensor.F16, tensor.I8} {
			for _, ranks := range []int{2, 4} {
				for _, n := range []int{1 << 10, 1 << 18} {
					b.Run(fmt.Sprintf("%v/%v/%d/%dB", red, dt, ranks, n*dt.Size()), func(b *testing.B) {
						rng := rand.New(rand.NewPCG(1, 1))
						_, srcs := sources(b, rng, dt, ranks, n)
						scalars := random(rng, dt, ranks)
						dst := buffer(b, dt, make([]uint64, n))
						b.SetBytes(int64((ranks + 1) * n * dt.Size()))
						b.ReportAllocs()
						for b.Loop() {
							if err := reduce.Into(dst, srcs, red, scalars); err != nil {
								b.Fatal(err)
							}
						}
					})
				}
			}
		}
	}
}
