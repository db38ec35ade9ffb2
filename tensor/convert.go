package tensor

import (
	"fmt"
	"math"
)

// Convert sets, for every i,
//
//	dst[i] = src[i] as dst's type
//
// If dst's type is narrower, it rounds once, to nearest, ties to even: overflow gives infinity, and
// a NaN stays a NaN.
//
// Shapes: equal lengths, floating-point types, in host memory. The buffers are disjoint, or the
// same buffer with one type. Errors: buffers that break these rules; nothing was written then.
func Convert(dst, src Buffer) error {
	switch {
	case !dst.DType().IsFloat() || !src.DType().IsFloat():
		return fmt.Errorf("convert %v to %v: both must hold floating-point numbers", src, dst)
	case dst.Len() != src.Len():
		return fmt.Errorf("convert %v to %v: lengths differ", src, dst)
	case dst.Device() != Host || src.Device() != Host:
		return fmt.Errorf("convert %v to %v: both must be in host memory", src, dst)
	case Overlap(dst, src) && !Same(dst, src):
		return fmt.Errorf("convert %v to %v: they overlap", src, dst)
	}
	fastest.convert(dst, src)
	return nil
}

// vectors has the conversions of one instruction set, for n elements, a positive multiple of 16;
// nil for a missing one.
type vectors struct {
	name       string
	has        bool // on this machine
	narrowBF16 func(to *BFloat16, from *float32, n int)
	narrowF16  func(to *Float16, from *float32, n int)
	widenBF16  func(to *float32, from *BFloat16, n int)
	widenF16   func(to *float32, from *Float16, n int)
}

// fastest is the best of levels on this machine.
var fastest = func() *vectors {
	for i := range levels {
		if levels[i].has {
			return &levels[i]
		}
	}
	return &vectors{name: "plain"}
}()

// most calls run for as many elements as possible and returns the rest for plain Go.
func most[A, B Element](run func(to *A, from *B, n int), to []A, from []B) (rest []A, more []B) {
	n := len(from) &^ 15
	if run == nil || n == 0 {
		return to[:len(from)], from
	}
	run(&to[0], &from[0], n)
	return to[n:len(from)], from[n:]
}

// convert is Convert for checked buffers.
func (v *vectors) convert(dst, src Buffer) {
	if dst.DType() == src.DType() {
		copy(dst.Raw(), src.Raw())
		return
	}
	switch src.DType() {
	case F32:
		v.fromSingle(dst, of[float32](src))
	case F64:
		fromDouble(dst, of[float64](src))
	case F16:
		v.fromFloat16(dst, of[Float16](src))
	case BF16:
		v.fromBFloat16(dst, of[BFloat16](src))
	}
}

// of is Data for a checked buffer.
func of[T Element](b Buffer) []T {
	s, _ := Data[T](b)
	return s
}

// There is one loop for each pair of types: in a generic loop the conversion would be a call.

func (v *vectors) fromSingle(dst Buffer, in []float32) {
	switch dst.DType() {
	case F16:
		out, in := most(v.narrowF16, of[Float16](dst), in)
		for i, x := range in {
			out[i] = ToFloat16(x)
		}
	case BF16:
		out, in := most(v.narrowBF16, of[BFloat16](dst), in)
		for i, x := range in {
			out[i] = ToBFloat16(x)
		}
	case F64:
		out := of[float64](dst)[:len(in)]
		for i, x := range in {
			out[i] = float64(x)
		}
	}
}

func fromDouble(dst Buffer, in []float64) {
	switch dst.DType() {
	case F16:
		out := of[Float16](dst)[:len(in)]
		for i, x := range in {
			out[i] = ToFloat16(toOdd(x))
		}
	case BF16:
		out := of[BFloat16](dst)[:len(in)]
		for i, x := range in {
			out[i] = ToBFloat16(toOdd(x))
		}
	case F32:
		out := of[float32](dst)[:len(in)]
		for i, x := range in {
			out[i] = float32(x)
		}
	}
}

func (v *vectors) fromFloat16(dst Buffer, in []Float16) {
	switch dst.DType() {
	case F32:
		out, in := most(v.widenF16, of[float32](dst), in)
		for i, x := range in {
			out[i] = x.Float32()
		}
	case F64:
		out := of[float64](dst)[:len(in)]
		for i, x := range in {
			out[i] = float64(x.Float32())
		}
	case BF16:
		out := of[BFloat16](dst)[:len(in)]
		for i, x := range in {
			out[i] = ToBFloat16(x.Float32())
		}
	}
}

func (v *vectors) fromBFloat16(dst Buffer, in []BFloat16) {
	switch dst.DType() {
	case F32:
		out, in := most(v.widenBF16, of[float32](dst), in)
		for i, x := range in {
			out[i] = x.Float32()
		}
	case F64:
		out := of[float64](dst)[:len(in)]
		for i, x := range in {
			out[i] = float64(x.Float32())
		}
	case F16:
		out := of[Float16](dst)[:len(in)]
		for i, x := range in {
			out[i] = ToFloat16(x.Float32())
		}
	}
}

// toOdd returns x as a float32, with the last bit set if x is between two of them. Rounding that to
// a type with at least two bits fewer gives x rounded once (Boldo and Melquiond, Emulation of a FMA
// and correctly rounded sums, 2008).
func toOdd(x float64) float32 {
	const goes = 1<<29 - 1 // the additional bits of a float64
	b := math.Float64bits(x)
	if b&^(1<<63) >= 0x381<<52 { // 2^-126: float32 is normal
		return float32(math.Float64frombits((b | (b&goes + goes)) &^ goes))
	}
	return toOddSubnormal(x)
}

// toOddSubnormal is toOdd for numbers that are subnormal in float32.
func toOddSubnormal(x float64) float32 {
	f := float32(x)
	if float64(f) == x {
		return f
	}
	b := math.Float32bits(f)
	if math.Abs(float64(f)) > math.Abs(x) {
		b-- // toward zero
	}
	return math.Float32frombits(b | 1)
}
