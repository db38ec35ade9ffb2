package oracle

import (
	"fmt"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// whole returns the integer at an index.
func (a *array) whole(index []int) int64 { return program.WholeElement(a.dt, a.b, a.element(index)) }

func (a *array) setWhole(x int64, index []int) {
	program.SetWholeElement(a.dt, a.b, a.element(index), x)
}

// integer computes an Integer, element by element.
func integer(op *program.Integer, o *operands) error {
	dt, out := o.in[0].dt, o.out[0]
	if op.Reduced != nil {
		reduceIntegers(op, o)
		return nil
	}
	var err error
	indices(op.Space, func(index []int, n int) {
		b := int64(0)
		if len(o.in) > 1 {
			b = o.in[1].whole(index)
		}
		if op.Do == program.Div && b == 0 {
			if err == nil {
				err = fmt.Errorf("integer division by zero at element %d", n)
			}
			return
		}
		out.setWhole(op.Do.Integer(dt, o.in[0].whole(index), b), index)
	})
	return err
}

func reduceIntegers(op *program.Integer, o *operands) {
	kept := append([]int(nil), op.Space...)
	for a, reduced := range op.Reduced {
		if reduced {
			kept[a] = 1
		}
	}
	x, out := o.in[0], o.out[0]
	results := map[int]int64{}
	indices(kept, func(index []int, _ int) { results[out.element(index)] = op.Do.EmptyInteger(x.dt) })
	indices(op.Space, func(index []int, _ int) {
		e := out.element(index)
		results[e] = op.Do.Integer(x.dt, results[e], x.whole(index))
	})
	indices(kept, func(index []int, _ int) { out.setWhole(results[out.element(index)], index) })
}
