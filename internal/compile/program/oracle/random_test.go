package oracle_test

import (
	"encoding/binary"
	"math"
	"slices"

	"pgregory.net/rapid"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// thing is a view over a shape.
type thing struct {
	view  program.View
	shape []int
}

// maker makes a random program.
type maker struct {
	t      *rapid.T
	p      *program.Program
	things []thing
	states []program.ID
}

func randomProgram(t *rapid.T) *program.Program {
	m := &maker{t: t, p: &program.Program{Name: "random", Clock: program.None}}
	m.p.Clock = m.p.Add(program.Value{Name: "clock", DType: tensor.U64, Shape: []int{2}, Role: program.Input, Place: program.Outside})
	for range m.n(1, 4) {
		m.outside()
	}
	for range m.n(0, 3) {
		m.constant()
	}
	for range m.n(1, 24) {
		m.step()
	}
	for i := range m.p.Values {
		v := &m.p.Values[i]
		if v.Place == program.Arena && (m.n(0, 5) == 0 || i == len(m.p.Values)-1) {
			v.Role = program.Output
		}
	}
	return m.p
}

func (m *maker) n(lo, hi int) int { return rapid.IntRange(lo, hi).Draw(m.t, "n") }

func (m *maker) shape() []int {
	s := make([]int, m.n(0, 3))
	for i := range s {
		s[i] = []int{1, 2, 3, 4, 6}[m.n(0, 4)]
	}
	return s
}

func (m *maker) dtype() tensor.DType {
	return []tensor.DType{tensor.F32, tensor.F32, tensor.F32, tensor.F32, tensor.F32, tensor.F64, tensor.I32}[m.n(0, 6)]
}

func (m *maker) whole(id program.ID) thing {
	return thing{m.p.Whole(id), slices.Clone(m.p.Values[id].Shape)}
}

func (m *maker) outside() {
	id := m.p.Add(program.Value{Name: "outside", DType: m.dtype(), Shape: m.shape(), Role: program.State, Place: program.Outside})
	m.things = append(m.things, m.whole(id))
	m.states = append(m.states, id)
}

func (m *maker) constant() {
	shape := m.shape()
	v := program.Value{Name: "constant", DType: tensor.F32, Shape: shape, Place: program.Constant}
	same := m.n(0, 1) == 0
	x := m.number()
	for range v.Len() {
		if !same {
			x = m.number()
		}
		v.Data = binary.LittleEndian.AppendUint32(v.Data, math.Float32bits(float32(x)))
	}
	m.things = append(m.things, m.whole(m.p.Add(v)))
}

func (m *maker) number() float64 {
	return []float64{0, math.Copysign(0, -1), 1, -1, 2, 0.5, 3, -0.7, 1e-3}[m.n(0, 8)]
}

// any returns a random view of a thing.
func (m *maker) any() thing {
	x := m.things[m.n(0, len(m.things)-1)]
	x.view.Strides, x.shape = slices.Clone(x.view.Strides), slices.Clone(x.shape)
	for range m.n(0, 2) {
		m.look(&x)
	}
	return x
}

// look transposes, slices, splits, or joins axes.
func (m *maker) look(x *thing) {
	n := len(x.shape)
	if n == 0 {
		return
	}
	a := m.n(0, n-1)
	switch m.n(0, 4) {
	case 0:
		b := m.n(0, n-1)
		x.shape[a], x.shape[b] = x.shape[b], x.shape[a]
		x.view.Strides[a], x.view.Strides[b] = x.view.Strides[b], x.view.Strides[a]
	case 1:
		from := m.n(0, x.shape[a]-1)
		to := m.n(from+1, x.shape[a])
		x.view.Offset += from * x.view.Strides[a]
		x.shape[a] = to - from
	case 2:
		for _, d := range []int{2, 3} {
			if x.shape[a]%d == 0 {
				s := x.view.Strides[a]
				x.shape = slices.Insert(x.shape, a+1, d)
				x.view.Strides = slices.Insert(x.view.Strides, a+1, s)
				x.shape[a] /= d
				x.view.Strides[a] *= d
				return
			}
		}
	case 3:
		if a+1 < n && x.view.Strides[a] == x.view.Strides[a+1]*x.shape[a+1] {
			x.shape[a+1] *= x.shape[a]
			x.shape = slices.Delete(x.shape, a, a+1)
			x.view.Strides = slices.Delete(x.view.Strides, a, a+1)
		}
	case 4:
		if n < 4 {
			x.shape = slices.Insert(x.shape, a, 2)
			x.view.Strides = slices.Insert(x.view.Strides, a, 0)
		}
	}
}

// like returns a view over a shape: a thing of that shape, a repeated part of one, or one number.
func (m *maker) like(shape []int) program.View {
	for range 4 {
		x := m.any()
		if slices.Equal(x.shape, shape) {
			return x.view
		}
	}
	x := m.any()
	strides := make([]int, len(shape))
	if n := len(shape) - 1; n >= 0 && len(x.shape) > 0 && x.shape[len(x.shape)-1] == shape[n] {
		strides[n] = x.view.Strides[len(x.shape)-1]
	}
	return program.View{Value: x.view.Value, Offset: x.view.Offset, Strides: strides}
}

// temp returns a new value as a view over shape; sometimes its memory has another order.
func (m *maker) temp(dt tensor.DType, shape []int) thing {
	order := make([]int, len(shape))
	for i := range order {
		order[i] = i
	}
	if m.n(0, 3) == 0 {
		order = rapid.Permutation(order).Draw(m.t, "order")
	}
	memory := make([]int, len(shape))
	for i, a := range order {
		memory[i] = shape[a]
	}
	id := m.p.Add(program.Value{Name: "temp", DType: dt, Shape: memory})
	strides := make([]int, len(shape))
	for i, s := range program.Contiguous(memory) {
		strides[order[i]] = s
	}
	return thing{program.View{Value: id, Strides: strides}, slices.Clone(shape)}
}

func (m *maker) add(s program.Step, results ...thing) {
	m.p.Steps = append(m.p.Steps, s)
	m.things = append(m.things, results...)
}

func (m *maker) step() {
	switch m.n(0, 12) {
	case 0, 1, 2, 3, 4:
		m.mapped(m.any().shape)
	case 5, 6:
		m.reduce()
	case 7:
		m.products()
	case 8:
		m.softmax()
	case 9:
		m.update()
	case 10:
		m.copyOut()
	case 11:
		m.parts()
	case 12:
		m.allReduce()
	}
}

func (m *maker) code(ins int) []program.Instr {
	var code []program.Instr
	for k := range ins {
		code = append(code, program.Instr{Op: program.Load, A: k})
	}
	ops := []program.Scalar{
		program.Const, program.Rand, program.Neg, program.Abs, program.Tanh, program.Square, program.Add, program.Add, program.Sub,
		program.Mul, program.Mul, program.Div, program.Maximum, program.Less, program.GreaterEqual, program.Select,
	}
	for range m.n(0, 4) {
		r := len(code) - 1
		in := program.Instr{Op: ops[m.n(0, len(ops)-1)]}
		switch {
		case in.Op == program.Const:
			in.Value = m.number()
		case in.Op == program.Rand:
			in.Key = uint64(m.n(1, 2))
		case r < 0:
			continue
		default:
			in.A, in.B, in.C = m.n(0, r), m.n(0, r), m.n(0, r)
		}
		code = append(code, in)
	}
	if len(code) == 0 {
		code = append(code, program.Instr{Op: program.Const, Value: m.number()})
	}
	return code
}

func (m *maker) inputs(shape []int) []program.View {
	var in []program.View
	for range m.n(0, 3) {
		in = append(in, m.like(shape))
	}
	return in
}

func (m *maker) mapped(shape []int) {
	in := m.inputs(shape)
	op := &program.Map{Space: shape, Code: m.code(len(in))}
	s := program.Step{Name: "map", Op: op, In: in}
	var results []thing
	for range m.n(1, 2) {
		op.Stores = append(op.Stores, m.n(0, len(op.Code)-1))
		x := m.temp(m.dtype(), shape)
		s.Out = append(s.Out, x.view)
		results = append(results, x)
	}
	m.add(s, results...)
}

func (m *maker) reduce() {
	shape := m.any().shape
	in := m.inputs(shape)
	op := &program.Reduce{Space: shape, Code: m.code(len(in)), Red: program.Reduction(m.n(0, 1))}
	var kept, axes []int
	for a, d := range shape {
		op.Reduced = append(op.Reduced, m.n(0, 1) == 0)
		if !op.Reduced[a] {
			kept, axes = append(kept, d), append(axes, a)
		}
	}
	x := m.temp(tensor.F32, kept)
	strides := make([]int, len(shape))
	for k, a := range axes {
		strides[a] = x.view.Strides[k]
	}
	m.add(program.Step{Name: "reduce", Op: op, In: in, Out: []program.View{{Value: x.view.Value, Strides: strides}}}, x)
}

// float returns a thing of f32 and rank n, or nothing.
func (m *maker) float(n int) (thing, bool) {
	for range 8 {
		x := m.any()
		if len(x.shape) == n && m.p.Values[x.view.Value].DType == tensor.F32 {
			return x, true
		}
	}
	return thing{}, false
}

// product multiplies a by its transpose, or by another matrix that fits.
func (m *maker) product(a thing, rows, cols bool) (thing, bool) {
	b, ok := m.float(2)
	if !ok || b.shape[0] != a.shape[1] {
		b = thing{program.View{Value: a.view.Value, Offset: a.view.Offset, Strides: []int{a.view.Strides[1], a.view.Strides[0]}}, []int{a.shape[1], a.shape[0]}}
	}
	batch := func(v program.View) program.View {
		return program.View{Value: v.Value, Offset: v.Offset, Strides: append([]int{0}, v.Strides...)}
	}
	shape := []int{a.shape[0], b.shape[1]}
	out := m.temp(tensor.F32, shape)
	op := &program.MatMul{Batch: 1, M: shape[0], N: shape[1], K: a.shape[1], Alpha: 1}
	m.add(program.Step{Name: "product", Op: op, In: []program.View{batch(a.view), batch(b.view)}, Out: []program.View{batch(out.view)}}, out)
	return out, true
}

// products adds a product, or the sum of two.
func (m *maker) products() {
	a, ok := m.float(2)
	if !ok {
		return
	}
	x, _ := m.product(a, true, true)
	if m.n(0, 1) == 0 {
		return
	}
	y, _ := m.product(a, true, true)
	if !slices.Equal(x.shape, y.shape) {
		return
	}
	out := m.temp(tensor.F32, x.shape)
	code := []program.Instr{{Op: program.Load}, {Op: program.Load, A: 1}, {Op: program.Add, A: 0, B: 1}}
	op := &program.Map{Space: x.shape, Code: code, Stores: []int{2}}
	m.add(program.Step{Name: "sum", Op: op, In: []program.View{x.view, y.view}, Out: []program.View{out.view}}, out)
}

func (m *maker) softmax() {
	x, ok := m.float(3)
	if !ok {
		return
	}
	y := m.temp(tensor.F32, x.shape)
	op := &program.Softmax{Outer: x.shape[0], Axis: x.shape[1], Inner: x.shape[2], Log: m.n(0, 1) == 0}
	m.add(program.Step{Name: "softmax", Op: op, In: []program.View{x.view}, Out: []program.View{y.view}}, y)
}

// update changes a state element by element in place.
func (m *maker) update() {
	id := m.states[m.n(0, len(m.states)-1)]
	x := m.whole(id)
	in := []program.View{x.view}
	for range m.n(0, 2) {
		if v := m.like(x.shape); v.Value != id {
			in = append(in, v)
		}
	}
	code := m.code(len(in))
	op := &program.Map{Space: x.shape, Code: code, Stores: []int{len(code) - 1}}
	m.add(program.Step{Name: "update", Op: op, In: in, Out: []program.View{x.view}})
}

// copyOut copies something into a state.
func (m *maker) copyOut() {
	x := m.any()
	for _, id := range m.states {
		v := &m.p.Values[id]
		if v.DType == m.p.Values[x.view.Value].DType && id != x.view.Value && slices.Equal(v.Shape, x.shape) {
			op := &program.Map{Space: x.shape, Code: []program.Instr{{Op: program.Load}}, Stores: []int{0}}
			m.add(program.Step{Name: "copy", Op: op, In: []program.View{x.view}, Out: []program.View{m.p.Whole(id)}})
			return
		}
	}
}

// parts writes two halves of a value.
func (m *maker) parts() {
	x := m.any()
	if len(x.shape) == 0 {
		return
	}
	shape := slices.Clone(x.shape)
	shape[0] *= 2
	out := m.whole(m.p.Add(program.Value{Name: "parts", DType: tensor.F32, Shape: shape}))
	for k := range 2 {
		code := []program.Instr{{Op: program.Load}}
		v := x.view
		if k == 1 {
			v = m.like(x.shape)
		}
		to := out.view
		to.Offset = k * x.shape[0] * to.Strides[0]
		m.add(program.Step{Name: "part", Op: &program.Map{Space: x.shape, Code: code, Stores: []int{0}}, In: []program.View{v}, Out: []program.View{to}})
	}
	m.things = append(m.things, out)
}

// allReduce sums a value over the ranks, in place or into a new one.
func (m *maker) allReduce() {
	x := m.things[m.n(0, len(m.things)-1)]
	v := m.p.Values[x.view.Value]
	if x.view.Value == m.p.Clock || v.Place == program.Constant {
		return
	}
	in := m.p.Whole(x.view.Value)
	op := &program.Collective{Kind: dist.KindAllReduce, Red: dist.Sum}
	if v.Place == program.Outside && m.n(0, 1) == 0 {
		m.add(program.Step{Name: "allreduce", Op: op, In: []program.View{in}, Out: []program.View{in}})
		return
	}
	out := m.whole(m.p.Add(program.Value{Name: "reduced", DType: v.DType, Shape: v.Shape}))
	m.add(program.Step{Name: "allreduce", Op: op, In: []program.View{in}, Out: []program.View{out.view}}, out)
}
