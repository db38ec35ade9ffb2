package hostexec

import (
	"cmp"
	"math"
	"slices"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// maxDims is the most dimensions of a space after dimensions of one element are dropped and
// neighbours merged.
const maxDims = 16

// space is an index space and the strides of some operands over it. Dimensions of one element are
// dropped, and neighbours are merged if the strides of all operands allow it.
type space struct {
	dims    []int
	strides [][]int // of each operand, by dimension
	total   int
}

// newSpace collapses a space. order is the dimensions in the order of the walk, outermost first.
func newSpace(shape, order []int, operands [][]int) *space {
	s := &space{total: 1, strides: make([][]int, len(operands))}
	for _, d := range shape {
		s.total *= d
	}
	for _, d := range order {
		if shape[d] == 1 {
			continue
		}
		if last := len(s.dims) - 1; last >= 0 && s.merges(last, shape[d], d, operands) {
			s.dims[last] *= shape[d]
			for k := range operands {
				s.strides[k][last] = operands[k][d]
			}
			continue
		}
		s.dims = append(s.dims, shape[d])
		for k := range operands {
			s.strides[k] = append(s.strides[k], operands[k][d])
		}
	}
	if len(s.dims) == 0 {
		s.dims = []int{1}
		for k := range operands {
			s.strides[k] = []int{0}
		}
	}
	return s
}

// merges reports whether dimension d, of n elements, can be merged into dimension last of s, for
// all operands.
func (s *space) merges(last, n, d int, operands [][]int) bool {
	for k := range operands {
		if s.strides[k][last] != n*operands[k][d] {
			return false
		}
	}
	return true
}

// inner returns the length of the innermost dimension.
func (s *space) inner() int { return s.dims[len(s.dims)-1] }

// isWhole reports whether strides are those of C order without gaps over the dimensions.
func (s *space) isWhole(strides []int) bool {
	n := 1
	for i := len(s.dims) - 1; i >= 0; i-- {
		if s.dims[i] != 1 && strides[i] != n {
			return false
		}
		n *= s.dims[i]
	}
	return true
}

// isScalar reports whether strides are all 0.
func (s *space) isScalar(strides []int) bool {
	for i, d := range s.dims {
		if d != 1 && strides[i] != 0 {
			return false
		}
	}
	return true
}

// row returns the offset of an operand at the start of row i, over all dimensions except the
// innermost.
func (s *space) row(strides []int, i int) int {
	off := 0
	for d := len(s.dims) - 2; d >= 0; d-- {
		n := s.dims[d]
		off += i % n * strides[d]
		i /= n
	}
	return off
}

// byStride returns the dimensions of a shape in the order of an operand's memory: the largest
// stride first.
func byStride(shape, strides []int) []int {
	order := upTo(len(shape))
	key := func(d int) int {
		if shape[d] == 1 {
			return math.MaxInt
		}
		return strides[d]
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(key(b), key(a)) })
	return order
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// reach returns the first and the last element of a view; lo > hi if it has none.
func reach(shape []int, v *program.View) (lo, hi int) {
	lo, hi = v.Offset, v.Offset
	for i, d := range shape {
		if d == 0 {
			return 0, -1
		}
		if r := (d - 1) * v.Strides[i]; r > 0 {
			hi += r
		} else {
			lo += r
		}
	}
	return lo, hi
}
