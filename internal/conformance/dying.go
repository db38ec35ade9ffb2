package conformance

import (
	"math"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// dying is a transport over a group that dies instead of starting an operation. Any world can thus
// get a rank that dies at a known operation.
type dying struct {
	g   *dist.Group
	op  uint64 // number of the first operation that it does not start
	die func() // does not return
}

// dyingWorld returns w with a rank that dies when it would start operation op, counted from 1. It
// owns w.
func dyingWorld(w *dist.World, op uint64, die func()) (*dist.World, error) {
	return dist.NewWorld(&dying{w.Group, op, die}, w.Local(), 0, nil)
}

// Info implements dist.Transport.
func (d *dying) Info() dist.Info {
	return dist.Info{Rank: d.g.Rank(), Size: d.g.Size(), Device: d.g.Device(), Backend: d.g.Backend(), Ranks: d.g.Ranks()}
}

// Broken returns why the group is broken.
func (d *dying) Broken() error { return d.g.Err() }

// NewStream returns the group's own stream.
func (d *dying) NewStream() (dist.Stream, error) { return d.g.Stream(), nil }

// Start implements dist.Transport.
func (d *dying) Start(op dist.Op, s dist.Stream) (dist.Work, error) {
	if op.Seq >= d.op {
		d.die()
	}
	g := d.g.On(s)
	if op.Kind != dist.KindBatch {
		return again(g, &op)
	}
	return g.Batch(func(b *dist.Group) error {
		for i := range op.Ops {
			if _, err := again(b, &op.Ops[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// again issues op on g.
func again(g *dist.Group, op *dist.Op) (dist.Work, error) {
	if op.Symmetric {
		g = g.With(dist.Hints{Symmetric: true})
	}
	if op.Timed {
		g = g.Timed()
	}
	switch g = g.With(dist.Hints{Name: op.Name}); op.Kind {
	case dist.KindSend:
		return g.Send(op.Src, op.Peer)
	case dist.KindRecv:
		return g.Recv(op.Dst, op.Peer)
	}
	dst, src := op.Dst, op.Src
	if op.Kind == dist.KindBarrier || op.Kind == dist.KindSync {
		dst, src = tensor.Buffer{}, tensor.Buffer{}
	}
	return issue(g, op.Kind, dst, src, op.Red, op.Root)
}

// Split implements dist.Transport. The part does not die by itself.
func (d *dying) Split(color, key int) (dist.Transport, error) {
	g, err := d.g.Split(color, key)
	if g == nil || err != nil {
		return nil, err
	}
	return &dying{g: g, op: math.MaxUint64}, nil
}

// Heap implements dist.Transport.
func (d *dying) Heap(bytes int64) (symmetric.Heap, error) { return d.g.Heap(bytes) }

// Abort implements dist.Transport.
func (d *dying) Abort(cause error) error { return d.g.Abort(cause) }

// Close implements dist.Transport.
func (d *dying) Close() error { return d.g.Close() }
