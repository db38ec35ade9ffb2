package hostexec

import "math"

// Functions of float32, after Cephes (S. L. Moshier, single precision: expf.c, logf.c, tanhf.c):
// within 2 units in the last place. Every product is rounded before it is added, here and in
// assembly, so that all give the same bits. The conversions do that rounding.

const (
	expMost  = 89.0   // exp of it exceeds the largest float32
	expLeast = -176.0 // 2^-254, of whose two factors one is 0: masked elements that underflow to subnormal factors would take four times as long
	log2e    = 1.44269504088896341
	ln2Hi    = 0.693359375 // few bits: its product with an exponent is exact
	ln2Lo    = -2.12194440e-4
	rounder  = 0x1.8p23 // x + rounder - rounder is x rounded to an integer
)

var expTerms = [...]float32{1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1}

func exp32(x float32) float32 {
	if x > expMost {
		x = expMost
	}
	if x < expLeast {
		x = expLeast
	}
	n := float32(float32(float32(x*log2e)+rounder) - rounder)
	r := float32(x - float32(n*ln2Hi))
	r = float32(r - float32(n*ln2Lo))
	y := expTerms[0]
	for _, t := range expTerms[1:] {
		y = float32(float32(y*r) + t)
	}
	y = float32(float32(y*float32(r*r)) + r)
	y = float32(y + 1)
	// 2^n in two factors, because n reaches from -150 to 128.
	half := int32(n) >> 1
	y = float32(y * math.Float32frombits(uint32(half+127)<<23))
	return float32(y * math.Float32frombits(uint32(int32(n)-half+127)<<23))
}

var logTerms = [...]float32{
	7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
	2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
}

func log32(x float32) float32 {
	switch {
	case x != x || x > math.MaxFloat32:
		return x
	case x < 0:
		return float32(math.NaN())
	case x == 0:
		return float32(math.Inf(-1))
	}
	var e float32
	if x < 0x1p-126 {
		x = float32(x * 0x1p23)
		e = -23
	}
	bits := math.Float32bits(x)
	e += float32(int32(bits>>23) - 126)
	m := math.Float32frombits(bits&0x7fffff | 0x3f000000) // 0.5 to 1
	if m < math.Sqrt2/2 {
		e--
		m = float32(m + m)
	}
	m = float32(m - 1)
	z := float32(m * m)
	y := logTerms[0]
	for _, t := range logTerms[1:] {
		y = float32(float32(y*m) + t)
	}
	y = float32(float32(y*m) * z)
	y = float32(y + float32(e*ln2Lo))
	y = float32(y - float32(0.5*z))
	y = float32(m + y)
	return float32(y + float32(e*ln2Hi))
}

var tanhTerms = [...]float32{-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1}

// tanhSmall is the least argument for which 1 - 2/(exp(2x)+1) has full precision.
const tanhSmall = 0.625

func tanh32(x float32) float32 {
	a := math.Float32frombits(math.Float32bits(x) &^ (1 << 31))
	if a >= tanhSmall {
		y := float32(1 - float32(2/float32(exp32(float32(a+a))+1)))
		return math.Float32frombits(math.Float32bits(y) | math.Float32bits(x)&(1<<31))
	}
	z := float32(x * x)
	y := tanhTerms[0]
	for _, t := range tanhTerms[1:] {
		y = float32(float32(y*z) + t)
	}
	return float32(float32(float32(y*z)*x) + x)
}

func sigmoid32(x float32) float32 { return float32(1 / float32(1+exp32(-x))) }
