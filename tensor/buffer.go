package tensor

import (
	"fmt"
	"math"
	"unsafe"
)

// Buffer describes a run of elements in memory: pointer, length, dtype and device. It is a value
// and owns nothing. The zero Buffer has no elements and no type; collectives take it for a side
// that they do not use on this rank.
type Buffer struct {
	ptr  unsafe.Pointer
	n    int
	bits typeBits
}

// typeBits has the dtype and device of a Buffer, and whether it is untyped, in one word. Every call
// of a collective passes Buffers in registers and compares them with those of the last call.
type typeBits uint64

func typeBitsOf(dt DType, dev Device) typeBits {
	return typeBits(dt) | typeBits(dev.Kind)<<8 | typeBits(uint32(dev.Index))<<32
}

// untyped marks a Buffer of bytes without an element type.
const untyped typeBits = 1 << 16

func (t typeBits) dtype() DType   { return DType(t) }
func (t typeBits) device() Device { return Device{Kind(t >> 8), int(t >> 32)} }

// Of returns the Buffer over the elements of s, in host memory. It aliases s.
func Of[T Element](s []T) Buffer {
	return Buffer{ptr: unsafe.Pointer(unsafe.SliceData(s)), n: len(s), bits: typeBitsOf(TypeOf[T](), Host)}
}

// FromPointer returns the Buffer of n elements of type dt at p on dev.
//
// Owns: the caller keeps the memory alive while the Buffer, or a queued operation on it, is in use.
// Errors: n negative or too large for an address space, an invalid dtype, a nil pointer with n > 0,
// or a pointer that is not aligned to the element; a device with a negative number.
func FromPointer(p unsafe.Pointer, n int, dt DType, dev Device) (Buffer, error) {
	switch {
	case !dt.Valid():
		return Buffer{}, fmt.Errorf("buffer: %v is no element type", dt)
	case n < 0:
		return Buffer{}, fmt.Errorf("buffer: negative length %d", n)
	case n > math.MaxInt/dt.Size():
		return Buffer{}, fmt.Errorf("buffer: %d elements of %d bytes are more than memory holds", n, dt.Size())
	case p == nil && n > 0:
		return Buffer{}, fmt.Errorf("buffer: nil pointer for %d elements", n)
	case uintptr(p)%uintptr(dt.Size()) != 0:
		return Buffer{}, fmt.Errorf("buffer: pointer is not aligned to %d bytes (%v)", dt.Size(), dt)
	case dev.Index < 0 || dev.Index > math.MaxInt32:
		return Buffer{}, fmt.Errorf("buffer: device number %d", dev.Index)
	}
	return Buffer{p, n, typeBitsOf(dt, dev)}, nil
}

// As returns the memory of b as elements of type dt, from its first byte to its last: the typed
// view of a region's bytes. It converts nothing.
//
// Owns: as b. Errors: an invalid dtype, a number of bytes that dt does not divide, or memory that
// is not aligned to dt.
func (b Buffer) As(dt DType) (Buffer, error) {
	size := int64(dt.Size())
	switch {
	case b.IsZero():
		return Buffer{}, fmt.Errorf("buffer: no buffer to view as %v", dt)
	case size > 0 && b.Bytes()%size != 0:
		return Buffer{}, fmt.Errorf("buffer: %d B are not a multiple of %d B (%v): cut them with Slice first", b.Bytes(), size, dt)
	}
	return FromPointer(b.ptr, int(b.Bytes()/max(size, 1)), dt, b.Device())
}

// Untyped returns the memory of b as bytes without an element type. Operations copy and gather them
// like u8 and combine them bit by bit, but arithmetic reductions reject them. The parts of a region
// are untyped, since its elements may have any type; As gives them one.
func (b Buffer) Untyped() Buffer {
	if b.IsZero() {
		return b
	}
	return Buffer{b.ptr, int(b.Bytes()), typeBitsOf(U8, b.Device()) | untyped}
}

// IsUntyped reports whether b has bytes without an element type.
func (b Buffer) IsUntyped() bool { return b.bits&untyped != 0 }

// IsZero reports whether b is the zero Buffer: no type, no elements.
func (b Buffer) IsZero() bool { return b.DType() == Invalid }

// Len returns the number of elements.
func (b Buffer) Len() int { return b.n }

// Bytes returns the number of bytes.
func (b Buffer) Bytes() int64 { return int64(b.n) * int64(b.DType().Size()) }

// DType returns the type of the elements.
func (b Buffer) DType() DType { return b.bits.dtype() }

// Device returns the device of the memory.
func (b Buffer) Device() Device { return b.bits.device() }

// Pointer returns the address of the first element; nil for an empty Buffer over a nil slice.
func (b Buffer) Pointer() unsafe.Pointer { return b.ptr }

// Slice returns elements i to j of b; it aliases b.
//
// Errors: not 0 <= i <= j <= Len.
func (b Buffer) Slice(i, j int) (Buffer, error) {
	if i < 0 || j < i || j > b.n {
		return Buffer{}, fmt.Errorf("buffer: slice [%d:%d] of %d elements", i, j, b.n)
	}
	if i < j { // an empty slice keeps the base, so that no pointer ever points past its allocation
		b.ptr = unsafe.Add(b.ptr, i*b.DType().Size())
	}
	b.n = j - i
	return b, nil
}

// Raw returns the bytes of b, aliased. It is nil for memory that is not on the host.
func (b Buffer) Raw() []byte {
	if b.Device() != Host || b.n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(b.ptr), b.Bytes())
}

// Data returns the elements of b as a slice, aliased.
//
// Errors: b has another type, or is not in host memory.
func Data[T Element](b Buffer) ([]T, error) {
	if want := TypeOf[T](); b.DType() != want {
		if b.IsUntyped() {
			return nil, fmt.Errorf("buffer: bytes without an element type, not %v: take As(%v) of them first", want, want)
		}
		return nil, fmt.Errorf("buffer: holds %v, not %v", b.DType(), want)
	}
	if b.Device() != Host {
		return nil, fmt.Errorf("buffer: is on %v, not in host memory", b.Device())
	}
	if b.n == 0 {
		return nil, nil
	}
	return unsafe.Slice((*T)(b.ptr), b.n), nil
}

// Same reports whether a and b are the same elements: equal address, length, dtype and device.
// Untyped bytes count as u8.
func Same(a, b Buffer) bool {
	a.bits, b.bits = a.bits&^untyped, b.bits&^untyped
	return a == b
}

// Overlap reports whether a and b share at least one byte.
func Overlap(a, b Buffer) bool {
	if a.bits.device() != b.bits.device() || a.n == 0 || b.n == 0 {
		return false
	}
	a0, b0 := uintptr(a.ptr), uintptr(b.ptr)
	return a0 < b0+uintptr(b.Bytes()) && b0 < a0+uintptr(a.Bytes())
}

// String returns a short description for errors: "f32[128] on host".
func (b Buffer) String() string {
	if b.IsZero() {
		return "no buffer"
	}
	if b.IsUntyped() {
		return fmt.Sprintf("%d untyped B on %v", b.n, b.Device())
	}
	return fmt.Sprintf("%v[%d] on %v", b.DType(), b.n, b.Device())
}
