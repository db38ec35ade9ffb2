package hostexec

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
	"pgregory.net/rapid"
)

// view draws a view over a space of a value of its own: permuted, sliced, repeated or as it lies.
func drawView(t *rapid.T, b *build, dt tensor.DType, space []int, out bool) program.View {
	perm := upTo(len(space))
	if rapid.IntRange(0, 2).Draw(t, "permuted") == 0 {
		perm = rapid.Permutation(perm).Draw(t, "permutation")
	}
	shape, strides, offset := make([]int, len(space)), make([]int, len(space)), 0
	gap := rapid.IntRange(0, 3).Draw(t, "gaps") == 0
	n := 1
	for i := len(perm) - 1; i >= 0; i-- {
		d := perm[i]
		if !out && rapid.IntRange(0, 4).Draw(t, "repeated") == 0 {
			shape[i] = 1
			continue
		}
		strides[d], shape[i] = n, space[d]
		if gap && rapid.Bool().Draw(t, "gap") {
			shape[i]++
			offset += n
		}
		n *= shape[i]
	}
	if n == 0 {
		offset = 0
	}
	v := b.value("v", dt, shape...)
	v.Strides, v.Offset = strides, offset
	return v
}

func drawSpace(t *rapid.T) []int {
	space := rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 2, 3, 5, 8, 17, 33, 1, 2, 3}), 0, 4).Draw(t, "space")
	if rapid.IntRange(0, 2).Draw(t, "wide") == 0 {
		space = append(space[:min(2, len(space))], rapid.SampledFrom([]int{64, 127, 130, 257, 700, 1500, 5000}).Draw(t, "last"))
	}
	return space
}

// Operations that are exactly rounded: calm ones, which give no infinities, and wild ones, which
// give infinities and NaN.
var (
	calm = []program.Scalar{
		program.Neg, program.Abs, program.Sign, program.Ceil, program.Floor, program.Add, program.Sub, program.Maximum, program.Minimum,
		program.Less, program.LessEqual, program.Greater, program.GreaterEqual, program.Equal, program.NotEqual, program.Select,
		program.Rand, program.Const, program.ToBF16,
	}
	wild = []program.Scalar{
		program.Neg, program.Abs, program.Ceil, program.Floor, program.Square, program.Cube, program.Sqrt, program.Inverse, program.Add,
		program.Sub, program.Mul, program.Div, program.Maximum, program.Minimum, program.Less, program.Greater, program.NotEqual,
		program.Select, program.Add, program.Mul, program.Rand, program.Const,
		program.Product, program.ToF16,
	}
)

// drawCode draws code of operations that are exactly rounded, so that results are equal bit for
// bit.
func drawCode(t *rapid.T, ops []program.Scalar, ins, rands int) []program.Instr {
	var code []program.Instr
	for i := range ins {
		code = append(code, program.Instr{Op: program.Load, A: i})
	}
	most := rapid.SampledFrom([]int{12, 12, 12, 60}).Draw(t, "most")
	for range rapid.IntRange(0, most).Draw(t, "instrs") {
		in := program.Instr{Op: rapid.SampledFrom(ops).Draw(t, "op")}
		reg := rapid.IntRange(0, max(0, len(code)-1))
		switch n := arity(in.Op); {
		case in.Op == program.Const:
			in.Value = rapid.Float64Range(-3, 3).Draw(t, "constant")
		case in.Op == program.Rand:
			in.Key, in.PerUnit = rapid.Uint64().Draw(t, "key"), rands
		case len(code) == 0:
			in = program.Instr{Op: program.Const, Value: 2}
		case n > 0:
			in.A = reg.Draw(t, "a")
			if n > 1 {
				in.B = reg.Draw(t, "b")
			}
			if n > 2 {
				in.C = reg.Draw(t, "c")
			}
		}
		code = append(code, in)
	}
	if len(code) == 0 {
		code = append(code, program.Instr{Op: program.Const, Value: 3})
	}
	return code
}

var stored = []tensor.DType{
	tensor.F32, tensor.F32, tensor.F32, tensor.F32, tensor.F32, tensor.F16, tensor.BF16, tensor.I32, tensor.U8, tensor.I64, tensor.U64,
}

func (b *build) clock() {
	c := b.value("clock", tensor.U64, 2)
	b.Clock = c.Value
}

func TestRandomMapsEqualTheOracle(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBuild()
		b.clock()
		space := drawSpace(rt)
		dts := stored
		if rapid.IntRange(0, 2).Draw(rt, "double") == 0 {
			dts = append([]tensor.DType{tensor.F64, tensor.F64}, stored...)
		}
		dt := rapid.SampledFrom(dts)
		var in, out []program.View
		for range rapid.IntRange(0, 6).Draw(rt, "ins") {
			in = append(in, drawView(rt, b, dt.Draw(rt, "in"), space, false))
		}
		op := &program.Map{Space: space, Code: drawCode(rt, rapid.SampledFrom([][]program.Scalar{calm, wild}).Draw(rt, "ops"), len(in), 1)}
		for range rapid.IntRange(1, 5).Draw(rt, "outs") {
			v := drawView(rt, b, dt.Draw(rt, "out"), space, true)
			if len(in) > 0 && rapid.IntRange(0, 3).Draw(rt, "in place") == 0 {
				if w := in[rapid.IntRange(0, len(in)-1).Draw(rt, "which")]; !taken(out, w) && injective(space, w.Strides) {
					v = w
				}
			}
			out = append(out, v)
			op.Stores = append(op.Stores, rapid.IntRange(0, len(op.Code)-1).Draw(rt, "store"))
		}
		b.step(op, in, out)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		agree(t, rt, &b.Program, contents(&b.Program, normal(r)), 0)
	})
}

func taken(out []program.View, v program.View) bool {
	for _, o := range out {
		if o.Value == v.Value {
			return true
		}
	}
	return false
}

func injective(space, strides []int) bool {
	for i := range space {
		if space[i] > 1 && strides[i] == 0 {
			return false
		}
	}
	return true
}

func TestRandomReductionsEqualTheOracle(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBuild()
		b.clock()
		space := drawSpace(rt)
		dt := rapid.SampledFrom([]tensor.DType{tensor.F32, tensor.F64, tensor.F32, tensor.BF16, tensor.I32})
		var in []program.View
		for range rapid.IntRange(1, 3).Draw(rt, "ins") {
			in = append(in, drawView(rt, b, dt.Draw(rt, "in"), space, false))
		}
		op := &program.Reduce{Space: space, Red: program.Reduction(rapid.IntRange(0, 1).Draw(rt, "reduction"))}
		for range space {
			op.Reduced = append(op.Reduced, rapid.Bool().Draw(rt, "reduced"))
		}
		op.Code = drawCode(rt, calm, len(in), 1)
		kept := append([]int(nil), space...)
		for i, reduced := range op.Reduced {
			if reduced {
				kept[i] = 1
			}
		}
		outType := rapid.SampledFrom([]tensor.DType{tensor.F32, tensor.F64, tensor.F32, tensor.F16}).Draw(rt, "out")
		v := drawView(rt, b, outType, kept, true)
		for i, reduced := range op.Reduced {
			if reduced {
				v.Strides[i] = 0
			}
		}
		b.step(op, in, []program.View{v})
		// Integers, so that sums are exact in any order.
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		limit := 0.0
		for i := range op.Code {
			switch op.Code[i].Op {
			case program.Div, program.Inverse, program.Sqrt, program.Mul, program.Square, program.Const, program.Rand:
				limit = 1e-4
			}
		}
		agree(t, rt, &b.Program, contents(&b.Program, func() float64 { return float64(r.IntN(9) - 4) }), limit)
	})
}

// Copies of permuted views of all dtypes, exact for integers too.
func TestRandomTranspositionsEqualTheOracle(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBuild()
		space := rapid.SliceOfN(rapid.SampledFrom([]int{1, 2, 3, 8, 9, 13, 16, 40}), 2, 3).Draw(rt, "space")
		if rapid.IntRange(0, 3).Draw(rt, "large") == 0 {
			space = []int{rapid.SampledFrom([]int{255, 300, 130}).Draw(rt, "rows"), rapid.IntRange(8, 50).Draw(rt, "cols")}
		}
		dt := rapid.SampledFrom(tensor.DTypes()).Draw(rt, "dtype")
		in, out := drawView(rt, b, dt, space, false), drawView(rt, b, dt, space, true)
		b.step(&program.Map{Space: space, Code: loadAndAdd[:1], Stores: []int{0}}, views(in), views(out))
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		agree(t, rt, &b.Program, contents(&b.Program, func() float64 { return math.Round(1e13 * r.NormFloat64()) }), 0)
	})
}
