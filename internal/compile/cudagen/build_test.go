package cudagen

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// builder makes programs whose values are all Outside and filled, so that many independent steps
// fit in one program.
type builder struct {
	p      *program.Program
	memory map[program.ID][]byte // nil for tests of the text alone
	source *rand.PCG
	r      *rand.Rand // from source
}

func newBuilder(name string) *builder {
	b := newBare(name)
	b.memory = map[program.ID][]byte{}
	return b
}

// newBare is a builder of programs without numbers, for tests that look at the text alone: making
// them takes long.
func newBare(name string) *builder {
	source := rand.NewPCG(1, 2)
	return &builder{p: &program.Program{Name: name, Clock: program.None}, source: source, r: rand.New(source)}
}

// bounds are the limits of a value's numbers.
type bounds struct{ low, high float64 }

// value adds a value of numbers between b's.
func (b *builder) value(dt tensor.DType, bound bounds, shape ...int) program.ID {
	id := b.p.Add(program.Value{Name: fmt.Sprintf("v%d", len(b.p.Values)), DType: dt, Shape: shape, Place: program.Outside})
	if b.memory == nil {
		return id
	}
	v := &b.p.Values[id]
	data := make([]byte, v.Bytes())
	b.memory[id] = data
	if bound.low == bound.high && len(data) > 0 { // one number, but later draws must not change
		program.SetElement(dt, data, 0, bound.low)
		for n := dt.Size(); n < len(data); n *= 2 {
			copy(data[n:], data[:n])
		}
		for range v.Len() {
			b.source.Uint64()
		}
		return id
	}
	for i := range v.Len() {
		program.SetElement(dt, data, i, bound.low+(bound.high-bound.low)*b.r.Float64())
	}
	return id
}

// whole is a view of a new value of numbers between b's.
func (b *builder) whole(dt tensor.DType, bound bounds, shape ...int) program.View {
	return b.p.Whole(b.value(dt, bound, shape...))
}

// empty is a view of a new value that is to be written.
func (b *builder) empty(dt tensor.DType, shape ...int) program.View {
	return b.whole(dt, bounds{7, 7}, shape...)
}

// broadcast is a view of a new value along one axis of a space.
func (b *builder) broadcast(dt tensor.DType, bound bounds, space []int, axis int) program.View {
	v := program.View{Value: b.value(dt, bound, space[axis]), Strides: make([]int, len(space))}
	v.Strides[axis] = 1
	return v
}

// step adds a step and gives its number.
func (b *builder) step(op program.Op, in, out []program.View) int {
	b.p.Steps = append(b.p.Steps, program.Step{Name: fmt.Sprintf("s%d", len(b.p.Steps)), Op: op, In: in, Out: out})
	return len(b.p.Steps) - 1
}

// clock makes the program's clock.
func (b *builder) clock(step, first uint64) {
	id := b.p.Add(program.Value{Name: "clock", DType: tensor.U64, Shape: []int{2}, Place: program.Outside})
	data := make([]byte, 16)
	for i := range 8 {
		data[i], data[8+i] = byte(step>>(8*i)), byte(first>>(8*i))
	}
	b.memory[id] = data
	b.p.Clock = id
}

func views(v ...program.View) []program.View { return v }

func load(in int) program.Instr { return program.Instr{Op: program.Load, A: in} }

func constant64(x float64) program.Instr { return program.Instr{Op: program.Const, Value: x} }

func apply(op program.Scalar, args ...int) program.Instr {
	in := program.Instr{Op: op}
	for i, a := range args {
		*[]*int{&in.A, &in.B, &in.C}[i] = a
	}
	return in
}

// valid fails the test for a program that breaks the rules of package program.
func (b *builder) valid(t *testing.T) {
	t.Helper()
	if err := program.Validate(b.p); err != nil {
		t.Fatal(err)
	}
}

// target is an H200 with kernels of ours for everything.
func (b *builder) target() Target {
	own := make([]bool, len(b.p.Steps))
	for i := range own {
		own[i] = true
	}
	return Target{SMs: 132, MaxThreads: 2048, Arch: 90, Own: own}
}

// madeCase is a case without its numbers, and the result of Generate.
type madeCase struct {
	*builder
	text  string
	steps []Step
	err   error
}

// made is the cases, each made once for all tests that look at programs and texts alone.
var made = func() (all []func() madeCase) {
	for _, c := range cases {
		all = append(all, sync.OnceValue(func() madeCase {
			m := madeCase{builder: c.build()}
			m.memory = nil
			m.text, m.steps, m.err = Generate(m.p, m.target())
			return m
		}))
	}
	return all
}()
