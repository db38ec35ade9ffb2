package nvshmem

import (
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// The tests use whole numbers so small that every type holds every result exactly, in any order.

// value returns element i of rank's input to a reduction among n ranks.
func value(red dist.RedKind, n, rank, i int) int {
	v := (rank*3 + i*7 + i/5) % 5
	switch red {
	case dist.RedProd:
		return 1 + v%2
	case dist.RedAvg:
		return v * n // the sum is a multiple of n
	}
	return v
}

// factor is the scalar of rank in a premulsum: 3, 2, 1, of which the first is no power of two.
func factor(rank int) int { return 3 - rank%3 }

// reduced is element i of the reduction of all ranks.
func reduced(red dist.RedKind, n, i int) int {
	acc := value(red, n, 0, i)
	if red == dist.RedPreMulSum {
		acc *= factor(0)
	}
	for r := 1; r < n; r++ {
		v := value(red, n, r, i)
		switch red {
		case dist.RedProd:
			acc *= v
		case dist.RedMin:
			acc = min(acc, v)
		case dist.RedMax:
			acc = max(acc, v)
		case dist.RedPreMulSum:
			acc += v * factor(r)
		default:
			acc += v
		}
	}
	if red == dist.RedAvg {
		acc /= n
	}
	return acc
}

// encode is the bits of a small whole number.
func encode(dt tensor.DType, v int) uint64 {
	switch dt {
	case tensor.F16:
		return uint64(tensor.ToFloat16(float32(v)))
	case tensor.BF16:
		return uint64(tensor.ToBFloat16(float32(v)))
	case tensor.F32:
		f := float32(v)
		return uint64(*(*uint32)(unsafe.Pointer(&f)))
	case tensor.F64:
		f := float64(v)
		return *(*uint64)(unsafe.Pointer(&f))
	}
	return uint64(v)
}

// put sets element i of raw, and at reads it.
func put(raw []byte, dt tensor.DType, i int, bits uint64) {
	copy(raw[i*dt.Size():], unsafe.Slice((*byte)(unsafe.Pointer(&bits)), dt.Size()))
}

func at(raw []byte, dt tensor.DType, i int) (bits uint64) {
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&bits)), dt.Size()), raw[i*dt.Size():])
	return bits
}

// elements returns n elements; element i is f(i).
func elements(dt tensor.DType, n int, f func(i int) int) []byte {
	raw := make([]byte, n*dt.Size())
	for i := range n {
		put(raw, dt, i, encode(dt, f(i)))
	}
	return raw
}

// differ is an error that names the first element in which got is not want.
func differ(what string, dt tensor.DType, got, want []byte) error {
	for i := range len(want) / dt.Size() {
		if a, b := at(got, dt, i), at(want, dt, i); a != b {
			return fmt.Errorf("%s: element %d of %d has bits %#x, want %#x", what, i, len(want)/dt.Size(), a, b)
		}
	}
	return nil
}

// room is memory of a rank's GPU.
type room struct {
	dev  *cuda.Device
	base uintptr
}

// buffer is n elements from an offset on; the zero Buffer for a negative offset.
func (m room) buffer(dt tensor.DType, offset int64, n int) (tensor.Buffer, error) {
	if offset < 0 {
		return tensor.Buffer{}, nil
	}
	addr := m.base + uintptr(offset)
	return tensor.FromPointer(*(*unsafe.Pointer)(unsafe.Pointer(&addr)), n, dt, m.dev.Tensor())
}

// write fills a buffer, and read returns its content.
func (m room) write(b tensor.Buffer, raw []byte) error {
	if len(raw) == 0 {
		return nil
	}
	return m.dev.CopyFromHost(address(b), unsafe.Pointer(&raw[0]), int64(len(raw)))
}

func (m room) read(b tensor.Buffer) ([]byte, error) {
	raw := make([]byte, b.Bytes())
	if len(raw) == 0 {
		return raw, nil
	}
	return raw, m.dev.CopyToHost(unsafe.Pointer(&raw[0]), address(b), int64(len(raw)))
}
