package hostexec

import (
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// integerStep is an Integer. A piece is some elements of the result. Integers are rare in graphs,
// so the loop is simple.
type integerStep struct {
	do       program.Scalar
	in       []place
	out      place
	dtype    tensor.DType // of in
	to       tensor.DType // of out
	sp       *space       // of the result: strides of in, then of out
	along    *space       // of the reduced axes, with the strides of in; nil for no reduction
	per      int          // elements of a piece
	elements int
}

// integerCost is the time of an element in picoseconds: index arithmetic, two loads and a store.
const integerCost = 10_000

func newInteger(k *maker, s *program.Step, op *program.Integer) ([]phase, error) {
	if !op.Known() {
		return nil, fmt.Errorf("unknown integer operation %v", op.Do)
	}
	m := &integerStep{
		do: op.Do, out: placeOf(&s.Out[0]), dtype: k.p.Values[s.In[0].Value].DType, to: k.p.Values[s.Out[0].Value].DType,
	}
	strides := [][]int{}
	for i := range s.In {
		m.in = append(m.in, placeOf(&s.In[i]))
		strides = append(strides, s.In[i].Strides)
	}
	strides = append(strides, s.Out[0].Strides)
	kept, reduced, length := upTo(len(op.Space)), []int(nil), 1
	if op.Reduced != nil {
		kept = nil
		for a := range op.Space {
			if op.Reduced[a] {
				reduced, length = append(reduced, a), length*op.Space[a]
			} else {
				kept = append(kept, a)
			}
		}
		m.along = newSpace(op.Space, reduced, strides[:1])
		m.along.total = length
	}
	m.sp = newSpace(op.Space, kept, strides)
	m.elements = 1
	for _, a := range kept {
		m.elements *= op.Space[a]
	}
	m.per = k.perPiece(m.elements, integerCost*max(1, length))
	return []phase{{m, (m.elements + m.per - 1) / m.per}}, nil
}

// at returns the offset of element i of a space in C order.
func (s *space) at(strides []int, i int) int {
	inner := s.inner()
	return s.row(strides, i/inner) + i%inner*strides[len(s.dims)-1]
}

func (m *integerStep) piece(w *worker, i int) {
	out := len(m.sp.strides) - 1
	for e := i * m.per; e < min((i+1)*m.per, m.elements); e++ {
		from := m.sp.at(m.sp.strides[0], e)
		var x int64
		switch {
		case m.along != nil:
			x = m.do.EmptyInteger(m.dtype)
			for r := range m.along.total {
				x = m.do.Integer(m.dtype, x, wholeAt(m.in[0].from(w, from+m.along.at(m.along.strides[0], r)), m.dtype))
			}
		case len(m.in) == 1:
			x = wholeAt(m.in[0].from(w, from), m.dtype)
		default:
			b := wholeAt(m.in[1].from(w, m.sp.at(m.sp.strides[1], e)), m.dtype)
			if m.do == program.Div && b == 0 {
				w.crew.fail(i, fmt.Errorf("integer division by zero at element %d", e))
				return
			}
			x = m.do.Integer(m.dtype, wholeAt(m.in[0].from(w, from), m.dtype), b)
		}
		setWholeAt(m.out.from(w, m.sp.at(m.sp.strides[out], e)), m.to, x)
	}
}

// wholeAt returns the integer at p, with its sign; for U64 its bits.
func wholeAt(p unsafe.Pointer, dt tensor.DType) int64 {
	switch dt {
	case tensor.I8:
		return int64(*(*int8)(p))
	case tensor.I16:
		return int64(*(*int16)(p))
	case tensor.I32:
		return int64(*(*int32)(p))
	case tensor.U8:
		return int64(*(*uint8)(p))
	case tensor.U16:
		return int64(*(*uint16)(p))
	case tensor.U32:
		return int64(*(*uint32)(p))
	}
	return *(*int64)(p)
}

// setWholeAt stores the low bits of x.
func setWholeAt(p unsafe.Pointer, dt tensor.DType, x int64) {
	switch dt.Size() {
	case 1:
		*(*int8)(p) = int8(x)
	case 2:
		*(*int16)(p) = int16(x)
	case 4:
		*(*int32)(p) = int32(x)
	default:
		*(*int64)(p) = x
	}
}
