package hostexec

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
	"pgregory.net/rapid"
)

var integerTypes = []tensor.DType{tensor.I8, tensor.I16, tensor.I32, tensor.I64, tensor.U8, tensor.U16, tensor.U32, tensor.U64}

// TestIntegersAreThoseOfTheOracle draws operations, types and views, and compares bit by bit.
func TestIntegersAreThoseOfTheOracle(t *testing.T) {
	pairs := []program.Scalar{
		program.Load, program.Add, program.Sub, program.Mul, program.Div, program.Maximum, program.Minimum, program.Less,
		program.LessEqual, program.Greater, program.GreaterEqual, program.Equal, program.NotEqual,
	}
	rapid.Check(t, func(rt *rapid.T) {
		b := newBuild()
		space := drawSpace(rt)
		kept, ins := append([]int(nil), space...), 2
		op := &program.Integer{Space: space, Do: rapid.SampledFrom(pairs).Draw(rt, "op")}
		if rapid.Bool().Draw(rt, "reduce") {
			op.Do = rapid.SampledFrom([]program.Scalar{program.Add, program.Maximum}).Draw(rt, "reduction")
			op.Reduced = []bool{}
			for a := range space {
				op.Reduced = append(op.Reduced, rapid.Bool().Draw(rt, "reduced"))
				if op.Reduced[a] {
					kept[a] = 1
				}
			}
		}
		if op.Reduced != nil || op.Do == program.Load {
			ins = 1
		}
		from := rapid.SampledFrom(integerTypes).Draw(rt, "from")
		var in []program.View
		for range ins {
			in = append(in, drawView(rt, b, from, space, false))
		}
		out := drawView(rt, b, rapid.SampledFrom(integerTypes).Draw(rt, "to"), kept, true)
		for a, reduced := range op.Reduced {
			if reduced {
				out.Strides[a] = 0
			}
		}
		b.step(op, in, []program.View{out})
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		number := func() float64 { return math.Floor(200*r.Float64()) - 100 }
		if op.Do == program.Div {
			number = func() float64 { return math.Floor(100*r.Float64()) + 1 }
		}
		agree(t, rt, &b.Program, contents(&b.Program, number), 0)
	})
}

// TestIntegersAtTheEnds checks that 64 bits wrap around, and the stores of narrow types.
func TestIntegersAtTheEnds(t *testing.T) {
	for _, c := range []struct {
		dt   tensor.DType
		do   program.Scalar
		a, b int64
		want int64
	}{
		{tensor.I64, program.Add, math.MaxInt64, 1, math.MinInt64},
		{tensor.I64, program.Div, math.MinInt64, -1, math.MinInt64},
		{tensor.I64, program.Div, -7, 2, -3},
		{tensor.U64, program.Div, -1, 2, math.MaxInt64},
		{tensor.U64, program.Maximum, -1, 1, -1},
		{tensor.U64, program.Less, 1, -1, 1},
		{tensor.I64, program.Less, 1, -1, 0},
		{tensor.U8, program.Mul, 200, 2, 400},
	} {
		if got := c.do.Integer(c.dt, c.a, c.b); got != c.want {
			t.Errorf("%v %v of %d and %d is %d, want %d", c.dt, c.do, c.a, c.b, got, c.want)
		}
	}
}

func TestAnIntegerDivisorOfZeroStopsTheRun(t *testing.T) {
	b := newBuild()
	in := views(b.value("a", tensor.I32, 4), b.value("b", tensor.I32, 4))
	b.step(&program.Integer{Space: []int{4}, Do: program.Div}, in, views(b.value("quotient", tensor.I32, 4)))
	r, err := New(&b.Program, Config{Threads: 2}, program.Env{})
	if err != nil {
		t.Fatal(err)
	}
	bindAll(t, r, &b.Program, contents(&b.Program, func() float64 { return 0 }))
	if err := r.Run(); err == nil || !strings.Contains(err.Error(), "integer division by zero at element 0") || !strings.Contains(err.Error(), "step 0") {
		t.Errorf("error %v, want the step and the element", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
