package hostheap

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// Put implements symmetric.Region.
func (r *Region) Put(rank int, at int64, src tensor.Buffer) error { return r.put("put", rank, at, src) }

// PutNBI implements symmetric.Region. It is complete when it returns.
func (r *Region) PutNBI(rank int, at int64, src tensor.Buffer) error {
	return r.put("put nbi", rank, at, src)
}

func (r *Region) put(call string, rank int, at int64, src tensor.Buffer) error {
	if err := r.enterBuffer(call, rank, at, src); err != nil {
		return err
	}
	defer r.heap.gate.Leave()
	if n := src.Bytes(); n > 0 {
		if !moveWord(r.at(rank, at), src.Pointer(), n, src.DType(), true) {
			copy(r.bytes(rank)[at:], src.Raw())
		}
		r.heap.host.Ring(rank, r.off+at, n)
	}
	return nil
}

// Get implements symmetric.Region.
func (r *Region) Get(dst tensor.Buffer, rank int, at int64) error { return r.get("get", dst, rank, at) }

// GetNBI implements symmetric.Region. It is complete when it returns.
func (r *Region) GetNBI(dst tensor.Buffer, rank int, at int64) error {
	return r.get("get nbi", dst, rank, at)
}

func (r *Region) get(call string, dst tensor.Buffer, rank int, at int64) error {
	if err := r.enterBuffer(call, rank, at, dst); err != nil {
		return err
	}
	defer r.heap.gate.Leave()
	if n := dst.Bytes(); n > 0 && !moveWord(dst.Pointer(), r.at(rank, at), n, dst.DType(), false) {
		copy(dst.Raw(), r.bytes(rank)[at:])
	}
	return nil
}

// moveWord moves a single aligned element of 4 or 8 bytes atomically, because the peer may be
// waiting for it or changing it by an atomic. It returns false for other transfers. The side
// outside of the heap is plain memory.
func moveWord(dst, src unsafe.Pointer, n int64, dt tensor.DType, put bool) bool {
	if int64(dt.Size()) != n || n < 4 {
		return false
	}
	shared := src
	if put {
		shared = dst
	}
	if uintptr(shared)&uintptr(n-1) != 0 {
		return false
	}
	switch {
	case n == 8 && put:
		atomic.StoreUint64((*uint64)(dst), *(*uint64)(src))
	case n == 8:
		*(*uint64)(dst) = atomic.LoadUint64((*uint64)(src))
	case put:
		atomic.StoreUint32((*uint32)(dst), *(*uint32)(src))
	default:
		*(*uint32)(dst) = atomic.LoadUint32((*uint32)(src))
	}
	return true
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
	defer r.heap.gate.Leave()
	p := r.at(rank, at)
	switch {
	case n == 8 && uintptr(p)&7 == 0:
		atomic.StoreUint64((*uint64)(p), bits)
	case n == 4 && uintptr(p)&3 == 0:
		atomic.StoreUint32((*uint32)(p), uint32(bits))
	default:
		storeBytes(unsafe.Slice((*byte)(p), n), bits)
	}
	r.heap.host.Ring(rank, r.off+at, n)
	return nil
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
	defer r.heap.gate.Leave()
	p := r.at(rank, at)
	switch {
	case n == 8 && uintptr(p)&7 == 0:
		return atomic.LoadUint64((*uint64)(p)), nil
	case n == 4 && uintptr(p)&3 == 0:
		return uint64(atomic.LoadUint32((*uint32)(p))), nil
	}
	return loadBytes(unsafe.Slice((*byte)(p), n)), nil
}

// storeBytes stores an element of any size at any address.
func storeBytes(b []byte, bits uint64) {
	switch len(b) {
	case 1:
		b[0] = byte(bits)
	case 2:
		binary.NativeEndian.PutUint16(b, uint16(bits))
	case 4:
		binary.NativeEndian.PutUint32(b, uint32(bits))
	default:
		binary.NativeEndian.PutUint64(b, bits)
	}
}

// loadBytes is the inverse of storeBytes.
func loadBytes(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(b))
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint64(b)
}

// IPut implements symmetric.Region.
func (r *Region) IPut(rank int, at int64, src tensor.Buffer, s symmetric.Strides) error {
	n, err := r.enterStrided("iput", rank, at, src, s)
	if err != nil {
		return err
	}
	defer r.heap.gate.Leave()
	if n > 0 {
		size := src.DType().Size()
		MoveStrided(r.at(rank, at), s.Region*size, src.Pointer(), s.Buffer*size, s.Count, size)
		r.heap.host.Ring(rank, r.off+at, n)
	}
	return nil
}

// IGet implements symmetric.Region.
func (r *Region) IGet(dst tensor.Buffer, rank int, at int64, s symmetric.Strides) error {
	n, err := r.enterStrided("iget", rank, at, dst, s)
	if err != nil {
		return err
	}
	defer r.heap.gate.Leave()
	if n > 0 {
		size := dst.DType().Size()
		MoveStrided(dst.Pointer(), s.Buffer*size, r.at(rank, at), s.Region*size, s.Count, size)
	}
	return nil
}

// enterStrided is enter for a strided transfer between b and the region. Returns: its extent in the
// region in bytes.
func (r *Region) enterStrided(call string, rank int, at int64, b tensor.Buffer, s symmetric.Strides) (int64, error) {
	if err := CheckBuffer(b, tensor.Host); err != nil {
		return 0, r.wrong(call, rank, at, b.Bytes(), err)
	}
	there, err := CheckStrides(b, s)
	if err != nil {
		return 0, r.wrong(call, rank, at, there, err)
	}
	return there, r.enter(call, rank, at, there)
}

// MoveStrided copies count elements of size bytes; the steps are in bytes. Byte arrays have no
// alignment and are moved as one word each.
func MoveStrided(dst unsafe.Pointer, dstStep int, src unsafe.Pointer, srcStep int, count, size int) {
	for i := range count {
		d, s := unsafe.Add(dst, i*dstStep), unsafe.Add(src, i*srcStep)
		switch size {
		case 1:
			*(*byte)(d) = *(*byte)(s)
		case 2:
			*(*[2]byte)(d) = *(*[2]byte)(s)
		case 4:
			*(*[4]byte)(d) = *(*[4]byte)(s)
		default:
			*(*[8]byte)(d) = *(*[8]byte)(s)
		}
	}
}
