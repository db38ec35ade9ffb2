package program

import (
	"testing"

	"github.com/symgrad/symgrad/tensor"
)

// blocks returns n times a product and ten Maps, in a chain.
func blocks(n int) *Program {
	p := &Program{Name: "blocks", Clock: None}
	shape := []int{16, 16}
	x := p.Add(Value{Name: "x", DType: tensor.F32, Shape: shape, Role: Input, Place: Outside})
	temp := func() ID { return p.Add(Value{Name: "t", DType: tensor.F32, Shape: shape}) }
	m := func(id ID) View { return View{id, 0, []int{0, 16, 1}} }
	for range n {
		y := temp()
		p.Steps = append(p.Steps, Step{Op: &MatMul{Batch: 1, M: 16, N: 16, K: 16, Alpha: 1}, In: []View{m(x), m(x)}, Out: []View{m(y)}})
		for k := range 10 {
			z := temp()
			code := []Instr{{Op: Load}, {Op: Load, A: 1}, {Op: Add, A: 0, B: 1}, {Op: Tanh, A: 2}}
			other := x
			if k%3 == 0 {
				other = y
			}
			p.Steps = append(p.Steps, Step{Op: &Map{Space: shape, Code: code, Stores: []int{3}}, In: []View{p.Whole(y), p.Whole(other)}, Out: []View{p.Whole(z)}})
			y = z
		}
		x = y
	}
	p.Values[x].Role = Output
	return p
}

func TestALongProgramBecomesTwoStepsABlock(t *testing.T) {
	const n = 20
	p := blocks(n)
	if err := Optimize(p); err != nil {
		t.Fatal(err)
	}
	mustPlan(t, p)
	if len(p.Steps) != 2*n || p.Arena > 3*1024 {
		t.Errorf("%d steps, arena of %d bytes\n%v", len(p.Steps), p.Arena, p)
	}
}

func BenchmarkOptimize(b *testing.B) {
	for b.Loop() {
		p := blocks(100)
		if err := Optimize(p); err != nil {
			b.Fatal(err)
		}
		if err := Plan(p); err != nil {
			b.Fatal(err)
		}
	}
}
