package machine

import (
	"slices"

	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/tensor"
)

// operand is the value of a node during lowering: a view of a program's value, or one number for
// all elements.
type operand struct {
	view  program.View // over shape; unused for a number
	shape []int
	dtype tensor.DType
	isNum bool
	num   float64
}

func number(v float64, dt tensor.DType, shape []int) operand {
	if dt == tensor.F32 {
		v = float64(float32(v))
	}
	return operand{isNum: true, num: v, dtype: dt, shape: shape}
}

func sizeOf(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func (o *operand) len() int { return sizeOf(o.shape) }

// permute returns o with its axes reordered: axis i is the old axis axes[i].
func permute(o operand, axes []int) operand {
	r := o
	r.shape = make([]int, len(axes))
	r.view.Strides = make([]int, len(axes))
	for i, a := range axes {
		r.shape[i] = o.shape[a]
		if !o.isNum {
			r.view.Strides[i] = o.view.Strides[a]
		}
	}
	return r
}

// cut returns n elements of o along an axis: from, from+step, ...
func cut(o operand, axis, from, step, n int) operand {
	r := o
	r.shape = slices.Clone(o.shape)
	r.shape[axis] = n
	if o.isNum {
		return r
	}
	r.view.Strides = slices.Clone(o.view.Strides)
	r.view.Offset += from * o.view.Strides[axis]
	r.view.Strides[axis] *= max(step, 1)
	return r
}

// stretch returns o with an axis of length 1 repeated n times.
func stretch(o operand, axis, n int) operand {
	o.shape, o.view.Strides = slices.Clone(o.shape), slices.Clone(o.view.Strides)
	o.shape[axis] = n
	if !o.isNum {
		o.view.Strides[axis] = 0
	}
	return o
}

// part returns n elements of a row of statistics, starting at from.
func part(o operand, from, n int) operand {
	o.view.Offset += from
	o.view.Strides, o.shape = []int{1}, []int{n}
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
