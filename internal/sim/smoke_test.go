package sim_test

import (
	"testing"
	"sync"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/tensor"
)

func TestSmoke(t *testing.T) {
	ws, err := sim.New(4, sim.Config{})
	if err != nil { t.Fatal(err) }
	var wg sync.WaitGroup
	for _, w := range ws {
		wg.Go(func() {
			x := []float32{1, 2, float32(w.Rank())}
			k, err := w.AllReduce(tensor.Of(x), tensor.Of(x), dist.Sum)
			if err != nil { t.Error(err); return }
			if err := k.Wait(); err != nil { t.Error(err) }
			t.Log(x)
			g, err := w.Split(w.Rank()%2, 0)
			if err != nil { t.Error(err) }
			k, err = g.Broadcast(tensor.Of(x), tensor.Of(x), 1)
			if err != nil { t.Error(err); return }
			if err := k.Wait(); err != nil { t.Error(err) }
			k, _ = g.Batch(func(g *dist.Group) error {
				if _, err := g.Send(tensor.Of(x[:1]), 1-g.Rank()); err != nil { return err }
				_, err := g.Recv(tensor.Of(x[1:2]), 1-g.Rank())
				return err
			})
			if err := k.Wait(); err != nil { t.Error(err) }
			h, err := w.Heap(1000)
			if err != nil { t.Error(err) }
			r, err := h.Alloc(100)
			if err != nil { t.Error(err) }
			if err := h.Free(r); err != nil { t.Error(err) }
			if err := w.Close(); err != nil { t.Error(err) }
		})
	}
	wg.Wait()
}
