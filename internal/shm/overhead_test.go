package shm

import (
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// BenchmarkOverhead is a small allreduce of one rank: what is left of the way when nobody has to be waited for.
func BenchmarkOverhead(b *testing.B) {
	b.Run("barrier", func(b *testing.B) {
		overhead(b, func(g *dist.Group, _ tensor.Buffer) (dist.Work, error) { return g.Barrier() })
	})
	b.Run("allreduce", func(b *testing.B) {
		overhead(b, func(g *dist.Group, x tensor.Buffer) (dist.Work, error) { return g.AllReduce(x, x, dist.Max) })
	})
}

func overhead(b *testing.B, op func(g *dist.Group, x tensor.Buffer) (dist.Work, error)) {
	ts, err := Local(1, Mapped, Config{})
	if err != nil {
		b.Fatal(err)
	}
	for _, err := range wrap(ts, func(w *dist.World) error {
		g := w.Blocking()
		buf := tensor.Of(make([]float32, 2))
		for b.Loop() {
			if err := done(op(g, buf)); err != nil {
				return err
			}
		}
		return nil
	}) {
		if err != nil {
			b.Fatal(err)
		}
	}
}
