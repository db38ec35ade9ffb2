package cudaexec

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// builder makes programs that train: layers forward, their gradients backward, an update of each
// weight.
type builder struct {
	p      *program.Program
	memory map[program.ID][]byte // of each Outside value
	r      *rand.Rand
	ranks  int // more than 1: gradients are summed over the groups in turn
	groups int
	sums   int
	x      program.ID
	target program.ID
	loss   program.ID
}

func newBuilder(name string, seed uint64) *builder {
	return &builder{
		p: &program.Program{Name: name, Clock: program.None}, memory: map[program.ID][]byte{}, r: rand.New(rand.NewPCG(seed, 3)), ranks: 1, groups: 1,
	}
}

// outside is a value with numbers between low and high.
func (b *builder) outside(name string, role program.Role, low, high float64, shape ...int) program.ID {
	id := b.p.Add(program.Value{Name: name, DType: tensor.F32, Shape: shape, Place: program.Outside, Role: role})
	v := &b.p.Values[id]
	b.memory[id] = numbers(b.r, v.DType, v.Len(), low, high)
	return id
}

// numbers is n elements between low and high, aligned for all types.
func numbers(r *rand.Rand, dt tensor.DType, n int, low, high float64) []byte {
	data := room(int64(n * dt.Size()))
	for i := range n {
		program.SetElement(dt, data, i, low+(high-low)*r.Float64())
	}
	return data
}

// room is n bytes, aligned for all types.
func room(n int64) []byte {
	words := make([]uint64, max((n+7)/8, 1))
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), n)
}

// temp is a value of the arena.
func (b *builder) temp(name string, shape ...int) program.ID {
	return b.p.Add(program.Value{Name: name, DType: tensor.F32, Shape: shape})
}

func (b *builder) step(name string, op program.Op, in, out []program.View) {
	b.p.Steps = append(b.p.Steps, program.Step{Name: name, Op: op, In: in, Out: out})
}

func views(v ...program.View) []program.View { return v }

// matrixOf is (1, rows, cols) of a value of rows by cols, or of its transpose.
func (b *builder) matrixOf(id program.ID, transposed bool) program.View {
	cols := b.p.Values[id].Shape[1]
	if transposed {
		return program.View{Value: id, Strides: []int{0, 1, cols}}
	}
	return program.View{Value: id, Strides: []int{0, cols, 1}}
}

// row is a value of cols elements over rows of them.
func row(id program.ID) program.View { return program.View{Value: id, Strides: []int{0, 1}} }

func load(in int) program.Instr { return program.Instr{Op: program.Load, A: in} }

func number(x float64) program.Instr { return program.Instr{Op: program.Const, Value: x} }

func apply(op program.Scalar, args ...int) program.Instr {
	in := program.Instr{Op: op}
	for i, a := range args {
		*[]*int{&in.A, &in.B, &in.C}[i] = a
	}
	return in
}

// layer is a linear layer in a program.
type layer struct{ w, b, in, pre, out program.ID }

// options describes a training program.
type options struct {
	batch   int
	dims    []int
	dropout bool
	groups  int // of collectives; 0 means 1
}

// train is the whole program: an MLP with cross-entropy and momentum.
func (b *builder) train(o options) *builder {
	last := len(o.dims) - 1
	b.x = b.outside("x", program.Input, -1, 1, o.batch, o.dims[0])
	b.target = b.outside("target", program.Input, 0, 2/float64(o.batch*o.dims[last]), o.batch, o.dims[last])
	if o.dropout {
		b.p.Clock = b.p.Add(program.Value{Name: "clock", DType: tensor.U64, Shape: []int{2}, Place: program.Outside})
		b.memory[b.p.Clock] = room(16)
	}
	var layers []layer
	in := b.x
	for k := range last {
		l := b.forward(k, in, o, k == last-1)
		layers = append(layers, l)
		in = l.out
	}
	b.loss = b.p.Add(program.Value{Name: "loss", DType: tensor.F32, Role: program.Output})
	d := b.temp("dlogits", o.batch, o.dims[last])
	b.step("loss", &program.CrossEntropy{Rows: o.batch, Classes: o.dims[last]}, views(b.p.Whole(in), b.p.Whole(b.target)),
		views(b.p.Whole(b.loss), b.p.Whole(d)))
	for k := last - 1; k >= 0; k-- {
		d = b.backward(k, layers[k], d, o)
	}
	return b
}

// forward is out = relu(in w + b), some of it dropped; the last layer is linear.
func (b *builder) forward(k int, in program.ID, o options, final bool) layer {
	n, m := o.dims[k], o.dims[k+1]
	l := layer{
		in: in, w: b.outside(fmt.Sprint("w", k), program.Param, -0.3, 0.3, n, m), b: b.outside(fmt.Sprint("b", k), program.Param, -0.1, 0.1, m),
		pre: b.temp(fmt.Sprint("pre", k), o.batch, m), out: b.temp(fmt.Sprint("out", k), o.batch, m),
	}
	b.step(fmt.Sprint("product", k), &program.MatMul{Batch: 1, M: o.batch, N: m, K: n, Alpha: 1},
		views(b.matrixOf(in, false), b.matrixOf(l.w, false)), views(b.matrixOf(l.pre, false)))
	code := []program.Instr{load(0), load(1), apply(program.Add, 0, 1)}
	if !final {
		code = append(code, number(0), apply(program.Maximum, 2, 3))
	}
	if !final && o.dropout {
		code = append(code, program.Instr{Op: program.Rand, Key: uint64(1000 + k), PerUnit: m}, number(0.25),
			apply(program.GreaterEqual, 5, 6), apply(program.Mul, 4, 7))
	}
	b.step(fmt.Sprint("activation", k), &program.Map{Space: []int{o.batch, m}, Code: code, Stores: []int{len(code) - 1}},
		views(b.p.Whole(l.pre), row(l.b)), views(b.p.Whole(l.out)))
	return l
}

// backward is the gradients of layer k from d, the gradient of its product, and the update. It
// gives that of the layer below.
func (b *builder) backward(k int, l layer, d program.ID, o options) program.ID {
	n, m := o.dims[k], o.dims[k+1]
	below := program.None
	if k > 0 {
		through := b.temp(fmt.Sprint("through", k), o.batch, n)
		b.step(fmt.Sprint("dx", k), &program.MatMul{Batch: 1, M: o.batch, N: n, K: m, Alpha: 1},
			views(b.matrixOf(d, false), b.matrixOf(l.w, true)), views(b.matrixOf(through, false)))
		below = b.temp(fmt.Sprint("d", k), o.batch, n)
		b.step(fmt.Sprint("drelu", k), &program.Map{
			Space: []int{o.batch, n}, Stores: []int{4},
			Code: []program.Instr{load(0), load(1), number(0), apply(program.Greater, 1, 2), apply(program.Mul, 0, 3)},
		}, views(b.p.Whole(through), b.p.Whole(l.in)), views(b.p.Whole(below)))
	}
	dw, db := b.temp(fmt.Sprint("dw", k), n, m), b.temp(fmt.Sprint("db", k), m)
	b.step(fmt.Sprint("dw", k), &program.MatMul{Batch: 1, M: n, N: m, K: o.batch, Alpha: 1},
		views(b.matrixOf(l.in, true), b.matrixOf(d, false)), views(b.matrixOf(dw, false)))
	b.step(fmt.Sprint("db", k), &program.Reduce{
		Space: []int{o.batch, m}, Reduced: []bool{true, false}, Red: program.Sum, Code: []program.Instr{load(0)},
	}, views(b.p.Whole(d)), views(row(db)))
	b.update(l.w, dw)
	b.update(l.b, db)
	return below
}

// update is v = 0.9 v + g; w -= 0.05 v, with g summed over the ranks.
func (b *builder) update(w, g program.ID) {
	name, shape := b.p.Values[w].Name, b.p.Values[w].Shape
	if b.ranks > 1 {
		b.p.Steps = append(b.p.Steps, program.Step{
			Name: "sum " + name, Op: &program.Collective{Kind: dist.KindAllReduce, Red: dist.Sum, Group: b.sums % b.groups},
			In: views(b.p.Whole(g)), Out: views(b.p.Whole(g)),
		})
		b.sums++
	}
	v := b.outside("v"+name, program.State, 0, 0, shape...)
	b.step("update "+name, &program.Map{
		Space: shape, Stores: []int{5, 8},
		Code: []program.Instr{
			load(0), load(1), load(2), number(0.9), apply(program.Mul, 2, 3), apply(program.Add, 4, 0),
			number(-0.05), apply(program.Mul, 5, 6), apply(program.Add, 1, 7),
		},
	}, views(b.p.Whole(g), b.p.Whole(w), b.p.Whole(v)), views(b.p.Whole(v), b.p.Whole(w)))
}

// plan optimizes, if asked to, and plans.
func (b *builder) plan(t testing.TB, optimized bool) *builder {
	t.Helper()
	pack := program.Pack
	if optimized {
		pack = program.Optimize
	}
	if err := pack(b.p); err != nil {
		t.Fatal(err)
	}
	if err := program.Plan(b.p); err != nil {
		t.Fatal(err)
	}
	if err := program.Validate(b.p); err != nil {
		t.Fatal(err)
	}
	return b
}

// randomOptions is a small MLP.
func randomOptions(r *rand.Rand) options {
	o := options{batch: 1 + r.IntN(40), dropout: r.IntN(2) == 0}
	for range 2 + r.IntN(3) {
		o.dims = append(o.dims, 1+r.IntN(90))
	}
	return o
}
