package reduce

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// number has the element types that accumulate in themselves.
type number interface {
	float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

// native is Into for types that accumulate in themselves. The last step of each tile writes to dst.
// As a step reads element i before it writes element i, dst may be any of the sources.
func native[T number](dst tensor.Buffer, srcs []tensor.Buffer, red dist.RedKind, scalars []uint64) error {
	var tile [tileElems]T
	out, err := tensor.Data[T](dst)
	if err != nil {
		return err
	}
	last := len(srcs) - 1
	for lo := 0; lo < len(out); lo += tileElems {
		hi := min(lo+tileElems, len(out))
		to, acc := out[lo:hi], tile[:hi-lo]
		first, err := tensor.Data[T](srcs[0])
		if err != nil {
			return err
		}
		have := first[lo:hi] // accumulated so far
		if red == dist.RedPreMulSum {
			if last == 0 {
				acc = to
			}
			scale(acc, have, fromBits[T](scalars[0]))
			have = acc
		}
		for r := 1; r <= last; r++ {
			if r == last {
				acc = to
			}
			next, err := tensor.Data[T](srcs[r])
			if err != nil {
				return err
			}
			if red == dist.RedPreMulSum {
				addScaled(acc, have, next[lo:hi], fromBits[T](scalars[r]))
			} else {
				step(acc, have, next[lo:hi], red)
			}
			have = acc
		}
		if red == dist.RedAvg {
			divide(to, len(srcs))
		}
	}
	return nil
}

// step sets out[i] = a[i] red b[i].
func step[T number](out, a, b []T, red dist.RedKind) {
	a, b = a[:len(out)], b[:len(out)]
	switch red {
	case dist.RedSum, dist.RedAvg:
		add(out, a, b)
	case dist.RedProd:
		for i := range out {
			out[i] = a[i] * b[i]
		}
	case dist.RedMin:
		for i := range out {
			out[i] = min(a[i], b[i])
		}
	case dist.RedMax:
		for i := range out {
			out[i] = max(a[i], b[i])
		}
	}
}

// add sets out[i] = a[i] + b[i]. It is unrolled because all gradients pass through it.
func add[T number](out, a, b []T) {
	for len(out) >= 8 && len(a) >= 8 && len(b) >= 8 {
		o, x, y := (*[8]T)(out), (*[8]T)(a), (*[8]T)(b)
		o[0] = x[0] + y[0]
		o[1] = x[1] + y[1]
		o[2] = x[2] + y[2]
		o[3] = x[3] + y[3]
		o[4] = x[4] + y[4]
		o[5] = x[5] + y[5]
		o[6] = x[6] + y[6]
		o[7] = x[7] + y[7]
		out, a, b = out[8:], a[8:], b[8:]
	}
	for i := range out {
		out[i] = a[i] + b[i]
	}
}

// scale sets out[i] = s*a[i].
func scale[T number](out, a []T, s T) {
	a = a[:len(out)]
	for i := range out {
		out[i] = s * a[i]
	}
}

// addScaled sets out[i] = a[i] + s*b[i], the product rounded first: the conversion prevents fusion.
func addScaled[T number](out, a, b []T, s T) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = a[i] + T(s*b[i])
	}
}

// divide sets x[i] /= n. Integers divide in 64 bits, because n may not fit narrow types.
func divide[T number](x []T, n int) {
	var zero T
	switch any(zero).(type) {
	case float32, float64:
		for i := range x {
			x[i] /= T(n)
		}
	case int8, int16, int32, int64:
		for i := range x {
			x[i] = T(int64(x[i]) / int64(n))
		}
	default:
		for i := range x {
			x[i] = T(uint64(x[i]) / uint64(n))
		}
	}
}
