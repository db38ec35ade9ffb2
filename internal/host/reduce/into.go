package reduce

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// tileElems is the number of elements of a tile. The largest tile, of float64, has 8 KiB. Together
// with the tiles of two sources it fits the 32 KiB of L1 of every x86-64 and arm64 server core, and
// it fits a goroutine's stack.
const tileElems = 1024

// Into is, in this order for every i,
//
//	dst[i] = srcs[0][i] red srcs[1][i] red ...
//
// Integers wrap. Avg divides the sum by len(srcs) in the accumulator's type; integers truncate
// toward zero. Min and max of a NaN are NaN, and -0 is below +0. Premulsum is the sum of
// scalars[r]*srcs[r][i], each product rounded before it is added. And, or and xor combine the bits
// of integers. One source is copied bit for bit, except that premulsum scales it.
//
// Shapes: dst and all srcs have one dtype and length, in host memory. dst may be one of the srcs;
// it is disjoint from the others. scalars, for premulsum only, has the ScalarBits of each source.
// Errors: no source, or buffers or scalars that break these rules; they match dist.ErrInvalid, and
// dst is unchanged.
func Into(dst tensor.Buffer, srcs []tensor.Buffer, red dist.RedKind, scalars []uint64) error {
	if err := check(dst, srcs, red, scalars); err != nil {
		return err
	}
	if len(srcs) == 1 && red != dist.RedPreMulSum {
		copy(dst.Raw(), srcs[0].Raw())
		return nil
	}
	return typed(dst, srcs, red, scalars)
}

// typed is Into for checked arguments.
func typed(dst tensor.Buffer, srcs []tensor.Buffer, red dist.RedKind, scalars []uint64) error {
	if red.Bitwise() {
		return bitwise(dst, srcs, red)
	}
	switch dst.DType() {
	case tensor.F16:
		return half[tensor.Float16](dst, srcs, red, scalars)
	case tensor.BF16:
		return half[tensor.BFloat16](dst, srcs, red, scalars)
	case tensor.F32:
		return native[float32](dst, srcs, red, scalars)
	case tensor.F64:
		return native[float64](dst, srcs, red, scalars)
	case tensor.I8:
		return native[int8](dst, srcs, red, scalars)
	case tensor.I16:
		return native[int16](dst, srcs, red, scalars)
	case tensor.I32:
		return native[int32](dst, srcs, red, scalars)
	case tensor.I64:
		return native[int64](dst, srcs, red, scalars)
	case tensor.U8:
		return native[uint8](dst, srcs, red, scalars)
	case tensor.U16:
		return native[uint16](dst, srcs, red, scalars)
	case tensor.U32:
		return native[uint32](dst, srcs, red, scalars)
	}
	return native[uint64](dst, srcs, red, scalars)
}

func check(dst tensor.Buffer, srcs []tensor.Buffer, red dist.RedKind, scalars []uint64) error {
	switch {
	case !dst.DType().Valid():
		return fmt.Errorf("reduce: %w: no destination", dist.ErrDType)
	case dst.Device() != tensor.Host:
		return fmt.Errorf("reduce: %w: the destination is on %v", dist.ErrDevice, dst.Device())
	case len(srcs) == 0:
		return fmt.Errorf("reduce: %w: no sources", dist.ErrCount)
	case red > dist.RedXor:
		return fmt.Errorf("reduce: %w: unknown reduction %v", dist.ErrInvalid, red)
	case red.Bitwise() && dst.DType().IsFloat():
		return fmt.Errorf("reduce: %w: %v needs integers, not %v", dist.ErrDType, red, dst.DType())
	case red == dist.RedPreMulSum && len(scalars) != len(srcs):
		return fmt.Errorf("reduce: %w: %d scalars for %d sources", dist.ErrCount, len(scalars), len(srcs))
	}
	for r := range srcs {
		switch s := &srcs[r]; {
		case s.DType() != dst.DType():
			return fmt.Errorf("reduce: %w: source %d is %v, the destination %v", dist.ErrDType, r, s.DType(), dst.DType())
		case s.Len() != dst.Len():
			return fmt.Errorf("reduce: %w: source %d has %d elements, the destination %d", dist.ErrCount, r, s.Len(), dst.Len())
		case s.Device() != tensor.Host:
			return fmt.Errorf("reduce: %w: source %d is on %v", dist.ErrDevice, r, s.Device())
		}
	}
	return nil
}
