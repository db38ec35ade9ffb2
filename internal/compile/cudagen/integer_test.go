package cudagen

import (
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// integerCases is each operation and type, reductions along some axes and all, and views that are
// not packed.
func integerCases() *builder {
	b := newBuilder("integers")
	types := []tensor.DType{tensor.I8, tensor.I16, tensor.I32, tensor.I64, tensor.U8, tensor.U16, tensor.U32, tensor.U64}
	pairs := []program.Scalar{
		program.Add, program.Sub, program.Mul, program.Div, program.Maximum, program.Minimum, program.Less, program.LessEqual,
		program.Greater, program.GreaterEqual, program.Equal, program.NotEqual,
	}
	for i, dt := range types {
		one := bounds{1, 100}
		to := types[(i+3)%len(types)]
		for _, do := range pairs {
			b.step(&program.Integer{Space: []int{7, 90}, Do: do},
				views(b.whole(dt, one, 7, 90), b.broadcast(dt, one, []int{7, 90}, 1)), views(b.empty(to, 7, 90)))
		}
		transposed := program.View{Value: b.value(dt, one, 90, 7), Strides: []int{1, 7}}
		b.step(&program.Integer{Space: []int{7, 90}, Do: program.Load}, views(transposed), views(b.empty(to, 7, 90)))
		for _, do := range []program.Scalar{program.Add, program.Maximum} {
			rows := b.empty(dt, 7)
			rows.Strides = []int{1, 0}
			b.step(&program.Integer{Space: []int{7, 900}, Reduced: []bool{false, true}, Do: do}, views(b.whole(dt, one, 7, 900)), views(rows))
			all := program.View{Value: b.value(dt, bounds{7, 7}), Strides: []int{0, 0}}
			b.step(&program.Integer{Space: []int{7, 90}, Reduced: []bool{true, true}, Do: do}, views(transposed), views(all))
			none := program.View{Value: b.value(dt, bounds{7, 7}, 7), Strides: []int{1, 0}}
			b.step(&program.Integer{Space: []int{7, 0}, Reduced: []bool{false, true}, Do: do}, views(b.whole(dt, one, 7, 0)), views(none))
		}
	}
	return b
}

func TestAnIntegerWithoutAKernelIsRefused(t *testing.T) {
	b := newBare("pow")
	in := views(b.whole(tensor.I64, bounds{}, 3), b.whole(tensor.I64, bounds{}, 3))
	b.step(&program.Integer{Space: []int{3}, Do: program.Pow}, in, views(b.empty(tensor.I64, 3)))
	if _, _, err := Generate(b.p, b.target()); err == nil || !strings.Contains(err.Error(), "no kernel for integer pow") {
		t.Errorf("error %v, want the operation", err)
	}
}
