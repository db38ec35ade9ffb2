package reduce_test

import (
	"fmt"
	"math"
	"math/big"
	"sort"
	"sync"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// The oracle is the definition of Into without any of its code. Elements are bit patterns. Integers
// are computed as big integers and then wrapped, f32 in float64 (whose later rounding to f32 is
// exact for one sum, product or quotient), f64 with big floats, and f16 and bf16 by a search in the
// table of all their values.

func oracle(dt tensor.DType, in [][]uint64, red dist.RedKind, scalars []uint64) []uint64 {
	out := make([]uint64, len(in[0]))
	for i := range out {
		var column []uint64
		for _, src := range in {
			column = append(column, src[i])
		}
		switch {
		case len(column) == 1 && red != dist.RedPreMulSum:
			out[i] = column[0]
		case dt.IsFloat():
			out[i] = floatColumn(dt, column, red, scalars)
		default:
			out[i] = intColumn(dt, column, red, scalars)
		}
	}
	return out
}

func intColumn(dt tensor.DType, column []uint64, red dist.RedKind, scalars []uint64) uint64 {
	acc := toBig(dt, column[0])
	if red == dist.RedPreMulSum {
		acc = wrap(dt, new(big.Int).Mul(acc, toBig(dt, scalars[0])))
	}
	for r, bits := range column[1:] {
		x := toBig(dt, bits)
		switch red {
		case dist.RedSum, dist.RedAvg:
			acc = new(big.Int).Add(acc, x)
		case dist.RedProd:
			acc = new(big.Int).Mul(acc, x)
		case dist.RedMin:
			if x.Cmp(acc) < 0 {
				acc = x
			}
		case dist.RedMax:
			if x.Cmp(acc) > 0 {
				acc = x
			}
		case dist.RedPreMulSum:
			acc = new(big.Int).Add(acc, new(big.Int).Mul(x, toBig(dt, scalars[r+1])))
		case dist.RedAnd:
			acc = new(big.Int).And(acc, x)
		case dist.RedOr:
			acc = new(big.Int).Or(acc, x)
		case dist.RedXor:
			acc = new(big.Int).Xor(acc, x)
		}
		acc = wrap(dt, acc)
	}
	if red == dist.RedAvg {
		acc = new(big.Int).Quo(acc, big.NewInt(int64(len(column)))) // Quo truncates toward zero
	}
	m := new(big.Int).Lsh(big.NewInt(1), uint(8*dt.Size()))
	return new(big.Int).Mod(acc, m).Uint64()
}

func signed(dt tensor.DType) bool { return dt >= tensor.I8 && dt <= tensor.I64 }

func toBig(dt tensor.DType, bits uint64) *big.Int {
	return wrap(dt, new(big.Int).SetUint64(bits))
}

// wrap returns the value of the low bits of x in dt.
func wrap(dt tensor.DType, x *big.Int) *big.Int {
	m := new(big.Int).Lsh(big.NewInt(1), uint(8*dt.Size()))
	x = new(big.Int).Mod(x, m)
	if signed(dt) && x.Bit(8*dt.Size()-1) == 1 {
		x.Sub(x, m)
	}
	return x
}

func floatColumn(dt tensor.DType, column []uint64, red dist.RedKind, scalars []uint64) uint64 {
	acc := toFloat(dt, column[0])
	if red == dist.RedPreMulSum {
		acc = mul(dt, acc, toFloat(dt, scalars[0]))
	}
	for r, bits := range column[1:] {
		x := toFloat(dt, bits)
		switch red {
		case dist.RedSum, dist.RedAvg:
			acc = sum(dt, acc, x)
		case dist.RedProd:
			acc = mul(dt, acc, x)
		case dist.RedMin, dist.RedMax:
			switch { // math.Min and math.Max prefer infinity to NaN
			case math.IsNaN(acc) || math.IsNaN(x):
				acc = math.NaN()
			case red == dist.RedMin:
				acc = math.Min(acc, x)
			default:
				acc = math.Max(acc, x)
			}
		case dist.RedPreMulSum:
			acc = sum(dt, acc, mul(dt, x, toFloat(dt, scalars[r+1])))
		}
	}
	if red == dist.RedAvg {
		n := float64(len(column))
		if dt == tensor.F64 {
			acc /= n
		} else {
			acc = float64(float32(acc / n))
		}
	}
	return fromFloat(dt, acc)
}

// sum and mul round once, in the accumulator of dt: f64 for f64, else f32.
func sum(dt tensor.DType, a, b float64) float64 {
	if dt == tensor.F64 {
		return bigOp((*big.Float).Add, a, b, a+b)
	}
	return float64(float32(a + b))
}

func mul(dt tensor.DType, a, b float64) float64 {
	if dt == tensor.F64 {
		return bigOp((*big.Float).Mul, a, b, a*b)
	}
	return float64(float32(a * b))
}

// bigOp computes with 53 bits of precision if big floats have the values; else it returns special.
func bigOp(op func(z, x, y *big.Float) *big.Float, a, b, special float64) float64 {
	if math.IsNaN(special) || math.IsInf(special, 0) || math.Abs(special) < 1e-300 {
		return special
	}
	z := op(new(big.Float).SetPrec(53), big.NewFloat(a), big.NewFloat(b))
	f, _ := z.Float64()
	return f
}

func toFloat(dt tensor.DType, bits uint64) float64 {
	switch dt {
	case tensor.F64:
		return math.Float64frombits(bits)
	case tensor.F32:
		return float64(math.Float32frombits(uint32(bits)))
	case tensor.F16:
		return smallFloat(uint16(bits), 5, 10)
	}
	return smallFloat(uint16(bits), 8, 7)
}

func fromFloat(dt tensor.DType, x float64) uint64 {
	switch dt {
	case tensor.F64:
		return math.Float64bits(x)
	case tensor.F32:
		return uint64(math.Float32bits(float32(x)))
	case tensor.F16:
		return uint64(nearest(f16Table(), 0x7c00, x))
	}
	return uint64(nearest(bf16Table(), 0x7f80, x))
}

// smallFloat returns the value of a 16-bit float with the given numbers of exponent and fraction
// bits, by the definition.
func smallFloat(bits uint16, expBits, fracBits int) float64 {
	sign := 1.0
	if bits>>15 == 1 {
		sign = -1
	}
	top := 1<<expBits - 1
	exp := int(bits>>fracBits) & top
	frac := float64(int(bits) & (1<<fracBits - 1))
	bias := top / 2
	switch {
	case exp == top && frac != 0:
		return math.NaN()
	case exp == top:
		return math.Inf(int(sign))
	case exp == 0:
		return sign * math.Ldexp(frac, 1-bias-fracBits)
	}
	return sign * math.Ldexp(1+math.Ldexp(frac, -fracBits), exp-bias)
}

var f16Table = sync.OnceValue(func() []float64 { return table(0x7c00, 5, 10) })

var bf16Table = sync.OnceValue(func() []float64 { return table(0x7f80, 8, 7) })

// table has the finite values that are not negative; their bits are their index. One more is
// infinity: the value that would follow with a larger exponent, where IEEE 754 rounds to infinity.
func table(inf, expBits, fracBits int) []float64 {
	t := make([]float64, inf+1)
	for bits := range inf {
		t[bits] = smallFloat(uint16(bits), expBits, fracBits)
	}
	t[inf] = t[inf-1] + (t[inf-1] - t[inf-2])
	return t
}

// nearest returns the bits of the table entry nearest to x, ties to even.
func nearest(t []float64, inf uint16, x float64) uint16 {
	var sign uint16
	if math.Signbit(x) {
		sign, x = 0x8000, -x
	}
	if math.IsNaN(x) {
		return inf | 1
	}
	i := sort.SearchFloat64s(t, x)
	if i == len(t) {
		return sign | inf
	}
	if t[i] != x {
		if down, up := x-t[i-1], t[i]-x; down < up || down == up && (i-1)%2 == 0 {
			i--
		}
	}
	return sign | uint16(i)
}

func isNaN(dt tensor.DType, bits uint64) bool { return dt.IsFloat() && math.IsNaN(toFloat(dt, bits)) }

// diff describes a difference of got from want; all NaNs are equal.
func diff(dt tensor.DType, got, want []uint64) error {
	for i := range want {
		if got[i] != want[i] && !(isNaN(dt, got[i]) && isNaN(dt, want[i])) {
			return fmt.Errorf("element %d of %d: got bits %#x, want %#x", i, len(want), got[i], want[i])
		}
	}
	return nil
}
