// Package reduce combines the buffers of several ranks element by element, in rank order, on the host.
package reduce

import (
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// tile is how many elements are accumulated at once; the accumulators stay in the first-level cache.
const tile = 512

// Into is
//
//	for i := range dst { dst[i] = srcs[0][i] red srcs[1][i] red ... }
//
// in that order. f16 and bf16 accumulate in float32 and are rounded once; integers wrap; avg divides by the number of
// sources in the accumulator's type; premulsum rounds scalars[r]*srcs[r][i] to the accumulator's type and then adds.
//
// Shapes: one dtype and length, in host memory; dst may be one of the sources exactly. scalars, the bits of one factor a
// source, is read for premulsum only. Errors: dist.ErrInvalid and its kinds.
func Into(dst tensor.Buffer, srcs []tensor.Buffer, red dist.RedKind, scalars []uint64) error {
	for _, s := range srcs {
		if s.DType() != dst.DType() || s.Len() != dst.Len() || s.Device() != tensor.Host {
			return fmt.Errorf("reduce %v into %v: %w", s, dst, dist.ErrCount)
		}
	}
	switch dst.DType() {
	case tensor.F32:
		run[float32, float32](dst, srcs, red, scalars, same[float32], same[float32])
	case tensor.F64:
		run[float64, float64](dst, srcs, red, scalars, same[float64], same[float64])
	case tensor.F16:
		run(dst, srcs, red, scalars, tensor.Float16.Float32, tensor.ToFloat16)
	case tensor.BF16:
		run(dst, srcs, red, scalars, tensor.BFloat16.Float32, tensor.ToBFloat16)
	case tensor.I8:
		run[int8, int8](dst, srcs, red, scalars, same[int8], same[int8])
	case tensor.I16:
		run[int16, int16](dst, srcs, red, scalars, same[int16], same[int16])
	case tensor.I32:
		run[int32, int32](dst, srcs, red, scalars, same[int32], same[int32])
	case tensor.I64:
		run[int64, int64](dst, srcs, red, scalars, same[int64], same[int64])
	case tensor.U8:
		run[uint8, uint8](dst, srcs, red, scalars, same[uint8], same[uint8])
	case tensor.U16:
		run[uint16, uint16](dst, srcs, red, scalars, same[uint16], same[uint16])
	case tensor.U32:
		run[uint32, uint32](dst, srcs, red, scalars, same[uint32], same[uint32])
	case tensor.U64:
		run[uint64, uint64](dst, srcs, red, scalars, same[uint64], same[uint64])
	default:
		return fmt.Errorf("reduce %v: %w", dst, dist.ErrDType)
	}
	return nil
}

// ScalarBits is the bits of a premulsum factor; one in memory is read now.
func ScalarBits(s dist.Scalar) (uint64, error) {
	if s.At.IsZero() {
		return s.Bits, nil
	}
	var b [8]byte
	if n := copy(b[:], s.At.Raw()); n != s.DType.Size() {
		return 0, fmt.Errorf("premulsum scalar %v: %w", s.At, dist.ErrCount)
	}
	return *(*uint64)(unsafe.Pointer(&b)), nil
}

type number interface {
	float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

func same[T any](x T) T { return x }

func run[T tensor.Element, A number](dst tensor.Buffer, srcs []tensor.Buffer, red dist.RedKind, scalars []uint64, up func(T) A, down func(A) T) {
	var acc [tile]A
	d, _ := tensor.Data[T](dst)
	for lo := 0; lo < len(d); lo += tile {
		hi := min(lo+tile, len(d))
		for r, b := range srcs {
			s, _ := tensor.Data[T](b)
			s = s[lo:hi]
			var k A
			if red == dist.RedPreMulSum {
				v := scalars[r]
				k = up(*(*T)(unsafe.Pointer(&v)))
			}
			fold(acc[:hi-lo], s, r == 0, red, k, up)
		}
		for i := range hi - lo {
			v := acc[i]
			if red == dist.RedAvg {
				v /= A(len(srcs))
			}
			d[lo+i] = down(v)
		}
	}
}

func fold[T tensor.Element, A number](acc []A, s []T, first bool, red dist.RedKind, k A, up func(T) A) {
	for i, x := range s {
		v := up(x)
		if red == dist.RedPreMulSum {
			v = A(v * k)
		}
		switch {
		case first:
			acc[i] = v
		case red == dist.RedProd:
			acc[i] *= v
		case red == dist.RedMin:
			acc[i] = min(acc[i], v)
		case red == dist.RedMax:
			acc[i] = max(acc[i], v)
		default:
			acc[i] = A(acc[i] + v)
		}
	}
}
