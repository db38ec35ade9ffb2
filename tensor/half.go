package tensor

import "math"

// Float16 has the bits of an IEEE 754 binary16 number: 1 sign, 5 exponent, 10 fraction bits.
type Float16 uint16

// BFloat16 has the bits of a bfloat16 number: the upper 16 bits of a binary32.
type BFloat16 uint16

// Float32 returns f as a float32; exact.
func (f Float16) Float32() float32 {
	sign := uint32(f&0x8000) << 16
	exp := uint32(f>>10) & 0x1f
	frac := uint32(f & 0x3ff)
	switch {
	case exp == 0x1f: // infinity or NaN
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	case exp != 0:
		return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
	}
	// Zero or subnormal: frac * 2^-24, exact in float32.
	v := float32(frac) * (1.0 / (1 << 24))
	return math.Float32frombits(sign | math.Float32bits(v))
}

// ToFloat16 returns x rounded to nearest, ties to even; overflow gives infinity and a NaN stays a
// (quiet) NaN.
func ToFloat16(x float32) Float16 {
	b := math.Float32bits(x)
	sign := Float16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00
	case b >= 0x477ff000: // 65520 and above rounds to infinity
		return sign | 0x7c00
	case b < 0x38800000: // below 2^-14: subnormal; adding 0.5 leaves round-to-even of x*2^24 in the low bits
		const magic = 0x3f000000
		v := math.Float32frombits(b) + math.Float32frombits(magic)
		return sign | Float16(math.Float32bits(v)-magic)
	}
	b += 0xfff + b>>13&1 // round to nearest even on the 13 dropped bits
	return sign | Float16((b-112<<23)>>13)
}

// Float32 returns f as a float32; exact.
func (f BFloat16) Float32() float32 { return math.Float32frombits(uint32(f) << 16) }

// ToBFloat16 returns x rounded to nearest, ties to even; overflow gives infinity and a NaN stays a
// (quiet) NaN.
func ToBFloat16(x float32) BFloat16 {
	b := math.Float32bits(x)
	if b&0x7fffffff > 0x7f800000 {
		return BFloat16(b>>16) | 0x40
	}
	b += 0x7fff + b>>16&1
	return BFloat16(b >> 16)
}

// Float16Of returns the Float16 nearest to x, ties to even. x is rounded once, as by Convert.
func Float16Of(x float64) Float16 { return ToFloat16(toOdd(x)) }

// BFloat16Of returns the BFloat16 nearest to x, ties to even. x is rounded once, as by Convert.
func BFloat16Of(x float64) BFloat16 { return ToBFloat16(toOdd(x)) }
