package program

import (
	"fmt"
	"math"

	"github.com/symgrad/symgrad/tensor"
)

// Integer is Out[0] = Do of In[0] and In[1], for every index of Space, in 64-bit integers that wrap
// around. With Reduced it reduces In[0] by Do: Out[0] has stride 0 on the axes where Reduced is
// true. All Ins have one integer dtype; Out[0] has any, and gets the low bits. Comparisons return 1
// or 0. Do is Load (a converting copy), Add, Sub, Mul, Div, Maximum, Minimum or a comparison; of a
// reduction Add or Maximum. Div truncates toward zero; a divisor of 0 stops the run with an error.
// An empty reduction is 0, or the least integer. Map and Reduce would round large integers, as they
// compute in floating point.
type Integer struct {
	Space   []int
	Reduced []bool // nil for no reduction
	Do      Scalar
}

func (*Integer) op() {}

// String returns "integer add (128)" or "integer maximum (128, 4) over 1".
func (o *Integer) String() string {
	s := fmt.Sprintf("integer %v %s", o.Do, shapeString(o.Space))
	if o.Reduced == nil {
		return s
	}
	var axes []int
	for i, r := range o.Reduced {
		if r {
			axes = append(axes, i)
		}
	}
	return s + " over " + joined(axes, ", ")
}

// Known reports whether the operation is valid for an Integer, and the lengths of its fields agree.
func (o *Integer) Known() bool {
	if o.Reduced != nil {
		return len(o.Reduced) == len(o.Space) && (o.Do == Add || o.Do == Maximum)
	}
	switch o.Do {
	case Load, Add, Sub, Mul, Div, Maximum, Minimum, Less, LessEqual, Greater, GreaterEqual, Equal, NotEqual:
		return true
	}
	return false
}

// ins returns the number of operands.
func (o *Integer) ins() int {
	if o.Reduced != nil || o.Do == Load {
		return 1
	}
	return 2
}

// Integer returns the result of the operation for integers of a dtype, given as the low bits of a
// and b. A divisor is not 0.
func (s Scalar) Integer(dt tensor.DType, a, b int64) int64 {
	unsigned := dt == tensor.U64
	less := func(a, b int64) bool {
		if unsigned {
			return uint64(a) < uint64(b)
		}
		return a < b
	}
	switch s {
	case Add:
		return a + b
	case Sub:
		return a - b
	case Mul:
		return a * b
	case Div:
		if unsigned {
			return int64(uint64(a) / uint64(b))
		}
		return a / b
	case Maximum:
		if less(a, b) {
			return b
		}
	case Minimum:
		if less(b, a) {
			return b
		}
	case Less:
		return truth(less(a, b))
	case LessEqual:
		return truth(!less(b, a))
	case Greater:
		return truth(less(b, a))
	case GreaterEqual:
		return truth(!less(a, b))
	case Equal:
		return truth(a == b)
	case NotEqual:
		return truth(a != b)
	}
	return a
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// EmptyInteger returns the reduction of no integers of a dtype by Add or Maximum.
func (s Scalar) EmptyInteger(dt tensor.DType) int64 {
	if s != Maximum || dt >= tensor.U8 {
		return 0
	}
	return math.MinInt64 >> (64 - 8*dt.Size())
}

// WholeElement returns element i of b, which has integers of type dt, sign-extended; for U64 its
// bits.
func WholeElement(dt tensor.DType, b []byte, i int) int64 {
	bits, size := uint64(0), dt.Size()
	for k := size - 1; k >= 0; k-- {
		bits = bits<<8 | uint64(b[i*size+k])
	}
	if dt < tensor.U8 {
		shift := 64 - 8*size
		return int64(bits<<shift) >> shift
	}
	return int64(bits)
}

// SetWholeElement sets element i of b, which has integers of type dt, to the low bits of x.
func SetWholeElement(dt tensor.DType, b []byte, i int, x int64) {
	for k := range dt.Size() {
		b[i*dt.Size()+k] = byte(x >> (8 * k))
	}
}
