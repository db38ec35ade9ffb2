package reduce

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// half16 has the element types that accumulate in float32.
type half16 interface {
	tensor.Float16 | tensor.BFloat16
	Float32() float32
}

// half is Into for f16 and bf16: each tile is widened, combined in float32 and rounded once at the
// end.
func half[T half16](dst tensor.Buffer, srcs []tensor.Buffer, red dist.RedKind, scalars []uint64) error {
	var acc, next [tileElems]float32
	out, err := tensor.Data[T](dst)
	if err != nil {
		return err
	}
	for lo := 0; lo < len(out); lo += tileElems {
		hi := min(lo+tileElems, len(out))
		for r := range srcs {
			src, err := tensor.Data[T](srcs[r])
			if err != nil {
				return err
			}
			to := acc[:hi-lo]
			if r > 0 {
				to = next[:hi-lo]
			}
			widen(to, src[lo:hi])
			if red == dist.RedPreMulSum {
				scale(to, to, T(scalars[r]).Float32())
			}
			switch {
			case r == 0:
			case red == dist.RedPreMulSum: // a sum of rounded products
				add(acc[:hi-lo], acc[:hi-lo], to)
			default:
				step(acc[:hi-lo], acc[:hi-lo], to, red)
			}
		}
		if red == dist.RedAvg {
			divide(acc[:hi-lo], len(srcs))
		}
		round(out[lo:hi], acc[:hi-lo])
	}
	return nil
}

// widen sets out[i] = in[i], exactly. Both types share one generic instantiation, in which Float32
// would be an indirect call; the switch allows inlining.
func widen[T half16](out []float32, in []T) {
	switch in := any(in).(type) {
	case []tensor.Float16:
		in = in[:len(out)]
		for i := range out {
			out[i] = in[i].Float32()
		}
	case []tensor.BFloat16:
		in = in[:len(out)]
		for i := range out {
			out[i] = in[i].Float32()
		}
	}
}

// round sets out[i] = in[i], rounded to nearest, ties to even.
func round[T half16](out []T, in []float32) {
	in = in[:len(out)]
	switch out := any(out).(type) {
	case []tensor.Float16:
		for i := range out {
			out[i] = tensor.ToFloat16(in[i])
		}
	case []tensor.BFloat16:
		for i := range out {
			out[i] = tensor.ToBFloat16(in[i])
		}
	}
}
