package tensor

import (
	"math"
	"sort"
	"testing"

	"pgregory.net/rapid"
)

// format is a 16-bit float and a reference for it that works on float64, where every value of the
// format and every midpoint of two neighbours is exact.
type format struct {
	name   string
	frac   int    // fraction bits
	bias   int    // of the exponent
	inf    uint16 // bits of +infinity; the finite non-negative numbers are 0 to inf-1, ascending
	decode func(uint16) float32
	encode func(float32) uint16
}

var formats = []format{
	{
		"f16", 10, 15, 0x7c00,
		func(b uint16) float32 { return Float16(b).Float32() },
		func(x float32) uint16 { return uint16(ToFloat16(x)) },
	},
	{
		"bf16", 7, 127, 0x7f80,
		func(b uint16) float32 { return BFloat16(b).Float32() },
		func(x float32) uint16 { return uint16(ToBFloat16(x)) },
	},
}

// value returns the number with the bits b, without a sign (IEEE 754-2019, 3.4). Infinity counts as
// the next number after the largest finite one, as in rounding (4.3.1).
func (f format) value(b uint16) float64 {
	exp, frac := int(b>>f.frac), float64(b&(1<<f.frac-1))
	if exp == 0 {
		return math.Ldexp(frac, 1-f.bias-f.frac)
	}
	return math.Ldexp(frac+math.Ldexp(1, f.frac), exp-f.bias-f.frac)
}

// nearest returns x, not a NaN, rounded to nearest, ties to even, by a search among all values.
func (f format) nearest(x float32) uint16 {
	var sign uint16
	v := float64(x)
	if math.Signbit(v) {
		sign, v = 0x8000, -v
	}
	hi := uint16(sort.Search(int(f.inf), func(i int) bool { return f.value(uint16(i)) >= v }))
	if hi == 0 || f.value(hi) == v {
		return sign | hi
	}
	lo := hi - 1
	switch mid := (f.value(lo) + f.value(hi)) / 2; {
	case v < mid:
		return sign | lo
	case v > mid:
		return sign | hi
	}
	return sign | (lo + lo&1) // the even one of two neighbours
}

func eachFormat(t *testing.T, test func(t *testing.T, f format)) {
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) { test(t, f) })
	}
}

func TestHalfDecodesAllPatterns(t *testing.T) {
	eachFormat(t, func(t *testing.T, f format) {
		for i := range 1 << 16 {
			b := uint16(i)
			got := f.decode(b)
			magnitude := b &^ 0x8000
			if math.Signbit(float64(got)) != (b&0x8000 != 0) {
				t.Errorf("%#04x: wrong sign of %v", b, got)
			}
			switch {
			case magnitude > f.inf:
				if got == got {
					t.Errorf("%#04x is a NaN, decoded as %v", b, got)
				}
			case magnitude == f.inf:
				if !math.IsInf(float64(got), 0) {
					t.Errorf("%#04x is an infinity, decoded as %v", b, got)
				}
			case math.Abs(float64(got)) != f.value(magnitude):
				t.Errorf("%#04x is %v, decoded as %v", b, f.value(magnitude), got)
			}
		}
	})
}

func TestHalfRoundTripsAllPatterns(t *testing.T) {
	eachFormat(t, func(t *testing.T, f format) {
		for i := range 1 << 16 {
			b := uint16(i)
			got := f.encode(f.decode(b))
			if b&^0x8000 <= f.inf {
				if got != b {
					t.Errorf("%#04x becomes %#04x", b, got)
				}
				continue
			}
			quiet := uint16(1) << (f.frac - 1)
			if got&^0x8000 <= f.inf || got&quiet == 0 || got&0x8000 != b&0x8000 {
				t.Errorf("NaN %#04x becomes %#04x, no quiet NaN of that sign", b, got)
			}
		}
	})
}

// Between each two neighbours: the midpoint, which is a tie, and the float32s on its two sides.
func TestHalfRoundsTiesToEven(t *testing.T) {
	eachFormat(t, func(t *testing.T, f format) {
		for lo := range f.inf {
			mid := float32((f.value(lo) + f.value(lo+1)) / 2)
			even := lo + lo&1
			for _, sign := range []float32{1, -1} {
				var s uint16
				if sign < 0 {
					s = 0x8000
				}
				down, up := math.Nextafter32(mid, 0), math.Nextafter32(mid, math.MaxFloat32)
				for _, c := range []struct {
					x    float32
					want uint16
				}{{down, lo}, {mid, even}, {up, lo + 1}} {
					if got := f.encode(sign * c.x); got != s|c.want {
						t.Fatalf("%v becomes %#04x, want %#04x", sign*c.x, got, s|c.want)
					}
				}
			}
		}
	})
}

func TestHalfEdges(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		f    format
		x    float32
		want uint16
	}{
		{formats[0], 65504, 0x7bff},
		{formats[0], 65519.996, 0x7bff},
		{formats[0], 65520, 0x7c00},
		{formats[0], math.MaxFloat32, 0x7c00},
		{formats[0], -inf, 0xfc00},
		{formats[0], 0x1p-24, 1},
		{formats[0], 0x1p-25, 0},
		{formats[0], 0x1.000002p-25, 1},
		{formats[0], 0x1p-14, 0x0400},
		{formats[0], math.SmallestNonzeroFloat32, 0},
		{formats[0], float32(math.Copysign(0, -1)), 0x8000},
		{formats[1], 1, 0x3f80},
		{formats[1], math.MaxFloat32, 0x7f80},
		{formats[1], inf, 0x7f80},
		{formats[1], 0x1.fep127, 0x7f7f},
		{formats[1], math.SmallestNonzeroFloat32, 0},
		{formats[1], 0x1p-133, 1},
		{formats[1], float32(math.Copysign(0, -1)), 0x8000},
	} {
		if got := c.f.encode(c.x); got != c.want {
			t.Errorf("%s of %v is %#04x, want %#04x", c.f.name, c.x, got, c.want)
		}
	}
}

// A NaN with a payload only in the dropped bits must not become an infinity.
func TestHalfKeepsEveryNaN(t *testing.T) {
	eachFormat(t, func(t *testing.T, f format) {
		for _, sign := range []uint32{0, 0x80000000} {
			for bit := range 23 {
				got := f.encode(math.Float32frombits(sign | 0x7f800000 | 1<<bit))
				if got&^0x8000 <= f.inf || uint32(got>>15) != sign>>31 {
					t.Errorf("NaN with payload bit %d and sign %d becomes %#04x", bit, sign>>31, got)
				}
			}
		}
	})
}

// A sweep over the whole range of float32 in steps that are prime to 2^32, so that low bits vary
// too.
func TestHalfRoundsToNearestEverywhere(t *testing.T) {
	const step = 65521
	eachFormat(t, func(t *testing.T, f format) {
		for b := uint64(0); b < 1<<32; b += step {
			x := math.Float32frombits(uint32(b))
			if x != x {
				continue
			}
			if got, want := f.encode(x), f.nearest(x); got != want {
				t.Fatalf("%v (%#08x) becomes %#04x, want %#04x", x, b, got, want)
			}
		}
	})
}

func TestHalfRoundsToNearestProperty(t *testing.T) {
	eachFormat(t, func(t *testing.T, f format) {
		rapid.Check(t, func(t *rapid.T) {
			x := rapid.Float32().Draw(t, "x")
			if got, want := f.encode(x), f.nearest(x); got != want {
				t.Fatalf("%v becomes %#04x, want %#04x", x, got, want)
			}
		})
	})
}

func BenchmarkToBFloat16(b *testing.B) {
	benchmarkEncode(b, func(x float32) uint16 { return uint16(ToBFloat16(x)) })
}

func BenchmarkToFloat16(b *testing.B) {
	benchmarkEncode(b, func(x float32) uint16 { return uint16(ToFloat16(x)) })
}

func benchmarkEncode(b *testing.B, encode func(float32) uint16) {
	src, dst := make([]float32, 4096), make([]uint16, 4096)
	for i := range src {
		src[i] = float32(i) / 64
	}
	b.SetBytes(int64(6 * len(src))) // read and written
	for b.Loop() {
		for i, x := range src {
			dst[i] = encode(x)
		}
	}
}

// TestHalfOfADoubleIsRoundedOnce has numbers that rounding by way of float32 would take to the
// wrong neighbour.
func TestHalfOfADoubleIsRoundedOnce(t *testing.T) {
	const tie16, tieB16 = 1 + 0x1p-11, 1 + 0x1p-8
	for x, want := range map[float64]float32{1: 1, tie16: 1, tie16 + 0x1p-40: 1 + 0x1p-10, -tie16 - 0x1p-40: -1 - 0x1p-10, 1e300: float32(math.Inf(1))} {
		if got := Float16Of(x).Float32(); got != want {
			t.Errorf("float16 of %v is %v, want %v", x, got, want)
		}
	}
	for x, want := range map[float64]float32{1: 1, tieB16: 1, tieB16 + 0x1p-40: 1 + 0x1p-7, -tieB16 - 0x1p-40: -1 - 0x1p-7, 1e300: float32(math.Inf(1))} {
		if got := BFloat16Of(x).Float32(); got != want {
			t.Errorf("bfloat16 of %v is %v, want %v", x, got, want)
		}
	}
}
