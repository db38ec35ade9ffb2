package main

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// imaginedWorld returns rank 0 of a world whose other ranks do not exist. Collectives complete at
// once, as if all ranks had this rank's data. Memory layouts for so many ranks are real, results
// are not.
func imaginedWorld(ranks int) (*dist.World, error) {
	t := &imagined{info: dist.Info{Size: ranks, Device: tensor.Host, Backend: "plan"}}
	for r := range ranks {
		t.info.Ranks = append(t.info.Ranks, r)
	}
	return dist.NewWorld(t, dist.LocalInfo{Size: ranks, Launcher: "none", Job: "plan"}, 0, nil)
}

// imagined is the transport of an imaginedWorld. It is a dist.Runner.
type imagined struct{ info dist.Info }

// Info implements dist.Transport.
func (t *imagined) Info() dist.Info { return t.info }

// Start implements dist.Transport.
func (t *imagined) Start(op dist.Op, s dist.Stream) (dist.Work, error) {
	h, ok := s.(*dist.HostStream)
	if !ok {
		return dist.Work{}, dist.ErrUnsupported
	}
	return h.Submit(t, op, 0)
}

// Run copies this rank's data as if all ranks had sent it.
func (t *imagined) Run(op *dist.Op, _ uint64) error {
	if op.Dst.IsZero() || op.Src.IsZero() {
		return nil
	}
	to, from := op.Dst.Raw(), op.Src.Raw()
	for len(to) > 0 && len(from) > 0 { // an allgather repeats src; a reducescatter takes its first part
		n := copy(to, from)
		to = to[n:]
	}
	return nil
}

// Split implements dist.Transport. The group has all ranks.
func (t *imagined) Split(color, _ int) (dist.Transport, error) {
	if color < 0 {
		return nil, nil
	}
	return t, nil
}

// Heap implements dist.Transport. Missing peers have no memory.
func (t *imagined) Heap(int64) (symmetric.Heap, error) { return nil, dist.ErrUnsupported }

// Abort implements dist.Transport.
func (t *imagined) Abort(error) error { return nil }

// Close implements dist.Transport.
func (t *imagined) Close() error { return nil }
