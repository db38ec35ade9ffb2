package gpu

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/hostheap"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// allocation is shared by a region and its slices.
type allocation struct {
	freed atomic.Bool
}

// Region implements symmetric.Region in the memory of GPUs. The buffers of Put and Get may be on
// the host or on the group's device. Local and Peer return device memory.
type Region struct {
	heap  *Heap
	of    *allocation
	off   int64 // in the heap
	n     int64
	slice bool // part of its allocation
}

// Local implements symmetric.Region.
func (r *Region) Local() tensor.Buffer {
	if r.of.freed.Load() || r.heap.gate.Closed() {
		return r.none()
	}
	return r.view(r.heap.t.member.Rank)
}

// none returns an empty view, for memory that was freed.
func (r *Region) none() tensor.Buffer {
	b, err := bytesAt(0, 0, r.heap.t.device())
	if err != nil {
		return tensor.Of([]byte(nil)).Untyped()
	}
	return b
}

// view returns rank's part, which this rank can address.
func (r *Region) view(rank int) tensor.Buffer {
	b, err := bytesAt(r.at(rank, 0), r.n, r.heap.t.device())
	if err != nil {
		return r.none()
	}
	return b
}

// bytesAt returns n bytes, without an element type, at an address of a device.
func bytesAt(at uintptr, n int64, on tensor.Device) (tensor.Buffer, error) {
	b, err := tensor.FromPointer(*(*unsafe.Pointer)(unsafe.Pointer(&at)), int(n), tensor.U8, on)
	return b.Untyped(), err
}

// Offset implements symmetric.Region.
func (r *Region) Offset() int64 { return r.off }

// Peer implements symmetric.Region.
//
// Errors: those of the interface; ErrUnsupported for a part that this GPU cannot address.
func (r *Region) Peer(rank int) (tensor.Buffer, error) {
	if err := r.enter("peer", rank, 0, 0); err != nil {
		return r.none(), err
	}
	defer r.heap.gate.Leave()
	return r.view(rank), nil
}

// Slice implements symmetric.Region.
func (r *Region) Slice(at, bytes int64) (symmetric.Region, error) {
	if err := r.enter("slice", r.heap.t.member.Rank, at, bytes); err != nil {
		return nil, err
	}
	defer r.heap.gate.Leave()
	return &Region{heap: r.heap, of: r.of, off: r.off + at, n: bytes, slice: true}, nil
}

// at returns the address of the checked offset at in rank's part.
func (r *Region) at(rank int, at int64) uintptr { return r.heap.slab.Base[rank] + uintptr(r.off+at) }

// enter checks an access of n bytes at offset at of rank's part, and keeps the heap mapped until
// the caller leaves the gate.
func (r *Region) enter(call string, rank int, at, n int64) error {
	h := r.heap
	if !h.gate.Enter() {
		return r.wrong(call, rank, at, n, hostheap.ErrClosed)
	}
	var err error
	switch size := h.t.member.Size; {
	case rank < 0 || rank >= size || at < 0 || n < 0 || n > r.n-at:
		err = hostheap.CheckPlace(rank, size, at, n, r.n)
	case r.of.freed.Load():
		err = hostheap.ErrFreed
	case h.slab.Base[rank] == 0:
		err = fmt.Errorf("%w: this GPU cannot address the memory of rank %d: they are not connected as peers", dist.ErrUnsupported, rank)
	default:
		if err = h.t.ledger.broken(); err == nil {
			return nil
		}
	}
	h.gate.Leave()
	return r.wrong(call, rank, at, n, err)
}

// enterWord calls enter for an atomic access to a word.
func (r *Region) enterWord(call string, rank int, at, n int64) error {
	if err := r.enter(call, rank, at, n); err != nil {
		return err
	}
	err := hostheap.CheckWord(r.off+at, n)
	if err == nil {
		err = r.heap.t.tools.kernels.err
	}
	if err != nil {
		r.heap.gate.Leave()
		return r.wrong(call, rank, at, n, err)
	}
	return nil
}

// enterBuffer calls enter for a transfer of all of b.
func (r *Region) enterBuffer(call string, rank int, at int64, b tensor.Buffer) error {
	if err := hostheap.CheckBuffer(b, r.heap.t.device()); err != nil {
		return r.wrong(call, rank, at, b.Bytes(), err)
	}
	return r.enter(call, rank, at, b.Bytes())
}

func (r *Region) wrong(call string, rank int, at, n int64, err error) error {
	p := &r.heap.t.member
	return &symmetric.AccessError{
		Call: call, Rank: p.Rank, Size: p.Size, Peer: rank, Offset: r.off, Extent: r.n, At: at, Bytes: n, Err: err,
	}
}
