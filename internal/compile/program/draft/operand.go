package draft

import (
	"slices"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// Operand is an operand of steps: a view of a program's value, or one number for all elements.
type Operand struct {
	View  program.View // over shape; unused for a number
	Shape []int
	DType tensor.DType
	IsNum bool
	Num   float64
}

// Number returns an operand whose elements all are v.
func Number(v float64, dt tensor.DType, shape []int) Operand {
	if dt == tensor.F32 {
		v = float64(float32(v))
	}
	return Operand{IsNum: true, Num: v, DType: dt, Shape: shape}
}

// SizeOf returns the number of elements of a shape.
func SizeOf(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// Len returns the number of elements.
func (o *Operand) Len() int { return SizeOf(o.Shape) }

// Permute returns o with its axes reordered: axis i is the old axis axes[i].
func Permute(o Operand, axes []int) Operand {
	r := o
	r.Shape = make([]int, len(axes))
	r.View.Strides = make([]int, len(axes))
	for i, a := range axes {
		r.Shape[i] = o.Shape[a]
		if !o.IsNum {
			r.View.Strides[i] = o.View.Strides[a]
		}
	}
	return r
}

// Cut returns n elements of o along an axis: from, from+step, ...
func Cut(o Operand, axis, from, step, n int) Operand {
	r := o
	r.Shape = slices.Clone(o.Shape)
	r.Shape[axis] = n
	if o.IsNum {
		return r
	}
	r.View.Strides = slices.Clone(o.View.Strides)
	r.View.Offset += from * o.View.Strides[axis]
	r.View.Strides[axis] *= max(step, 1)
	return r
}

// Stretch returns o with an axis of length 1 repeated n times.
func Stretch(o Operand, axis, n int) Operand {
	o.Shape, o.View.Strides = slices.Clone(o.Shape), slices.Clone(o.View.Strides)
	o.Shape[axis] = n
	if !o.IsNum {
		o.View.Strides[axis] = 0
	}
	return o
}

// Part returns n elements of a row of statistics, starting at from.
func Part(o Operand, from, n int) Operand {
	o.View.Offset += from
	o.View.Strides, o.Shape = []int{1}, []int{n}
	return o
}

// regroup returns strides over another shape for the same elements in the same order. It fails
// where one dimension would need two strides.
func regroup(shape, strides, to []int) ([]int, bool) {
	type run struct{ n, stride int }
	var from []run // dimensions that are not 1, neighbours merged
	for i, n := range shape {
		switch last := len(from) - 1; {
		case n == 1:
		case last >= 0 && from[last].stride == n*strides[i]:
			from[last] = run{from[last].n * n, strides[i]}
		default:
			from = append(from, run{n, strides[i]})
		}
	}
	out := make([]int, len(to))
	k := len(from) - 1
	left := run{1, 0} // rest of the run that is being cut
	for i := len(to) - 1; i >= 0; i-- {
		if to[i] == 1 {
			continue
		}
		if left.n == 1 {
			if k < 0 {
				return nil, false
			}
			left = from[k]
			k--
		}
		if left.n%to[i] != 0 {
			return nil, false
		}
		out[i] = left.stride
		left = run{left.n / to[i], left.stride * to[i]}
	}
	return out, left.n == 1 && k < 0
}
