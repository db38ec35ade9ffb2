package program

import (
	"cmp"
	"slices"

	"github.com/symgrad/symgrad/tensor"
)

// route maps the elements of a reader's view of a value to the indices at which a step made them.
// Axes of the reader may have to be split: an axis that runs through a row and into the next one is
// two axes of the maker.
type route struct {
	base []int   // maker's index for index 0 of the reader
	legs [][]leg // by axis of the reader, the outermost first
}

// leg is an axis of a reader, or a part of one, along an axis of the maker.
type leg struct {
	dim   int
	axis  int // of the maker; -1 if the reader repeats elements
	times int // distance along axis for each step of the reader
}

// routeOf returns the route of view v over space. The maker wrote the value through by, which
// covers it.
func routeOf(maker []int, by *View, space []int, v *View) (*route, bool) {
	if lenOf(space) == 0 || lenOf(maker) == 0 {
		return nil, false
	}
	axes := radix(maker, by)
	r := &route{make([]int, len(maker)), make([][]leg, len(space))}
	for rest, k := v.Offset, len(axes)-1; k >= 0; k-- {
		q := by.Strides[axes[k]]
		r.base[axes[k]], rest = rest/q, rest%q
	}
	reach := slices.Clone(r.base)
	for a, dim := range space {
		legs, ok := split(maker, by, axes, r.base, dim, v.Strides[a])
		if !ok {
			return nil, false
		}
		for _, l := range legs {
			if l.axis >= 0 {
				reach[l.axis] += l.times * (l.dim - 1)
			}
		}
		r.legs[a] = legs
	}
	for a := range maker {
		if reach[a] >= maker[a] {
			return nil, false // axes of the reader carry into each other
		}
	}
	return r, true
}

// radix returns the axes of a space, sorted by the strides of a view that covers a value, the
// shortest first. They are the digits of element numbers.
func radix(space []int, by *View) []int {
	var axes []int
	for a, d := range space {
		if d > 1 {
			axes = append(axes, a)
		}
	}
	slices.SortFunc(axes, func(a, b int) int { return cmp.Compare(by.Strides[a], by.Strides[b]) })
	return axes
}

// split returns the legs of one axis of a reader.
func split(maker []int, by *View, axes, base []int, dim, stride int) ([]leg, bool) {
	if dim == 1 || stride == 0 {
		return []leg{{dim, -1, 0}}, true
	}
	if stride < 0 {
		return nil, false
	}
	var legs []leg
	for {
		k := len(axes) - 1
		for k >= 0 && by.Strides[axes[k]] > stride {
			k--
		}
		if k < 0 || stride%by.Strides[axes[k]] != 0 {
			return nil, false
		}
		axis := axes[k]
		q, d := by.Strides[axis], maker[axis]
		times := stride / q
		if base[axis]+times*(dim-1) < d {
			legs = append(legs, leg{dim, axis, times})
			slices.Reverse(legs)
			return legs, true
		}
		n := d / times
		if d%times != 0 || base[axis] >= times || dim%max(n, 1) != 0 {
			return nil, false
		}
		legs = append(legs, leg{n, axis, times})
		dim, stride = dim/n, q*d
	}
}

// space returns the reader's space with its axes split.
func (r *route) space() []int {
	var all []int
	for _, legs := range r.legs {
		for _, l := range legs {
			all = append(all, l.dim)
		}
	}
	return all
}

// split returns a view over the reader's space as a view over the split space.
func (r *route) split(v View) View {
	var strides []int
	for a, legs := range r.legs {
		stride, first := v.Strides[a], len(strides)
		for _, l := range slices.Backward(legs) {
			strides = slices.Insert(strides, first, stride)
			stride *= l.dim
		}
	}
	return View{v.Value, v.Offset, strides}
}

// carry returns a view over the maker's space as a view over the split space.
func (r *route) carry(v View) View {
	offset := v.Offset
	for a, b := range r.base {
		offset += b * v.Strides[a]
	}
	var strides []int
	for _, legs := range r.legs {
		for _, l := range legs {
			if l.axis < 0 {
				strides = append(strides, 0)
			} else {
				strides = append(strides, l.times*v.Strides[l.axis])
			}
		}
	}
	return View{v.Value, offset, strides}
}

// whole is carry for a reader whose space must not change: split axes have to join again.
func (r *route) whole(v View) (View, bool) {
	c := r.carry(v)
	strides := make([]int, len(r.legs))
	k := 0
	for a, legs := range r.legs {
		last := k + len(legs) - 1
		strides[a] = c.Strides[last]
		n := 1
		for i := last; i >= k; i-- {
			if r.legs[a][i-k].dim > 1 && c.Strides[i] != strides[a]*n {
				if n > 1 {
					return View{}, false
				}
				strides[a] = c.Strides[i]
			}
			n *= r.legs[a][i-k].dim
		}
		k += len(legs)
	}
	return View{c.Value, c.Offset, strides}, true
}

// repeats reports whether the reader reads some element several times.
func (r *route) repeats() bool {
	for _, legs := range r.legs {
		for _, l := range legs {
			if l.axis < 0 && l.dim > 1 {
				return true
			}
		}
	}
	return false
}

// straight reports whether the reader visits the maker's whole space in order.
func (r *route) straight(maker []int) bool {
	line := r.carry(View{Strides: Contiguous(maker)})
	space := r.space()
	return lenOf(space) == lenOf(maker) && line.Offset == 0 && tensor.Packed(space, line.Strides)
}

// unit returns the route of a space to itself.
func unit(space []int) *route {
	r := &route{make([]int, len(space)), make([][]leg, len(space))}
	for a, d := range space {
		r.legs[a] = []leg{{d, a, 1}}
	}
	return r
}
