package oracle_test

import (
	"slices"
	"testing"

	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/internal/program/oracle"
	"github.com/symgrad/symgrad/tensor"
)

// layer is y = tanh(x) w, dw = tanh(x)ᵀ dy, dx = dy wᵀ, of which w is so many columns of a wider value from the first on.
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

// results is what the oracle makes of numbers that bf16 does not have, rounded to it before products if it is asked for.
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

// roundedBy puts a Map that rounds to bf16, and one that takes that for f32 again, before each product.
func roundedBy(p *program.Program) *program.Program {
	q := clone(p)
	q.Steps = nil
	for _, s := range p.Steps {
		if _, ok := s.Op.(*program.MatMul); ok {
			s.In = slices.Clone(s.In)
			for k, v := range s.In {
				val := q.Values[v.Value]
				val.Place, val.Role = program.Arena, program.Temp
				wide := q.Add(val)
				val.DType = tensor.BF16
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

// Products read bf16, each value is rounded once, by its maker where it has one, and results are those of rounded operands.
func TestNarrowProductsReadRoundedOperands(t *testing.T) {
	for _, first := range []int{0, 3} {
		p := layer(first)
		want := results(t, roundedBy(p))
		p.Narrow = 6 * 5 * 4
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
				if dt := p.Values[v.Value].DType; dt != tensor.BF16 {
					t.Errorf("%s reads %v", s.Name, dt)
				}
			}
			if dt := p.Values[s.Out[0].Value].DType; dt != tensor.F32 {
				t.Errorf("%s gives %v", s.Name, dt)
			}
		}
		if wantMaps := 3 + min(first, 1); maps != wantMaps || products != 3 { // of x, w and dy; of a part of w there are two views
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
