package hostheap

import (
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// allocation is the state that a region shares with its slices.
type allocation struct {
	freed atomic.Bool
}

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
	return tensor.Of(r.bytes(r.heap.rank)).Untyped()
}

// Offset implements symmetric.Region.
func (r *Region) Offset() int64 { return r.off }

// Peer implements symmetric.Region.
func (r *Region) Peer(rank int) (tensor.Buffer, error) {
	if err := r.enter("peer", rank, 0, 0); err != nil {
		return none(), err
	}
	defer r.heap.gate.Leave()
	return tensor.Of(r.bytes(rank)).Untyped(), nil
}

// Slice implements symmetric.Region.
func (r *Region) Slice(at, bytes int64) (symmetric.Region, error) {
	if err := r.enter("slice", r.heap.rank, at, bytes); err != nil {
		return nil, err
	}
	defer r.heap.gate.Leave()
	return &Region{heap: r.heap, of: r.of, off: r.off + at, n: bytes, slice: true}, nil
}

func (r *Region) bytes(rank int) []byte {
	return r.heap.parts[rank][r.off : r.off+r.n : r.off+r.n]
}

// at returns the address of offset at, already checked, of rank's part.
func (r *Region) at(rank int, at int64) unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(r.heap.parts[rank])), r.off+at)
}

// enter checks an access of n bytes at offset at of rank's part, and keeps the heap mapped until
// the gate is left.
func (r *Region) enter(call string, rank int, at, n int64) error {
	h := r.heap
	if !h.gate.Enter() {
		return r.wrong(call, rank, at, n, ErrClosed)
	}
	var err error
	switch {
	case rank < 0 || rank >= len(h.parts) || at < 0 || n < 0 || n > r.n-at: // no call in the valid case
		err = CheckPlace(rank, len(h.parts), at, n, r.n)
	case r.of.freed.Load():
		err = ErrFreed
	default:
		if err = h.host.Alive(); err == nil {
			return nil
		}
	}
	h.gate.Leave()
	return r.wrong(call, rank, at, n, err)
}

// enterWord is enter for a word that is accessed atomically.
func (r *Region) enterWord(call string, rank int, at, n int64) error {
	if err := r.enter(call, rank, at, n); err != nil {
		return err
	}
	err := CheckWord(r.off+at, n)
	if err != nil {
		r.heap.gate.Leave()
		err = r.wrong(call, rank, at, n, err)
	}
	return err
}

// enterBuffer is enter for a transfer of the whole of b.
func (r *Region) enterBuffer(call string, rank int, at int64, b tensor.Buffer) error {
	if b.IsZero() || b.Device() != tensor.Host { // no call in the valid case
		return r.wrong(call, rank, at, b.Bytes(), CheckBuffer(b, tensor.Host))
	}
	return r.enter(call, rank, at, b.Bytes())
}

func (r *Region) wrong(call string, rank int, at, n int64, err error) error {
	h := r.heap
	return &symmetric.AccessError{
		Call: call, Rank: h.rank, Size: len(h.parts), Peer: rank, Offset: r.off, Extent: r.n, At: at, Bytes: n, Err: err,
	}
}
