package cudagen

import (
	"fmt"
	"math"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/tensor"
)

// BenchmarkAttention measures the kernels of causal attention one by one. TFLOPS counts the
// products of the half that is computed: two in the forward pass, four in blocks of keys, and three
// in blocks of queries.
func BenchmarkAttention(b *testing.B) {
	for _, op := range []program.Attention{
		{Batch: 8, Heads: 12, M: 512, N: 512, Depth: 64, Scale: 0.125},
		{Batch: 2, Heads: 12, M: 2048, N: 2048, Depth: 64, Scale: 0.125},
		{Batch: 1, Heads: 12, M: 4096, N: 4096, Depth: 64, Scale: 0.125},
		{Batch: 2, Heads: 8, M: 2048, N: 2048, Depth: 128, Scale: 0.09},
		{Batch: 16, Heads: 8, M: 128, N: 128, Depth: 32, Scale: 0.18},
	} {
		v := cudatest.Devices(b, 1)[0]
		x := newBuilder("attention")
		x.attend(op, tensor.BF16, math.Inf(-1), true)
		l := x.load(b, v, x.target())
		mask := make([]byte, 4*op.M*op.N)
		for i := range op.M {
			for j := i + 1; j < op.N; j++ {
				program.SetElement(tensor.F32, mask, i*op.N+j, math.Inf(-1))
			}
		}
		l.write(b, l.at[x.p.Steps[0].In[0].Value], mask)
		l.run(b)
		products := map[string]int{"forward": 2, "keys": 4, "queries": 3}
		for i := range x.p.Steps {
			for k, kernel := range l.steps[i].Kernels {
				name := "forward"
				switch x.p.Steps[i].Op.(type) {
				case *program.AttentionGrad:
					name = []string{"keys", "queries"}[k]
				case *program.Reduce:
					continue
				}
				b.Run(fmt.Sprintf("%dx%dx%dx%d/%s", op.Batch, op.Heads, op.M, op.Depth, name), func(b *testing.B) {
					var args cuda.Args
					for _, a := range kernel.Args {
						l.add(&args, a)
					}
					const launches = 20
					for b.Loop() {
						for range launches {
							if err := l.kernel[kernel.Name].Launch(l.s, cuda.Launch{Grid: kernel.Grid, Block: kernel.Block, Shared: kernel.Shared}, &args); err != nil {
								b.Fatal(err)
							}
						}
						if err := l.s.Synchronize(); err != nil {
							b.Fatal(err)
						}
					}
					flops := float64(products[name]*op.Batch*op.Heads*op.Depth) * float64(op.M) * float64(op.N)
					b.ReportMetric(flops*launches*float64(b.N)/b.Elapsed().Seconds()/1e12, "TFLOPS")
				})
			}
		}
	}
}
