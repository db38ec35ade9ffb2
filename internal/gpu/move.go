package gpu

import (
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/hostheap"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Put implements symmetric.Region.
func (r *Region) Put(rank int, at int64, src tensor.Buffer) error {
	return r.put("put", rank, at, src, true)
}

// PutNBI implements symmetric.Region.
func (r *Region) PutNBI(rank int, at int64, src tensor.Buffer) error {
	return r.put("put nbi", rank, at, src, false)
}

func (r *Region) put(call string, rank int, at int64, src tensor.Buffer, wait bool) error {
	if err := r.enterBuffer(call, rank, at, src); err != nil {
		return err
	}
	defer r.heap.gate.Leave()
	if src.Bytes() == 0 {
		return nil
	}
	// The driver has copied host memory when the call returns, so src may be changed.
	wait = wait && src.Device() != tensor.Host
	err := r.heap.transfer(wait, func() error { return r.queuePut(rank, at, src) })
	return r.failed(call, rank, at, src.Bytes(), err)
}

// queuePut queues a copy of src to offset at of rank's part on the heap's stream.
func (r *Region) queuePut(rank int, at int64, src tensor.Buffer) error {
	h := r.heap
	dst, n := r.at(rank, at), src.Bytes()
	word := single64(src, dst) && h.t.tools.kernels.err == nil
	switch {
	case src.Device() != tensor.Host && word:
		return h.t.tools.kernels.launchStrided(h.args, h.rma, dst, 0, address(src), 0, 1, int(n))
	case src.Device() != tensor.Host:
		return h.rma.Copy(dst, address(src), n)
	case word:
		return h.t.tools.kernels.launchWord(h.args, h.rma, symmetric.OpSet, int(n), dst, loadBits(src.Pointer(), n), 0, 0)
	}
	return h.rma.CopyFromHost(dst, src.Pointer(), n)
}

// single64 reports whether a transfer is one aligned word of 4 or 8 bytes. Such a word is moved by
// one access, because a peer may wait for it.
func single64(b tensor.Buffer, at uintptr) bool {
	n := b.Bytes()
	return b.Len() == 1 && (n == 4 || n == 8) && at&uintptr(n-1) == 0 && address(b)&uintptr(n-1) == 0
}

// loadBits returns the n bytes at p, 4 or 8 and aligned, as a word.
func loadBits(p unsafe.Pointer, n int64) uint64 {
	if n == 8 {
		return *(*uint64)(p)
	}
	return uint64(*(*uint32)(p))
}

// failed returns the error of a call whose transfer returned err.
func (r *Region) failed(call string, rank int, at, n int64, err error) error {
	if err == nil {
		return nil
	}
	return r.wrong(call, rank, at, n, fmt.Errorf("%w: %w", dist.ErrAborted, err))
}

// Get implements symmetric.Region.
func (r *Region) Get(dst tensor.Buffer, rank int, at int64) error {
	return r.get("get", dst, rank, at, true)
}

// GetNBI implements symmetric.Region.
func (r *Region) GetNBI(dst tensor.Buffer, rank int, at int64) error {
	return r.get("get nbi", dst, rank, at, false)
}

func (r *Region) get(call string, dst tensor.Buffer, rank int, at int64, wait bool) error {
	if err := r.enterBuffer(call, rank, at, dst); err != nil {
		return err
	}
	defer r.heap.gate.Leave()
	n := dst.Bytes()
	if n == 0 {
		return nil
	}
	h := r.heap
	err := h.transfer(wait || dst.Device() == tensor.Host, func() error {
		if dst.Device() == tensor.Host {
			return h.rma.CopyToHost(dst.Pointer(), r.at(rank, at), n)
		}
		return h.rma.Copy(address(dst), r.at(rank, at), n)
	})
	return r.failed(call, rank, at, n, err)
}

// IPut implements symmetric.Region.
func (r *Region) IPut(rank int, at int64, src tensor.Buffer, s symmetric.Strides) error {
	return r.strided("iput", rank, at, src, s, true)
}

// IGet implements symmetric.Region.
func (r *Region) IGet(dst tensor.Buffer, rank int, at int64, s symmetric.Strides) error {
	return r.strided("iget", rank, at, dst, s, false)
}

func (r *Region) strided(call string, rank int, at int64, b tensor.Buffer, s symmetric.Strides, put bool) error {
	n, err := r.enterStrided(call, rank, at, b, s)
	if err != nil {
		return err
	}
	h := r.heap
	defer h.gate.Leave()
	if n == 0 {
		return nil
	}
	size := b.DType().Size()
	step := s.Region * size
	there := r.at(rank, at)
	err = h.transfer(true, func() error {
		if b.Device() == tensor.Host {
			return r.stridedHost(there, step, b, s, put)
		}
		if put {
			return h.t.tools.kernels.launchStrided(h.args, h.rma, there, step, address(b), s.Buffer*size, s.Count, size)
		}
		return h.t.tools.kernels.launchStrided(h.args, h.rma, address(b), s.Buffer*size, there, step, s.Count, size)
	})
	return r.failed(call, rank, at, n, err)
}

// enterStrided calls enter for a strided transfer between b and the region. Returns: the bytes it
// spans in the region.
func (r *Region) enterStrided(call string, rank int, at int64, b tensor.Buffer, s symmetric.Strides) (int64, error) {
	if err := hostheap.CheckBuffer(b, r.heap.t.device()); err != nil {
		return 0, r.wrong(call, rank, at, b.Bytes(), err)
	}
	there, err := hostheap.CheckStrides(b, s)
	if err != nil {
		return 0, r.wrong(call, rank, at, there, err)
	}
	if err := r.enter(call, rank, at, there); err != nil {
		return 0, err
	}
	if err := r.heap.t.tools.kernels.err; err != nil {
		r.heap.gate.Leave()
		return 0, r.wrong(call, rank, at, there, err)
	}
	return there, nil
}

// stridedHost moves data between a buffer on the host and the device, through pinned memory that
// the kernel reads and writes.
func (r *Region) stridedHost(there uintptr, step int, b tensor.Buffer, s symmetric.Strides, put bool) error {
	h := r.heap
	if err := h.drain(h.rma); err != nil { // the staging may hold the word of a PutWord
		return err
	}
	size := b.DType().Size()
	chunk := stagingBytes / size
	stage, staged := pinned(h.staging, stagingAt), h.staging.Device()+stagingAt
	for first := 0; first < s.Count; first += chunk {
		n := min(chunk, s.Count-first)
		here := unsafe.Add(b.Pointer(), first*s.Buffer*size)
		from, to := there+uintptr(first)*uintptr(step), staged
		if put {
			hostheap.MoveStrided(stage, size, here, s.Buffer*size, n, size)
			if err := h.t.tools.kernels.launchStrided(h.args, h.rma, from, step, to, size, n, size); err != nil {
				return err
			}
		} else if err := h.t.tools.kernels.launchStrided(h.args, h.rma, to, size, from, step, n, size); err != nil {
			return err
		}
		if err := h.drain(h.rma); err != nil {
			return err
		}
		if !put {
			hostheap.MoveStrided(here, s.Buffer*size, stage, size, n, size)
		}
	}
	return nil
}

// PutWord implements symmetric.Region.
func (r *Region) PutWord(rank int, at int64, dt tensor.DType, bits uint64) error {
	n := int64(dt.Size())
	if n == 0 {
		return r.wrong("p", rank, at, 0, fmt.Errorf("%w: %v", dist.ErrDType, dt))
	}
	if err := r.enter("p", rank, at, n); err != nil {
		return err
	}
	h := r.heap
	defer h.gate.Leave()
	p := r.at(rank, at)
	err := h.transfer(false, func() error {
		if n >= 4 && p&uintptr(n-1) == 0 && h.t.tools.kernels.err == nil {
			return h.t.tools.kernels.launchWord(h.args, h.rma, symmetric.OpSet, int(n), p, bits, 0, 0)
		}
		if err := h.drain(h.rma); err != nil { // the staging may be in use
			return err
		}
		*(*uint64)(pinned(h.staging, stagingAt)) = bits // little-endian: its first bytes are the element
		return h.rma.Copy(p, h.staging.Device()+stagingAt, n)
	})
	return r.failed("p", rank, at, n, err)
}

// GetWord implements symmetric.Region.
func (r *Region) GetWord(rank int, at int64, dt tensor.DType) (uint64, error) {
	n := int64(dt.Size())
	if n == 0 {
		return 0, r.wrong("g", rank, at, 0, fmt.Errorf("%w: %v", dist.ErrDType, dt))
	}
	if err := r.enter("g", rank, at, n); err != nil {
		return 0, err
	}
	h := r.heap
	defer h.gate.Leave()
	var bits uint64
	err := h.transfer(true, func() error {
		if err := h.drain(h.rma); err != nil {
			return err
		}
		word := (*uint64)(pinned(h.staging, stagingAt))
		*word = 0
		if err := h.rma.CopyToHost(unsafe.Pointer(word), r.at(rank, at), n); err != nil {
			return err
		}
		if err := h.drain(h.rma); err != nil {
			return err
		}
		bits = *word
		return nil
	})
	return bits, r.failed("g", rank, at, n, err)
}
