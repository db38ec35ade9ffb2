package program

import "slices"

// lenOf returns the number of indices of a space.
func lenOf(space []int) int {
	n := 1
	for _, d := range space {
		n *= d
	}
	return n
}

// bounds returns the first and the last element of its value that v touches; lo > hi if there are
// none.
func (v *View) bounds(space []int) (lo, hi int) {
	lo, hi = v.Offset, v.Offset
	for i, d := range space {
		if d == 0 {
			return 0, -1
		}
		if reach := (d - 1) * v.Strides[i]; reach > 0 {
			hi += reach
		} else {
			lo += reach
		}
	}
	return lo, hi
}

// isMatrix reports whether MatMul takes a view over (batch, rows, columns). One of the last two
// strides is 1. The other is at least the length of its dimension, as BLAS requires.
func isMatrix(space, strides []int) bool {
	if lenOf(space) == 0 {
		return true
	}
	rows, cols := space[1], space[2]
	byRow := (cols == 1 || strides[2] == 1) && (rows == 1 || strides[1] >= cols)
	byCol := (rows == 1 || strides[1] == 1) && (cols == 1 || strides[2] >= rows)
	return (byRow || byCol) && (space[0] == 1 || strides[0] >= 0)
}

// isLines reports whether the last dim of a view has no gaps, and its lines begin at multiples of
// lineStep elements.
func isLines(space []int, v *View) bool {
	if lenOf(space) == 0 {
		return true
	}
	last := len(space) - 1
	for a, d := range space[:last] {
		if d > 1 && (v.Strides[a] < 0 || v.Strides[a]%lineStep != 0) {
			return false
		}
	}
	return v.Offset%lineStep == 0 && (space[last] == 1 || v.Strides[last] == 1)
}

// lineStep is the number of bf16 elements that kernels load at once.
const lineStep = 8

// isInjective reports whether no two indices of the space are one element. It requires that each
// stride exceeds the reach of all shorter ones together. Views made by slicing, transposing and
// reshaping a whole value have that form.
func isInjective(space, strides []int) bool {
	axes := make([]int, 0, len(space))
	for i, d := range space {
		if d == 0 {
			return true
		}
		if d > 1 {
			axes = append(axes, i)
		}
	}
	slices.SortFunc(axes, func(a, b int) int { return abs(strides[a]) - abs(strides[b]) })
	reach := 0
	for _, a := range axes {
		if abs(strides[a]) <= reach {
			return false
		}
		reach += (space[a] - 1) * abs(strides[a])
	}
	return true
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}

// sameView reports whether a and b are the same element at each index of the space.
func sameView(space []int, a, b *View) bool {
	return a.Value == b.Value && sameLook(space, a, b)
}

// sameLook is sameView for views of different values with the same elements.
func sameLook(space []int, a, b *View) bool {
	if a.Offset != b.Offset {
		return false
	}
	for i, d := range space {
		if d != 1 && a.Strides[i] != b.Strides[i] {
			return false
		}
	}
	return true
}

// disjoint reports whether two views of one value share no element. If bounds overlap and the views
// are not blocks of one array, which is rare, it compares elements one by one.
func disjoint(aSpace []int, a *View, bSpace []int, b *View) bool {
	aLo, aHi := a.bounds(aSpace)
	bLo, bHi := b.bounds(bSpace)
	if aHi < aLo || bHi < bLo || aHi < bLo || bHi < aLo {
		return true
	}
	if blocksApart(aSpace, a, bSpace, b) {
		return true
	}
	lo := min(aLo, bLo)
	seen := make([]bool, max(aHi, bHi)-lo+1)
	each(aSpace, a, func(e int) { seen[e-lo] = true })
	free := true
	each(bSpace, b, func(e int) { free = free && !seen[e-lo] })
	return free
}

// blocksApart reports whether two views are blocks of one array, with the same strides, that are
// apart along some axis.
func blocksApart(aSpace []int, a *View, bSpace []int, b *View) bool {
	x, y := blockOf(aSpace, a), blockOf(bSpace, b)
	if len(x) == 0 || len(x) != len(y) {
		return false
	}
	for i := range x {
		if x[i].stride != y[i].stride || i > 0 && (x[i-1].stride%x[i].stride != 0 || max(x[i].to, y[i].to) > x[i-1].stride/x[i].stride) {
			return false
		}
	}
	for i := range x {
		if x[i].to <= y[i].from || y[i].to <= x[i].from {
			return true
		}
	}
	return false
}

// edge is the extent of a block along one axis.
type edge struct{ stride, from, to int }

// blockOf returns a view as a block, the axis with the longest stride first; nil if it is not one.
func blockOf(space []int, v *View) []edge {
	var all []edge
	for i, d := range space {
		if d > 1 {
			all = append(all, edge{v.Strides[i], 0, d})
		}
	}
	slices.SortFunc(all, func(a, b edge) int { return b.stride - a.stride })
	rest := v.Offset
	for i := range all {
		if all[i].stride <= 0 {
			return nil
		}
		all[i].from = rest / all[i].stride
		all[i].to += all[i].from
		rest %= all[i].stride
	}
	if rest != 0 {
		return nil
	}
	return all
}

// each calls f with each element of a view in C order of its space.
func each(space []int, v *View, f func(element int)) {
	if lenOf(space) == 0 {
		return
	}
	index, e := make([]int, len(space)), v.Offset
	for {
		f(e)
		i := len(space) - 1
		for ; i >= 0; i-- {
			index[i]++
			e += v.Strides[i]
			if index[i] < space[i] {
				break
			}
			e -= index[i] * v.Strides[i]
			index[i] = 0
		}
		if i < 0 {
			return
		}
	}
}

// covers reports whether a view touches every element of a value of n elements exactly once.
func (v *View) covers(space []int, n int) bool {
	if lenOf(space) != n || !isInjective(space, v.Strides) {
		return false
	}
	lo, hi := v.bounds(space)
	return n == 0 || lo == 0 && hi == n-1
}
