package cudagen

import (
	"slices"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// calm are operations that keep numbers between -1 and 1, and small errors small, in any order.
var calm = []program.Scalar{
	program.ToBF16, program.ToF16, program.Product, program.Neg, program.Abs, program.Tanh, program.Sigmoid, program.Sin, program.Square, program.Mul, program.Maximum, program.Minimum, program.Select,
}

// anyCases is Maps and Reduces of any space, views, chains and dtypes.
func anyCases() *builder {
	b := newBuilder("any")
	for range 120 {
		space := b.space()
		var in []program.View
		for range 1 + b.r.IntN(4) {
			in = append(in, b.look(b.dtype(), space))
		}
		code := b.chain(len(in))
		if b.r.IntN(2) == 0 {
			b.reduceAny(space, in, code)
			continue
		}
		m := &program.Map{Space: space, Code: code}
		var out []program.View
		for range 1 + b.r.IntN(3) {
			m.Stores = append(m.Stores, b.r.IntN(len(code)))
			out = append(out, b.scattered(b.dtype(), space))
		}
		b.step(m, in, out)
	}
	return b
}

// dtype draws one that distinguishes numbers between -1 and 1.
func (b *builder) dtype() tensor.DType {
	return []tensor.DType{tensor.F32, tensor.F32, tensor.F64, tensor.F16, tensor.BF16}[b.r.IntN(5)]
}

func (b *builder) space() []int {
	sizes := []int{1, 2, 3, 4, 8, 17, 32, 40, 64, 100}
	var space []int
	for n := 1; n < 40000 && len(space) < 5; {
		d := sizes[b.r.IntN(len(sizes))]
		if n*d > 60000 {
			break
		}
		space, n = append(space, d), n*d
		if b.r.IntN(4) == 0 {
			break
		}
	}
	if space == nil {
		return []int{}
	}
	return space
}

// scattered is a new value that has a space in some order of its dims, perhaps with gaps and an
// offset.
func (b *builder) scattered(dt tensor.DType, space []int) program.View {
	v := program.View{Offset: b.r.IntN(3) * b.r.IntN(5), Strides: make([]int, len(space))}
	order := make([]int, len(space))
	for d := range order {
		order[d] = d
	}
	if b.r.IntN(2) == 0 {
		b.r.Shuffle(len(order), func(x, y int) { order[x], order[y] = order[y], order[x] })
	}
	n := 1
	for _, d := range slices.Backward(order) {
		v.Strides[d] = n
		n *= space[d]
		if b.r.IntN(6) == 0 {
			n += 4
		}
	}
	v.Value = b.value(dt, bounds{-1, 1}, v.Offset+n)
	return v
}

// look is scattered, with dims that repeat and dims that run backwards.
func (b *builder) look(dt tensor.DType, space []int) program.View {
	v := b.scattered(dt, space)
	for d := range space {
		switch b.r.IntN(8) {
		case 0, 1:
			v.Strides[d] = 0
		case 2:
			v.Offset += v.Strides[d] * (space[d] - 1)
			v.Strides[d] = -v.Strides[d]
		}
	}
	return v
}

// chain is some code that loads from ins Ins. Conditions are loaded as they are, so that rounding
// does not turn them.
func (b *builder) chain(ins int) []program.Instr {
	var code []program.Instr
	for in := range ins {
		code = append(code, load(in))
	}
	code = append(code, constant64(0.75), apply(program.Greater, 0, len(code)))
	for range b.r.IntN(9) {
		n := len(code)
		op := calm[b.r.IntN(len(calm))]
		a, c := b.r.IntN(n), b.r.IntN(n)
		if op == program.Select {
			code = append(code, apply(op, ins+1, a, c))
			continue
		}
		code = append(code, apply(op, a, c))
	}
	return code
}

// reduceAny adds a Reduce over some of the axes.
func (b *builder) reduceAny(space []int, in []program.View, code []program.Instr) {
	r := &program.Reduce{Space: space, Reduced: make([]bool, len(space)), Red: program.Reduction(b.r.IntN(2)), Code: code}
	kept := slices.Clone(space)
	for d := range space {
		if r.Reduced[d] = b.r.IntN(2) == 0; r.Reduced[d] {
			kept[d] = 1
		}
	}
	out := b.scattered([]tensor.DType{tensor.F32, tensor.F64}[b.r.IntN(2)], kept)
	for d := range space {
		if r.Reduced[d] {
			out.Strides[d] = 0
		}
	}
	b.step(r, in, views(out))
}
