package program

import (
	"math"
	"testing"

	"github.com/symgrad/symgrad/tensor"
)

func TestTidyKeepsBits(t *testing.T) {
	zero, minus := 0.0, math.Copysign(0, -1)
	number := func(x float64) Instr { return Instr{Op: Const, Value: x} }
	tests := map[string]struct {
		code []Instr // register 0 is a load
		want string
		n    int // instructions left
	}{
		"x*1":            {[]Instr{number(1), {Op: Mul, A: 0, B: 1}}, "copy", 1},
		"1*x":            {[]Instr{number(1), {Op: Mul, A: 1, B: 0}}, "copy", 1},
		"x*-1":           {[]Instr{number(-1), {Op: Mul, A: 0, B: 1}}, "neg", 2},
		"x/1":            {[]Instr{number(1), {Op: Div, A: 0, B: 1}}, "copy", 1},
		"x/8":            {[]Instr{number(8), {Op: Div, A: 0, B: 1}}, "mul", 3},
		"x/10":           {[]Instr{number(10), {Op: Div, A: 0, B: 1}}, "div", 3},
		"x/0":            {[]Instr{number(0), {Op: Div, A: 0, B: 1}}, "div", 3},
		"x+0":            {[]Instr{number(zero), {Op: Add, A: 0, B: 1}}, "add", 3},
		"x+-0":           {[]Instr{number(minus), {Op: Add, A: 0, B: 1}}, "copy", 1},
		"x-0":            {[]Instr{number(zero), {Op: Sub, A: 0, B: 1}}, "copy", 1},
		"x--0":           {[]Instr{number(minus), {Op: Sub, A: 0, B: 1}}, "sub", 3},
		"x*0":            {[]Instr{number(0), {Op: Mul, A: 0, B: 1}}, "mul", 3},
		"--x":            {[]Instr{{Op: Neg}, {Op: Neg, A: 1}}, "copy", 1},
		"2+3":            {[]Instr{number(2), number(3), {Op: Add, A: 1, B: 2}}, "fill", 1},
		"exp x twice":    {[]Instr{{Op: Exp}, {Op: Exp}, {Op: Add, A: 1, B: 2}}, "exp, add", 3},
		"0 and -0":       {[]Instr{number(zero), number(minus), {Op: Equal, A: 0, B: 1}, {Op: Select, A: 3, B: 2, C: 0}}, "equal, select", 5},
		"a known choice": {[]Instr{number(1), {Op: Exp}, {Op: Select, A: 1, B: 0, C: 2}}, "copy", 1},
	}
	p := &Program{Values: []Value{{DType: tensor.F32, Shape: []int{4}, Place: Outside}}}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			e := &elementwise{[]int{4}, []View{p.Whole(0)}, append([]Instr{{Op: Load}}, c.code...), []int{len(c.code)}}
			got := e.tidy(p, true)
			if codeString(got.code) != c.want || len(got.code) != c.n {
				t.Errorf("got %v, want %q in %d", got.code, c.want, c.n)
			}
		})
	}
}

func TestTidyLoadsUniformConstantsAsNumbers(t *testing.T) {
	big := make([]byte, 16)
	for i := range 2 {
		SetElement(tensor.I64, big, i, 1<<40)
	}
	p := &Program{Values: []Value{
		{DType: tensor.F32, Shape: []int{2}, Place: Constant, Data: []byte{0, 0, 128, 63, 0, 0, 128, 63}},
		{DType: tensor.F32, Shape: []int{2}, Place: Constant, Data: []byte{0, 0, 128, 63, 0, 0, 0, 64}},
		{DType: tensor.I64, Shape: []int{2}, Place: Constant, Data: big},
	}}
	for id, want := range []Scalar{Const, Load, Load} {
		e := &elementwise{[]int{2}, []View{p.Whole(ID(id))}, []Instr{{Op: Load}}, []int{0}}
		if got := e.tidy(p, true); got.code[0].Op != want {
			t.Errorf("value %d: %v, want %v", id, got.code[0].Op, want)
		}
	}
}

func TestElementsKeepTheirBits(t *testing.T) {
	b := make([]byte, 8)
	for _, dt := range tensor.DTypes() {
		for _, x := range []float64{0, 1, 2, 100} {
			if SetElement(dt, b, 0, x); Element(dt, b, 0) != x {
				t.Errorf("%v: %g became %g", dt, x, Element(dt, b, 0))
			}
		}
	}
	SetElement(tensor.U64, b, 0, math.Ldexp(1, 70))
	if got := Element(tensor.U64, b, 0); got != math.Ldexp(1, 64) {
		t.Errorf("the largest u64 is %g", got)
	}
	SetElement(tensor.I8, b, 0, -1e9)
	if got := Element(tensor.I8, b, 0); got != -128 {
		t.Errorf("the smallest i8 is %g", got)
	}
}
