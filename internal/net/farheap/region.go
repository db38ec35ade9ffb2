package farheap

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/hostheap"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Region implements symmetric.Region.
type Region struct {
	heap  *Heap
	of    *allocation
	off   int64 // in the heap
	n     int64
	slice bool // a part of its allocation
}

// Local implements symmetric.Region.
func (r *Region) Local() tensor.Buffer {
	if r.of.freed.Load() || r.heap.gate.Closed() {
		return none()
	}
	return tensor.Of(r.heap.own[r.off : r.off+r.n : r.off+r.n]).Untyped()
}

// Offset implements symmetric.Region.
func (r *Region) Offset() int64 { return r.off }

// Peer implements symmetric.Region.
//
// Errors: those of symmetric.Region; dist.ErrUnsupported for a far rank.
func (r *Region) Peer(rank int) (tensor.Buffer, error) {
	if err := r.enter("peer", rank, 0, 0); err != nil {
		return none(), err
	}
	defer r.heap.gate.Leave()
	inner := r.heap.near[rank]
	if inner < 0 {
		return none(), r.wrong("peer", rank, 0, 0,
			fmt.Errorf("%w: rank %d is on another host; use Get and Put", dist.ErrUnsupported, rank))
	}
	whole, err := r.heap.whole.Peer(inner)
	if err == nil {
		whole, err = whole.Slice(int(r.off), int(r.off+r.n))
	}
	if err != nil {
		return none(), r.wrong("peer", rank, 0, 0, r.heap.innerError(err))
	}
	return whole.Untyped(), nil
}

// Slice implements symmetric.Region.
func (r *Region) Slice(at, bytes int64) (symmetric.Region, error) {
	if err := r.enter("slice", r.heap.cfg.Rank, at, bytes); err != nil {
		return nil, err
	}
	defer r.heap.gate.Leave()
	return &Region{heap: r.heap, of: r.of, off: r.off + at, n: bytes, slice: true}, nil
}

// enter checks an access of n bytes at offset at of rank's part, and keeps the heap open until the
// gate is left.
func (r *Region) enter(call string, rank int, at, n int64) error {
	h := r.heap
	if !h.gate.Enter() {
		return r.wrong(call, rank, at, n, hostheap.ErrClosed)
	}
	err := hostheap.CheckPlace(rank, h.cfg.Size, at, n, r.n)
	if err == nil && r.of.freed.Load() {
		err = hostheap.ErrFreed
	}
	if err == nil {
		err = h.failed()
	}
	if err != nil {
		h.gate.Leave()
		return r.wrong(call, rank, at, n, err)
	}
	return nil
}

// enterWord is enter for a word that is accessed atomically.
func (r *Region) enterWord(call string, rank int, at, n int64) error {
	if err := r.enter(call, rank, at, n); err != nil {
		return err
	}
	err := hostheap.CheckWord(r.off+at, n)
	if err != nil {
		r.heap.gate.Leave()
		err = r.wrong(call, rank, at, n, err)
	}
	return err
}

// enterBuffer is enter for a transfer of the whole of b.
func (r *Region) enterBuffer(call string, rank int, at int64, b tensor.Buffer) error {
	if err := hostheap.CheckBuffer(b, tensor.Host); err != nil {
		return r.wrong(call, rank, at, b.Bytes(), err)
	}
	return r.enter(call, rank, at, b.Bytes())
}

// enterStrided is enter for a strided transfer between b and the region. Returns: its extent in the
// region in bytes.
func (r *Region) enterStrided(call string, rank int, at int64, b tensor.Buffer, s symmetric.Strides) (int64, error) {
	if err := hostheap.CheckBuffer(b, tensor.Host); err != nil {
		return 0, r.wrong(call, rank, at, b.Bytes(), err)
	}
	there, err := hostheap.CheckStrides(b, s)
	if err != nil {
		return 0, r.wrong(call, rank, at, there, err)
	}
	return there, r.enter(call, rank, at, there)
}

// done leaves the gate and returns the error of a checked access.
func (r *Region) done(call string, rank int, at, n int64, err error) error {
	if err != nil {
		if r.heap.near[rank] >= 0 {
			err = r.heap.innerError(err)
		}
		err = r.wrong(call, rank, at, n, err)
	}
	r.heap.gate.Leave()
	return err
}

func (r *Region) wrong(call string, rank int, at, n int64, err error) error {
	return &symmetric.AccessError{
		Call: call, Rank: r.heap.cfg.Rank, Size: r.heap.cfg.Size, Peer: rank, Offset: r.off, Extent: r.n, At: at, Bytes: n, Err: err,
	}
}
