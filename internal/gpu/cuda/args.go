package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"
)

// Limits of the arguments of a launch. CUDA's own are 4096 bytes, or 32764 since Volta.
const (
	mostArgs     = 128
	mostArgBytes = 4096
)

// Args holds the arguments of a kernel in order, at most 128 and 4096 bytes. An Args serves many
// launches, one at a time: a launch copies it. The first argument allocates the memory, unless
// NewArgs did. An argument that does not fit is an error of the launch. It is not safe for
// concurrent use.
type Args struct {
	b *argBlock
}

// argBlock is always on the Go heap, where nothing moves: the driver reads it by its address.
type argBlock struct {
	params [mostArgs]uintptr // addresses in data; the kernelParams of cuLaunchKernel
	sizes  [mostArgs]uint16
	data   [mostArgBytes]byte
	n      int // arguments
	at     int // bytes of data in use
	failed error
	early  early
}

//go:noinline
func newBlock() *argBlock { return new(argBlock) }

// NewArgs allocates the memory of an empty Args; most is the largest number of arguments. Errors:
// ErrInvalid for more than 128.
func NewArgs(most int) (*Args, error) {
	if most < 0 || most > mostArgs {
		return nil, fmt.Errorf("cuda: %w: room for %d arguments, at most %d fit", ErrInvalid, most, mostArgs)
	}
	return &Args{newBlock()}, nil
}

// Reset removes all arguments.
func (a *Args) Reset() {
	if a.b != nil {
		a.b.n, a.b.at, a.b.failed = 0, 0, nil
	}
}

// Len returns the number of arguments.
func (a *Args) Len() int {
	if a.b == nil {
		return 0
	}
	return a.b.n
}

// next returns memory for an argument of size bytes, aligned to 16; nil if it does not fit.
func (a *Args) next(size int) []byte {
	if a.b == nil {
		a.b = newBlock()
	}
	b := a.b
	if b.n == mostArgs || size > mostArgBytes-b.at || size == 0 {
		b.refuse(size)
		return nil
	}
	room := b.data[b.at : b.at+size : b.at+size]
	b.params[b.n] = uintptr(unsafe.Pointer(&room[0]))
	b.sizes[b.n] = uint16(size)
	b.n++
	b.at = min((b.at+size+15)&^15, mostArgBytes)
	return room
}

// refuse records the first argument that did not fit.
func (b *argBlock) refuse(size int) {
	if b.failed == nil {
		b.failed = fmt.Errorf("cuda: %w: argument %d of %d B, after %d B of others, does not fit: use at most %d arguments of at least 1 B, and %d B",
			ErrInvalid, b.n, size, b.at, mostArgs, mostArgBytes)
	}
}

// Ptr adds an address of device memory, or a HostMemory.Device.
func (a *Args) Ptr(p uintptr) { a.U64(uint64(p)) }

// U32 adds an unsigned int.
func (a *Args) U32(v uint32) {
	if room := a.next(4); room != nil {
		binary.NativeEndian.PutUint32(room, v)
	}
}

// I32 adds an int.
func (a *Args) I32(v int32) { a.U32(uint32(v)) }

// U64 adds an unsigned long long.
func (a *Args) U64(v uint64) {
	if room := a.next(8); room != nil {
		binary.NativeEndian.PutUint64(room, v)
	}
}

// I64 adds a long long.
func (a *Args) I64(v int64) { a.U64(uint64(v)) }

// F32 adds a float.
func (a *Args) F32(v float32) { a.U32(math.Float32bits(v)) }

// F64 adds a double.
func (a *Args) F64(v float64) { a.U64(math.Float64bits(v)) }

// Bytes adds a copy of b, a value of any other type: a char, a half, a struct with its padding.
func (a *Args) Bytes(b []byte) { copy(a.next(len(b)), b) }
