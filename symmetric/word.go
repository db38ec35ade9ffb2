package symmetric

import (
	"unsafe"

	"github.com/symgrad/symgrad/tensor"
)

// P stores one element at offset at of rank's part. The store of a 4 or 8-byte word at a multiple
// of its size is atomic, so a peer may wait for it.
func P[T tensor.Element](r Region, rank int, at int64, v T) error {
	return r.PutWord(rank, at, tensor.TypeOf[T](), bitsOf(v))
}

// G returns the element at offset at of rank's part.
func G[T tensor.Element](r Region, rank int, at int64) (T, error) {
	bits, err := r.GetWord(rank, at, tensor.TypeOf[T]())
	return fromBits[T](bits), err
}

// bitsOf returns the bits of v in the low bytes.
func bitsOf[T tensor.Element](v T) uint64 {
	p := unsafe.Pointer(&v)
	switch unsafe.Sizeof(v) {
	case 1:
		return uint64(*(*uint8)(p))
	case 2:
		return uint64(*(*uint16)(p))
	case 4:
		return uint64(*(*uint32)(p))
	}
	return *(*uint64)(p)
}

// fromBits is the inverse of bitsOf.
func fromBits[T tensor.Element](bits uint64) T {
	var v T
	p := unsafe.Pointer(&v)
	switch unsafe.Sizeof(v) {
	case 1:
		*(*uint8)(p) = uint8(bits)
	case 2:
		*(*uint16)(p) = uint16(bits)
	case 4:
		*(*uint32)(p) = uint32(bits)
	default:
		*(*uint64)(p) = bits
	}
	return v
}
