package oracle_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/oracle"
	"github.com/symgrad/symgrad/tensor"
)

// layer is y = tanh(x) w, dw = tanh(x)ᵀ dy, dx = dy wᵀ. w is some columns of a wider value.
func layer(first int) *program.Program {
	const rows, in, out = 6, 5, 4
	p := &program.Program{Name: "layer", Clock: program.None}
	add := func(name string, place program.Place, shape ...int) program.View {
		return p.Whole(p.Add(program.Value{Name: name, DType: tensor.F32, Shape: shape, Place: place}))
	}
	x, w, dy := add("x", program.Outside, rows, in), add("w", program.Outside, in, out+first), add("dy", program.Outside, rows, out)
	h := add("h", program.Arena, rows, in)
	y, dw, dx := add("y", program.Outside, rows, out), add("dw", program.Outside, in, out), add("dx", program.Outside, rows, in)
	matrix := func(v program.View, row, column int) program.View {
		return program.View{Value: v.Value, Offset: v.Offset, Strides: []int{0, row, column}}
	}
	w.Offset = first
	code := []program.Instr{{Op: program.Load}, {Op: program.Tanh}}
	p.Steps = []program.Step{
		{Name: "h", Op: &program.Map{Space: []int{rows, in}, Code: code, Stores: []int{1}}, In: []program.View{x}, Out: []program.View{h}},
		{
			Name: "y", Op: &program.MatMul{Batch: 1, M: rows, N: out, K: in, Alpha: 1}, In: []program.View{matrix(h, in, 1), matrix(w, out+first, 1)},
			Out: []program.View{matrix(y, out, 1)},
		},
		{
			Name: "dw", Op: &program.MatMul{Batch: 1, M: in, N: out, K: rows, Alpha: 1}, In: []program.View{matrix(h, 1, in), matrix(dy, out, 1)},
			Out: []program.View{matrix(dw, out, 1)},
		},
		{
			Name: "dx", Op: &program.MatMul{Batch: 1, M: rows, N: in, K: out, Alpha: 1}, In: []program.View{matrix(dy, out, 1), matrix(w, 1, out+first)},
			Out: []program.View{matrix(dx, in, 1)},
		},
	}
	return p
}

// results returns the oracle's results for numbers that bf16 cannot hold. It can round them before
// products.
func results(t *testing.T, p *program.Program) map[program.ID][]byte {
	t.Helper()
	memory := map[program.ID][]byte{}
	for i := range p.Values {
		v := &p.Values[i]
		memory[program.ID(i)] = make([]byte, v.Bytes())
		if v.Place != program.Outside {
			continue
		}
		for e := range v.Len() {
			program.SetElement(v.DType, memory[program.ID(i)], e, 1/float64(3+e+7*i))
		}
	}
	if err := oracle.Run(p, memory); err != nil {
		t.Fatal(err)
	}
	return memory
}

// roundedBy puts a Map that rounds to a narrow dtype, and one that converts back to f32, before
// each product.
func roundedBy(p *program.Program, to tensor.DType) *program.Program {
	q := clone(p)
	q.Steps = nil
	for _, s := range p.Steps {
		if _, ok := s.Op.(*program.MatMul); ok {
			s.In = slices.Clone(s.In)
			for k, v := range s.In {
				val := q.Values[v.Value]
				val.Place, val.Role = program.Arena, program.Temp
				wide := q.Add(val)
				val.DType = to
				narrow := q.Add(val)
				for _, from := range [][2]program.ID{{v.Value, narrow}, {narrow, wide}} {
					q.Steps = append(q.Steps, program.Step{
						Name: "round", Op: &program.Map{Space: val.Shape, Code: []program.Instr{{Op: program.Load}}, Stores: []int{0}},
						In: []program.View{q.Whole(from[0])}, Out: []program.View{q.Whole(from[1])},
					})
				}
				s.In[k].Value = wide
			}
		}
		q.Steps = append(q.Steps, s)
	}
	return q
}

// Products read bf16 or f16. Each value is rounded once, by its maker if it has one, and results
// are those of rounded operands.
func TestNarrowProductsReadRoundedOperands(t *testing.T) {
	for _, first := range []int{0, 3} {
		testNarrow(t, first, tensor.BF16)
		testNarrow(t, first, tensor.F16)
	}
}

func testNarrow(t *testing.T, first int, to tensor.DType) {
	t.Helper()
	p := layer(first)
	want := results(t, roundedBy(p, to))
	p.Narrow, p.NarrowTo = 6*5*4, to
	if err := program.Optimize(p); err != nil {
		t.Fatal(err)
	}
	maps, products := 0, 0
	for _, s := range p.Steps {
		if _, ok := s.Op.(*program.MatMul); !ok {
			maps++
			continue
		}
		products++
		for _, v := range s.In {
			if dt := p.Values[v.Value].DType; dt != to {
				t.Errorf("%s reads %v", s.Name, dt)
			}
		}
		if dt := p.Values[s.Out[0].Value].DType; dt != tensor.F32 {
			t.Errorf("%s gives %v", s.Name, dt)
		}
	}
	if wantMaps := 3 + min(first, 1); maps != wantMaps || products != 3 { // of x, w and dy; a part of w has two views
		t.Errorf("%d products and %d Maps, want 3 and %d:\n%v", products, maps, wantMaps, p)
	}
	if err := program.Plan(p); err != nil {
		t.Fatal(err)
	}
	if err := program.Validate(p); err != nil {
		t.Fatal(err)
	}
	got := results(t, p)
	for id := range program.ID(7) {
		if v := &p.Values[id]; v.Place == program.Outside && !sameBits(v.DType, got[id], want[id]) {
			t.Errorf("first column %d: %s has other bits", first, v.Name)
		}
	}
}

func TestSmallProductsStayAsTheyAre(t *testing.T) {
	for _, narrow := range []int{0, 6*5*4 + 1} {
		p := layer(0)
		p.Narrow = narrow
		if err := program.Optimize(p); err != nil {
			t.Fatal(err)
		}
		for i := range p.Values {
			if p.Values[i].DType != tensor.F32 {
				t.Errorf("from %d multiplications on: there is a value of %v", narrow, p.Values[i].DType)
			}
		}
	}
}

// attention is two layers with a softmax between them, the gradients, and the update of a weight.
// With by hand, Maps round to bf16 and back to f32 where Narrow would.
type attention struct {
	p      *program.Program
	byHand bool
}

const attentionSide = 6 // of all matrices

func (a *attention) add(name string, place program.Place) program.View {
	return a.p.Whole(a.p.Add(program.Value{Name: name, DType: tensor.F32, Shape: []int{attentionSide, attentionSide}, Place: place}))
}

func (a *attention) step(name string, op program.Op, out program.View, in ...program.View) program.View {
	a.p.Steps = append(a.p.Steps, program.Step{Name: name, Op: op, In: in, Out: []program.View{out}})
	return out
}

func (a *attention) mapped(name string, to program.View, code []program.Instr, in ...program.View) program.View {
	return a.step(name, &program.Map{Space: []int{attentionSide, attentionSide}, Code: code, Stores: []int{len(code) - 1}}, to, in...)
}

// round returns v, rounded if by hand.
func (a *attention) round(v program.View) program.View {
	if !a.byHand {
		return v
	}
	val := a.p.Values[v.Value]
	val.Place, val.DType = program.Arena, tensor.BF16
	narrow := a.p.Whole(a.p.Add(val))
	val.DType = tensor.F32
	load := []program.Instr{{Op: program.Load}}
	a.mapped("round", narrow, load, a.p.Whole(v.Value))
	wide := a.mapped("widen", a.p.Whole(a.p.Add(val)), load, narrow)
	return program.View{Value: wide.Value, Strides: v.Strides}
}

func (a *attention) times(name string, to, x, y program.View) program.View {
	matrix := func(v program.View) program.View {
		return program.View{Value: v.Value, Strides: append([]int{0}, v.Strides...)}
	}
	a.step(name, &program.MatMul{Batch: 1, M: attentionSide, N: attentionSide, K: attentionSide, Alpha: 1}, matrix(to), matrix(a.round(x)), matrix(a.round(y)))
	return to
}

// inRows returns a matrix in the form of a softmax over its rows.
func inRows(v program.View) program.View {
	return program.View{Value: v.Value, Strides: append(slices.Clone(v.Strides), 1)}
}

func transposed(v program.View) program.View {
	return program.View{Value: v.Value, Strides: []int{v.Strides[1], v.Strides[0]}}
}

// build returns the program, and its products with bf16 results.
func (a *attention) build() (narrow []string) {
	const n = attentionSide
	a.p = &program.Program{Name: "attention", Clock: program.None}
	x, w, dy, b := a.add("x", program.Outside), a.add("w", program.Outside), a.add("dy", program.Outside), a.add("b", program.Outside)
	m, db := a.add("m", program.Outside), a.add("db", program.Outside)
	y, dx, dh := a.add("y", program.Outside), a.add("dx", program.Outside), a.add("dh", program.Arena)
	temp := func(name string) program.View { return a.add(name, program.Arena) }

	h := a.round(a.times("h", temp("h"), x, w))
	g := a.mapped("g", temp("g"), []program.Instr{{Op: program.Load}, {Op: program.Load, A: 1}, {Op: program.Add, B: 1}, {Op: program.Tanh, A: 2}}, h, b)
	s := a.round(a.times("s", temp("s"), g, transposed(g)))
	p := temp("p")
	a.step("p", &program.Softmax{Outer: n, Axis: n, Inner: 1}, inRows(p), inRows(s))
	a.times("y", y, p, g)

	dp := a.round(a.times("dp", temp("dp"), dy, transposed(g)))
	ds := temp("ds")
	a.step("ds", &program.SoftmaxGrad{Outer: n, Axis: n, Inner: 1}, inRows(ds), inRows(p), inRows(dp))
	a.mapped("dh", dh, []program.Instr{
		{Op: program.Load}, {Op: program.Square, A: 0}, {Op: program.Const, Value: 1}, {Op: program.Sub, A: 2, B: 1}, {Op: program.Load, A: 1}, {Op: program.Mul, A: 3, B: 4},
	}, g, ds)
	column := program.View{Value: db.Value, Strides: []int{0, 1}}
	a.step("db", &program.Reduce{Space: []int{n, n}, Reduced: []bool{true, false}, Code: []program.Instr{{Op: program.Load}}}, column, a.round(dh))
	dw := a.times("dw", temp("dw"), transposed(x), dh)
	a.mapped("m", m, []program.Instr{{Op: program.Load}, {Op: program.Load, A: 1}, {Op: program.Add, B: 1}}, m, dw)
	a.times("dx", dx, dh, transposed(w))
	return []string{"h", "s", "dp"}
}

// Results that only steps compute with are bf16, as are those that only products and a sum read.
// Those that outlast the run are f32, as are inputs of an update. With Again, a softmax that only
// its gradient needs in f32 is recomputed for it.
func TestNarrowResultsStayInTheProgram(t *testing.T) {
	byHand := attention{byHand: true}
	byHand.build()
	want := results(t, byHand.p)
	for _, again := range []bool{false, true} {
		a := attention{}
		narrow := a.build()
		outside := len(a.p.Values)
		a.p.Narrow, a.p.Again = 1, again
		if err := program.Optimize(a.p); err != nil {
			t.Fatal(err)
		}
		for _, s := range a.p.Steps {
			dt := a.p.Values[s.Out[0].Value].DType
			switch s.Op.(type) {
			case *program.MatMul:
				if wants := slices.Contains(narrow, s.Name); wants != (dt == tensor.BF16) {
					t.Errorf("%s gives %v:\n%v", s.Name, dt, a.p)
				}
			case *program.Reduce:
				if in := a.p.Values[s.In[0].Value]; in.DType != tensor.BF16 {
					t.Errorf("%s reads %s, %v", s.Name, in.Name, in.DType)
				}
			}
		}
		if twice := strings.Count(opsOf(a.p), "softmax ") == 2; twice != again {
			t.Errorf("again is %v: steps %s", again, opsOf(a.p))
		}
		planned(t, a.p)
		got := results(t, a.p)
		for id := range program.ID(outside) {
			if v := &a.p.Values[id]; v.Place == program.Outside && !sameBits(v.DType, got[id], want[id]) {
				t.Errorf("again is %v: %s has other bits:\n%v", again, v.Name, a.p)
			}
		}
	}
}
