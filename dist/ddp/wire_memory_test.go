package ddp

import (
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/tensor"
)

// quiet is a loner that takes no memory to queue an operation.
type quiet struct{ loner }

func (q *quiet) Start(op dist.Op, s dist.Stream) (dist.Work, error) {
	return s.(*dist.HostStream).Submit(q, op, 0)
}

// TestWireDoesNotAllocate has a world of one rank whose collectives copy, so that all that is
// counted is ddp's.
func TestWireDoesNotAllocate(t *testing.T) {
	for name, cfg := range map[string]Config{
		"plain":        {},
		"bf16":         {WireDType: tensor.BF16},
		"f16 feedback": {WireDType: tensor.F16, ErrorFeedback: true},
		"powersgd":     {Hook: compress.PowerSGD{Rank: 2}},
		"predivide":    {Average: PreDivide, Factor: 2},
		"virtual":      {VirtualRanks: 1},
		"local":        {LocalSteps: 2},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := dist.NewWorld(&quiet{}, dist.LocalInfo{}, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			g := gorgonia.NewGraph()
			m := gorgonia.NewMatrix(g, gorgonia.Float32, gorgonia.WithName("m"), gorgonia.WithShape(30, 40), gorgonia.WithValue(gtensor.New(
				gtensor.WithShape(30, 40), gtensor.Of(gtensor.Float32))))
			cost := gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(m))))
			d, err := Attach(w, cost, gorgonia.Nodes{m}, cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			b := d.buckets[0]
			step := func() {
				d.run = d.nextRun()
				if err := d.wire.weigh(); err != nil {
					t.Fatal(err)
				}
				work, err := d.wire.start(b)
				if err == nil {
					err = work.Wait()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			step()
			if n := testing.AllocsPerRun(50, step); n != 0 {
				t.Errorf("%v allocations in a step", n)
			}
		})
	}
}

// BenchmarkWire measures the cost of a bucket of 4 MiB of float32, without its sum.
func BenchmarkWire(b *testing.B) {
	const n = 1 << 20
	for _, h := range []compress.Hook{
		compress.Cast{DType: tensor.BF16}, compress.Cast{DType: tensor.BF16, ErrorFeedback: true}, compress.Cast{DType: tensor.F16}, compress.PowerSGD{Rank: 4},
	} {
		b.Run(h.String(), func(b *testing.B) {
			c, err := h.Codec(compress.Bucket{DType: tensor.F32, Elements: n, Params: []compress.Param{{Name: "w", Shape: []int{1024, 1024}}}})
			if err != nil {
				b.Fatal(err)
			}
			a := messageMemory{raw: tensor.Of(make([]uint64, messageBytes(c.Messages())/8))}
			messages := make([]tensor.Buffer, len(c.Messages()))
			if err := a.carve(messages, c.Messages()); err != nil {
				b.Fatal(err)
			}
			grad := make([]float32, n)
			for i := range grad {
				grad[i] = float32(i%1000) / 1000
			}
			bucket := tensor.Of(grad)
			b.SetBytes(4 * n)
			for b.Loop() {
				for r := range messages {
					if err := c.Compress(r, 0.999, bucket, messages); err != nil {
						b.Fatal(err)
					}
				}
				if err := c.Decompress(bucket, messages); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
