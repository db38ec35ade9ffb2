package oracle

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// collective runs the collective that all ranks have reached.
func collective(ranks []*machine) error {
	first := ranks[0].op()
	n := len(ranks)
	in, out, factors := make([]*array, n), make([]*array, n), make([]float64, n)
	for r, m := range ranks {
		op := m.op()
		if op.Kind != first.Kind || op.Red.Kind != first.Red.Kind || op.Root != first.Root || op.Group != first.Group {
			return fmt.Errorf("rank %d has %v, rank 0 has %v", r, op, first)
		}
		s := &m.p.Steps[m.next]
		demandIn, demandOut, err := m.p.Operands(s)
		if err != nil {
			return err
		}
		in[r] = m.copied(s.In[0], demandIn[0].Space)
		out[r] = m.array(s.Out[0], demandOut[0].Space)
		factors[r] = op.factor()
		if len(s.In) > 1 {
			factors[r] = m.array(s.In[1], nil).at()
		}
		m.next++
	}
	for r, m := range ranks {
		group := m.groups
		if group == nil {
			return first.move(in, out, factors)
		}
		if members := group[first.Group]; members[0] == r {
			if err := first.move(of(members, in), of(members, out), of(members, factors)); err != nil {
				return err
			}
		}
	}
	return nil
}

// of returns the elements of all with these numbers.
func of[T any](numbers []int, all []T) []T {
	some := make([]T, len(numbers))
	for i, k := range numbers {
		some[i] = all[k]
	}
	return some
}

// exchange is a collective with its rules.
type exchange struct{ *program.Collective }

func (m *machine) op() exchange {
	op, _ := m.p.Steps[m.next].Op.(*program.Collective)
	return exchange{op}
}

// copied returns a view's elements in new memory, as a row: collectives may work in place.
func (m *machine) copied(v program.View, space []int) *array {
	a := m.array(v, space)
	n := 1
	for _, d := range space {
		n *= d
	}
	row := &array{dt: a.dt, b: make([]byte, n*a.dt.Size()), space: []int{n}, strides: []int{1}}
	indices(space, func(index []int, k int) { copy(row.bits([]int{k}), a.bits(index)) })
	return row
}

// factor returns the factor of a PreMulSum, if it is a number.
func (x exchange) factor() float64 {
	s := x.Red.Scalar
	if x.Red.Kind != dist.RedPreMulSum || !s.DType.Valid() {
		return 1
	}
	var b [8]byte
	for k := range b {
		b[k] = byte(s.Bits >> (8 * k))
	}
	return program.Element(s.DType, b[:], 0)
}

// move gives each rank its elements.
func (x exchange) move(in, out []*array, factors []float64) error {
	n := len(in)
	if x.Root >= n {
		return fmt.Errorf("%v: there are %d ranks", x, n)
	}
	for r := range n {
		count := out[r].length()
		switch x.Kind {
		case dist.KindReduce, dist.KindGather:
			if r != x.Root {
				continue
			}
		case dist.KindAllReduce, dist.KindBroadcast:
			count = in[r].length()
		}
		if x.Kind == dist.KindBroadcast {
			count = in[x.Root].length()
		}
		if count > out[r].length() {
			return fmt.Errorf("%v: rank %d gets %d elements and has room for %d", x, r, count, out[r].length())
		}
		for k := range count {
			if err := x.element(in, out[r], factors, r, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// element sets element k of rank r.
func (x exchange) element(in []*array, out *array, factors []float64, r, k int) error {
	n := len(in)
	from, at := 0, k
	switch x.Kind {
	case dist.KindAllReduce, dist.KindReduce:
		return x.combine(in, out, factors, k, k)
	case dist.KindReduceScatter:
		return x.combine(in, out, factors, k, r*out.length()+k)
	case dist.KindBroadcast:
		from = x.Root
	case dist.KindAllGather, dist.KindGather:
		block := in[0].length()
		if block == 0 || k >= n*block {
			return nil
		}
		from, at = k/block, k%block
	case dist.KindScatter:
		from, at = x.Root, r*out.length()+k
	case dist.KindAllToAll:
		block := in[r].length() / n
		if block == 0 || k >= n*block {
			return nil
		}
		from, at = k/block, r*block+k%block
	default:
		return fmt.Errorf("%v moves no values", x)
	}
	if at >= in[from].length() || in[from].dt != out.dt {
		return fmt.Errorf("%v: element %d of rank %d, %s, has %d", x, at, from, out.dt, in[from].length())
	}
	copy(out.row(k), in[from].bits([]int{at}))
	return nil
}

func (a *array) length() int {
	n := 1
	for _, d := range a.space {
		n *= d
	}
	return n
}

// row returns the memory of element k of a packed array.
func (a *array) row(k int) []byte {
	n := a.dt.Size()
	return a.b[(a.offset+k)*n : (a.offset+k+1)*n]
}

// combine sets element k of out to the reduction of element at of all ranks, in rank order.
func (x exchange) combine(in []*array, out *array, factors []float64, k, at int) error {
	var acc float64
	for r, a := range in {
		if at >= a.length() || a.dt != out.dt {
			return fmt.Errorf("%v: element %d of rank %d, %s, has %d", x, at, r, out.dt, a.length())
		}
		v := a.at(at)
		if x.Red.Kind == dist.RedPreMulSum {
			v = rounded(a.dt, v*factors[r])
		}
		switch {
		case r == 0:
			acc = v
		case x.Red.Kind == dist.RedProd:
			acc = rounded(a.dt, acc*v)
		case x.Red.Kind == dist.RedMin:
			acc = min(acc, v)
		case x.Red.Kind == dist.RedMax:
			acc = max(acc, v)
		default:
			acc = rounded(a.dt, acc+v)
		}
	}
	if x.Red.Kind == dist.RedAvg {
		acc /= float64(len(in))
	}
	program.SetElement(out.dt, out.row(k), 0, acc)
	return nil
}

// rounded returns x in the type in which sums of dt are accumulated.
func rounded(dt tensor.DType, x float64) float64 {
	if dt == tensor.F64 || !dt.IsFloat() {
		return x
	}
	return float64(float32(x))
}
