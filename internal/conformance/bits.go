package conformance

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/symgrad/symgrad/tensor"
)

// Elements are bit patterns here, in the low bytes of a uint64, for all types.

// mask returns the bits of an element of dt.
func mask(dt tensor.DType) uint64 { return 1<<(8*dt.Size()-1)<<1 - 1 }

// get returns the bits of element i of raw.
func get(raw []byte, dt tensor.DType, i int) uint64 {
	switch at := raw[i*dt.Size():]; dt.Size() {
	case 1:
		return uint64(at[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(at))
	case 4:
		return uint64(binary.NativeEndian.Uint32(at))
	default:
		return binary.NativeEndian.Uint64(at)
	}
}

// put sets element i of raw.
func put(raw []byte, dt tensor.DType, i int, bits uint64) {
	switch at := raw[i*dt.Size():]; dt.Size() {
	case 1:
		at[0] = byte(bits)
	case 2:
		binary.NativeEndian.PutUint16(at, uint16(bits))
	case 4:
		binary.NativeEndian.PutUint32(at, uint32(bits))
	default:
		binary.NativeEndian.PutUint64(at, bits)
	}
}

func signed(dt tensor.DType) bool { return dt >= tensor.I8 && dt <= tensor.I64 }

// asInt returns an integer element with its sign extended.
func asInt(dt tensor.DType, bits uint64) int64 {
	shift := 64 - 8*dt.Size()
	return int64(bits<<shift) >> shift
}

// halfFormat returns the exponent and fraction bits of the 16-bit floats.
func halfFormat(dt tensor.DType) (exp, frac int) {
	if dt == tensor.F16 {
		return 5, 10
	}
	return 8, 7
}

// power returns 2^e, for an e of normal numbers. Multiplying by it is exact here, because all
// values stay in float64's range.
func power(e int) float64 { return math.Float64frombits(uint64(e+1023) << 52) }

// asFloat returns the value of a floating-point element, exactly.
func asFloat(dt tensor.DType, bits uint64) float64 {
	switch dt {
	case tensor.F64:
		return math.Float64frombits(bits)
	case tensor.F32:
		return float64(math.Float32frombits(uint32(bits)))
	}
	expBits, fracBits := halfFormat(dt)
	exp := int(bits>>fracBits) & (1<<expBits - 1)
	frac := float64(bits & (1<<fracBits - 1))
	bias := 1<<(expBits-1) - 1
	var v float64
	switch {
	case exp == 1<<expBits-1 && frac != 0:
		return math.NaN()
	case exp == 1<<expBits-1:
		v = math.Inf(1)
	case exp == 0:
		v = frac * power(1-bias-fracBits)
	default:
		v = (frac + power(fracBits)) * power(exp-bias-fracBits)
	}
	if bits>>15 == 1 {
		return -v
	}
	return v
}

// fromFloat returns v rounded to dt, to nearest and ties to even, as bits.
func fromFloat(dt tensor.DType, v float64) uint64 {
	switch dt {
	case tensor.F64:
		return math.Float64bits(v)
	case tensor.F32:
		return uint64(math.Float32bits(float32(v)))
	}
	expBits, fracBits := halfFormat(dt)
	infinity := uint64(1<<expBits-1) << fracBits
	var sign uint64
	if math.Signbit(v) {
		sign, v = 1<<15, -v
	}
	switch {
	case math.IsNaN(v):
		return infinity | 1<<(fracBits-1)
	case math.IsInf(v, 1):
		return sign | infinity
	case v == 0:
		return sign
	}
	lowest := 2 - 1<<(expBits-1) // exponent of the smallest normal number
	e := max(int(math.Float64bits(v)>>52)-1023, lowest)
	steps := uint64(math.RoundToEven(v * power(fracBits-e))) // of the spacing at exponent e
	return sign | min(uint64(e-lowest)<<fracBits+steps, infinity)
}

// fromInt returns the small whole number v as an element of dt.
func fromInt(dt tensor.DType, v int) uint64 {
	if dt.IsFloat() {
		return fromFloat(dt, float64(v))
	}
	return uint64(v) & mask(dt)
}

// format formats an element for an error.
func format(dt tensor.DType, bits uint64) string {
	switch {
	case dt.IsFloat():
		return fmt.Sprintf("%v (%#x)", asFloat(dt, bits), bits)
	case signed(dt):
		return fmt.Sprint(asInt(dt, bits))
	}
	return fmt.Sprint(bits)
}

// sameBits reports whether two elements are the same number; all NaNs are equal.
func sameBits(dt tensor.DType, a, b uint64) bool {
	return a == b || dt.IsFloat() && math.IsNaN(asFloat(dt, a)) && math.IsNaN(asFloat(dt, b))
}
