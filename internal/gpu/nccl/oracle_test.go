package nccl

import (
	"math"
	"math/big"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

func signed(dt tensor.DType) bool { return dt >= tensor.I8 && dt <= tensor.I64 }

// extend is an integer element with its sign.
func extend(dt tensor.DType, bits uint64) int64 {
	shift := 64 - 8*dt.Size()
	return int64(bits<<shift) >> shift
}

// value is a floating-point element; exact.
func value(dt tensor.DType, bits uint64) float64 {
	switch dt {
	case tensor.F16:
		return float64(tensor.Float16(bits).Float32())
	case tensor.BF16:
		return float64(tensor.BFloat16(bits).Float32())
	case tensor.F32:
		return float64(math.Float32frombits(uint32(bits)))
	}
	return math.Float64frombits(bits)
}

// encode is v, which is representable or is rounded by way of float32, as an element.
func encode(dt tensor.DType, v float64) uint64 {
	switch dt {
	case tensor.F16:
		return uint64(tensor.ToFloat16(float32(v)))
	case tensor.BF16:
		return uint64(tensor.ToBFloat16(float32(v)))
	case tensor.F32:
		return uint64(math.Float32bits(float32(v)))
	case tensor.F64:
		return math.Float64bits(v)
	}
	return uint64(int64(v)) & mask(dt)
}

// epsilon is the largest relative error of one rounding.
func epsilon(dt tensor.DType) float64 {
	return map[tensor.DType]float64{tensor.F16: 1.0 / (1 << 11), tensor.BF16: 1.0 / (1 << 8), tensor.F32: 1.0 / (1 << 24), tensor.F64: 1.0 / (1 << 53)}[dt]
}

// combineInts is the reduction of one integer element of all ranks: everything wraps, and a mean is
// truncated toward zero.
func combineInts(dt tensor.DType, red dist.RedKind, column, factors []uint64) uint64 {
	acc := column[0]
	if red == dist.RedPreMulSum {
		acc *= factors[0]
	}
	for r, x := range column[1:] {
		less := x < acc
		if signed(dt) {
			less = extend(dt, x) < extend(dt, acc)
		}
		switch red {
		case dist.RedSum, dist.RedAvg:
			acc += x
		case dist.RedProd:
			acc *= x
		case dist.RedPreMulSum:
			acc += factors[r+1] * x
		case dist.RedMin:
			if less {
				acc = x
			}
		case dist.RedMax:
			if !less {
				acc = x
			}
		}
	}
	if red != dist.RedAvg || len(column) == 1 {
		return acc & mask(dt)
	}
	n := uint64(len(column))
	if signed(dt) {
		return uint64(extend(dt, acc)/int64(n)) & mask(dt)
	}
	return acc & mask(dt) / n
}

// combineExactly is that of one floating-point element, where nothing rounds.
func combineExactly(dt tensor.DType, red dist.RedKind, column, factors []uint64) uint64 {
	acc := value(dt, column[0])
	if red == dist.RedPreMulSum {
		acc *= value(dt, factors[0])
	}
	for r, bits := range column[1:] {
		x := value(dt, bits)
		switch red {
		case dist.RedSum, dist.RedAvg:
			acc += x
		case dist.RedProd:
			acc *= x
		case dist.RedPreMulSum:
			acc += value(dt, factors[r+1]) * x
		case dist.RedMin:
			acc = -larger(-acc, -x)
		case dist.RedMax:
			acc = larger(acc, x)
		}
	}
	if red == dist.RedAvg {
		acc /= float64(len(column))
	}
	return encode(dt, acc)
}

// larger is the larger of two numbers, NaN if one of them is, and +0 rather than -0.
func larger(a, b float64) float64 {
	if math.IsNaN(a) || math.IsNaN(b) {
		return math.NaN()
	}
	return math.Max(a, b)
}

// exactSum is the sum of factor times element over the ranks, and the sum of the terms' sizes,
// without rounding.
func exactSum(dt tensor.DType, column, factors []uint64) (sum, size *big.Float) {
	wide := func(v float64) *big.Float { return new(big.Float).SetPrec(400).SetFloat64(v) }
	sum, size = wide(0), wide(0)
	for r, bits := range column {
		term := new(big.Float).SetPrec(400).Mul(wide(value(dt, bits)), wide(value(dt, factors[r])))
		sum.Add(sum, term)
		size.Add(size, new(big.Float).Abs(term))
	}
	return sum, size
}

// near reports whether got differs from sum/divisor by at most roundings roundings of terms that
// add up to size.
func near(dt tensor.DType, got uint64, sum, size *big.Float, divisor, roundings int) bool {
	v := value(dt, got)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return false
	}
	d := new(big.Float).SetPrec(400).SetInt64(int64(divisor))
	diff := new(big.Float).SetPrec(400).Quo(sum, d)
	diff.Sub(diff, new(big.Float).SetFloat64(v)).Abs(diff)
	bound := new(big.Float).SetPrec(400).Quo(size, d)
	bound.Mul(bound, new(big.Float).SetFloat64(float64(roundings)*epsilon(dt)*1.01))
	return diff.Cmp(bound) <= 0
}

// same reports whether two elements are one number; all NaNs are, and zeros if signs do not count.
func same(dt tensor.DType, a, b uint64, zeros bool) bool {
	if a == b {
		return true
	}
	if !dt.IsFloat() {
		return false
	}
	x, y := value(dt, a), value(dt, b)
	return math.IsNaN(x) && math.IsNaN(y) || zeros && x == 0 && y == 0
}
