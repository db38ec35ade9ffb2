package conformance

import (
	"math"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// combine returns the reduction of one element of all ranks, column, by the definition in package
// dist: in rank order, with the promised roundings.
func combine(dt tensor.DType, red dist.RedKind, column, scalars []uint64) uint64 {
	if len(column) == 1 && red != dist.RedPreMulSum {
		return column[0]
	}
	if dt.IsFloat() {
		return combineFloats(dt, red, column, scalars)
	}
	return combineInts(dt, red, column, scalars)
}

// combineInts works modulo 2^64, which preserves the results of all integer types, and uses signs
// only where they matter.
func combineInts(dt tensor.DType, red dist.RedKind, column, scalars []uint64) uint64 {
	less := func(a, b uint64) bool {
		if signed(dt) {
			return asInt(dt, a) < asInt(dt, b)
		}
		return a < b
	}
	acc := column[0]
	if red == dist.RedPreMulSum {
		acc *= scalars[0]
	}
	for r, x := range column[1:] {
		switch {
		case red == dist.RedSum || red == dist.RedAvg:
			acc += x
		case red == dist.RedPreMulSum:
			acc += scalars[r+1] * x
		case red == dist.RedProd:
			acc *= x
		case red == dist.RedMin && less(x, acc), red == dist.RedMax && less(acc, x):
			acc = x
		case red == dist.RedAnd:
			acc &= x
		case red == dist.RedOr:
			acc |= x
		case red == dist.RedXor:
			acc ^= x
		}
	}
	if red == dist.RedAvg {
		n := uint64(len(column))
		if signed(dt) {
			acc = uint64(asInt(dt, acc) / int64(n))
		} else {
			acc = acc & mask(dt) / n
		}
	}
	return acc & mask(dt)
}

// combineFloats works in float64. For types that accumulate in float32 it rounds every step to
// float32. That gives the result of float32 arithmetic: 53 bits are more than twice 24 plus two
// (Figueroa, "When is double rounding innocuous?", 1995).
func combineFloats(dt tensor.DType, red dist.RedKind, column, scalars []uint64) uint64 {
	round := func(v float64) float64 { return float64(float32(v)) }
	if dt == tensor.F64 {
		round = func(v float64) float64 { return float64(v) } // the conversion prevents a fused multiply-add
	}
	scaled := func(r int) float64 {
		x := asFloat(dt, column[r])
		if red == dist.RedPreMulSum {
			x = round(float64(x * asFloat(dt, scalars[r])))
		}
		return x
	}
	acc := scaled(0)
	for r := 1; r < len(column); r++ {
		x := scaled(r)
		switch red {
		case dist.RedProd:
			acc = round(acc * x)
		case dist.RedMin:
			acc = -larger(-acc, -x)
		case dist.RedMax:
			acc = larger(acc, x)
		default:
			acc = round(acc + x)
		}
	}
	if red == dist.RedAvg {
		acc = round(acc / float64(len(column)))
	}
	return fromFloat(dt, acc)
}

// larger returns the larger of two numbers, NaN if one of them is NaN (math.Max prefers infinity to
// NaN), and +0 rather than -0.
func larger(a, b float64) float64 {
	if math.IsNaN(a) || math.IsNaN(b) {
		return math.NaN()
	}
	return math.Max(a, b)
}

// dataKind is the kind of inputs.
type dataKind uint8

const (
	exact   dataKind = iota // small whole numbers; nothing rounds
	random                  // floats that round, integers that wrap
	special                 // exact, with NaN, infinities and negative zeros among them
	anyBits                 // every bit pattern, for copies
	gentle                  // random, but floats are between 1/2 and 2, whose products stay in range
)

func (k dataKind) String() string {
	return [...]string{"exact", "random", "special", "any bits", "gentle"}[k]
}

// hash returns a number that depends on rank, index and salt (splitmix64; Steele, Lea and Flood,
// 2014).
func hash(rank, i int, salt uint64) uint64 {
	x := uint64(rank)<<40 ^ uint64(i) ^ salt<<52
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// input returns element i of rank's input to an operation among n ranks.
func input(k dataKind, dt tensor.DType, red dist.RedKind, n, rank, i int) uint64 {
	h := hash(rank, i, uint64(k))
	switch {
	case k == anyBits, (k == random || k == gentle) && !dt.IsFloat():
		return h & mask(dt)
	case k == random, k == gentle:
		// Between 2^-4 and 2^5, either sign: sums of 7 of them round in every type and overflow in
		// none.
		exponent := int(h%9) - 4
		if k == gentle { // the same holds for products of 7 of them
			exponent = int(h%2) - 1
		}
		v := (1 + float64(h>>12)/(1<<52)) * power(exponent)
		if h&(1<<10) != 0 {
			v = -v
		}
		return fromFloat(dt, v)
	case k == special && dt.IsFloat():
		switch h % 7 {
		case 0:
			return fromFloat(dt, math.NaN())
		case 1:
			return fromFloat(dt, math.Inf(1))
		case 2:
			return fromFloat(dt, math.Inf(-1))
		case 3:
			return fromFloat(dt, math.Copysign(0, -1))
		}
	}
	switch v := int(h % 5); red {
	case dist.RedAvg:
		return fromInt(dt, v*n) // the sum is a multiple of n
	case dist.RedProd:
		return fromInt(dt, 1+v%2)
	default:
		return fromInt(dt, v)
	}
}

// scalar returns the factor of rank in a premulsum.
func scalar(k dataKind, dt tensor.DType, n, rank int) uint64 {
	if k == random || k == gentle {
		return input(k, dt, dist.RedSum, n, rank, -1)
	}
	return fromInt(dt, 1+rank%3)
}

// factors returns the scalars of all n ranks.
func factors(k dataKind, dt tensor.DType, n int) []uint64 {
	all := make([]uint64, n)
	for r := range all {
		all[r] = scalar(k, dt, n, r)
	}
	return all
}
