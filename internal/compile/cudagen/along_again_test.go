package cudagen

import (
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// A softmax that is recomputed for its gradient, from scores in bf16, is one launch with the steps
// before and after it. It writes only the operand of the next product.
func TestASoftmaxComputedAgainIsOneLaunch(t *testing.T) {
	const rows, axis, depth = 300, 128, 4
	b := newBare("attention")
	arena := func(shape ...int) program.View {
		return b.p.Whole(b.p.Add(program.Value{DType: tensor.F32, Shape: shape, Place: program.Arena}))
	}
	outside := func(shape ...int) program.View { return b.whole(tensor.F32, bounds{}, shape...) }
	inRows := func(v program.View) program.View {
		return program.View{Value: v.Value, Strides: []int{axis, 1, 1}}
	}
	half := []program.Instr{load(0), constant64(0.5), apply(program.Mul, 0, 1)}
	product := func(m, n, k int, x, y, to program.View) {
		b.step(&program.MatMul{Batch: 1, M: m, N: n, K: k, Alpha: 1}, views(x, y), views(to))
	}
	scores, scaled, soft, dy, dx, dscores := arena(1, rows, axis), arena(1, rows, axis), arena(1, rows, axis), arena(1, rows, axis), arena(1, rows, axis), arena(1, rows, axis)
	product(rows, axis, depth, outside(1, rows, depth), outside(1, depth, axis), scores)
	b.step(&program.Map{Space: []int{1, rows, axis}, Code: half, Stores: []int{2}}, views(scores), views(scaled))
	b.step(&program.Softmax{Outer: rows, Axis: axis, Inner: 1}, views(inRows(scaled)), views(inRows(soft)))
	product(rows, depth, axis, soft, outside(1, axis, depth), outside(1, rows, depth))
	product(rows, axis, depth, outside(1, rows, depth), outside(1, depth, axis), dy)
	b.step(&program.SoftmaxGrad{Outer: rows, Axis: axis, Inner: 1}, views(inRows(soft), inRows(dy)), views(inRows(dx)))
	b.step(&program.Map{Space: []int{1, rows, axis}, Code: half, Stores: []int{2}}, views(dx), views(dscores))
	product(rows, depth, axis, dscores, outside(1, axis, depth), outside(1, rows, depth))
	b.p.Narrow, b.p.Again, b.p.Rows = 1, true, true
	if err := program.Optimize(b.p); err != nil {
		t.Fatal(err)
	}
	if err := program.Plan(b.p); err != nil {
		t.Fatal(err)
	}
	_, steps, err := Generate(b.p, Target{SMs: 132})
	if err != nil {
		t.Fatal(err)
	}
	first := 0 // the step after a product
	for i, s := range b.p.Steps {
		switch s.Op.(type) {
		case *program.MatMul:
			first = i + 1
		case *program.SoftmaxGrad:
			for k := first; k <= i+1; k++ {
				if got := len(steps[k].Kernels); (got == 1) != (k == first) {
					t.Errorf("step %d has %d launches\n%v", k, got, b.p)
				}
			}
			if i != first+3 {
				t.Errorf("step %d comes behind a product, step %d is the gradient\n%v", first, i, b.p)
			}
		}
	}
}
