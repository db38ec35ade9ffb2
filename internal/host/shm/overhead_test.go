package shm

import (
	"sync/atomic"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/asym"
	"github.com/symgrad/symgrad/tensor"
)

// BenchmarkOverhead is a small allreduce of one rank: the code path without a wait.
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

// BenchmarkSmallestSum splits an allreduce of 8 B by two ranks with a core each into its parts: two
// cores that only exchange a line each, what the transport does around that, and what the group
// does around it. The differences are the parts.
func BenchmarkSmallestSum(b *testing.B) {
	b.Run("exchange", func(b *testing.B) {
		twoCores(b, func(t *Transport, _ *dist.Group, _ tensor.Buffer, n int) error {
			own, other := t.ctl.tree(t.rank), t.ctl.tree(1-t.rank) // of no use to two ranks
			for i := range uint64(n) {
				asym.Store(own, i+1)
				for atomic.LoadUint64(other) < i+1 {
				}
			}
			return nil
		})
	})
	b.Run("transport", func(b *testing.B) {
		twoCores(b, func(t *Transport, _ *dist.Group, x tensor.Buffer, n int) error {
			op := dist.Op{Kind: dist.KindAllReduce, Count: x.Len(), Dst: x, Src: x}
			op.Memo = t.plan(&op)
			t.eager = true
			for range n {
				if err := t.runPair(&op); err != nil {
					return err
				}
				t.published = 0
			}
			return nil
		})
	})
	b.Run("group", func(b *testing.B) {
		twoCores(b, func(_ *Transport, g *dist.Group, x tensor.Buffer, n int) error {
			for range n {
				if err := done(g.AllReduce(x, x, dist.Sum)); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// twoCores times f(n) on two ranks of one process, each on its core.
func twoCores(b *testing.B, f func(t *Transport, g *dist.Group, x tensor.Buffer, n int) error) {
	ts, err := Local(2, Mapped, Config{})
	if err != nil {
		b.Fatal(err)
	}
	for _, err := range wrap(ts, func(w *dist.World) error {
		if err := onOwnCore(w.Rank()); err != nil {
			return err
		}
		g := w.Blocking()
		if err := done(g.Barrier()); err != nil {
			return err
		}
		if w.Rank() == 0 {
			b.ResetTimer()
		}
		return f(ts[w.Rank()].(*worldTransport).Transport, g, tensor.Of(make([]float32, 2)), b.N)
	}) {
		if err != nil {
			b.Fatal(err)
		}
	}
}
