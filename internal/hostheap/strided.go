package hostheap

import (
	"unsafe"

	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

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
