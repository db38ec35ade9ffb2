package program

import (
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// chainOf returns n Maps of 64 floats in a chain, from an input to an output.
func chainOf(n int) *Program {
	p := &Program{Name: "chain", Clock: None}
	last := p.Add(Value{Name: "in", DType: tensor.F32, Shape: []int{64}, Role: Input, Place: Outside})
	for i := range n {
		v := Value{Name: "t", DType: tensor.F32, Shape: []int{64}}
		if i == n-1 {
			v.Role = Output
		}
		id := p.Add(v)
		op := &Map{Space: []int{64}, Code: []Instr{{Op: Load}, {Op: Exp}}, Stores: []int{1}}
		p.Steps = append(p.Steps, Step{Op: op, In: []View{p.Whole(last)}, Out: []View{p.Whole(id)}})
		last = id
	}
	return p
}

func mustPlan(t *testing.T, p *Program) {
	t.Helper()
	if err := Plan(p); err != nil {
		t.Fatal(err)
	}
	if err := Validate(p); err != nil {
		t.Fatal(err)
	}
}

func TestPlanLetsAMapWriteOverWhatItReads(t *testing.T) {
	p := chainOf(5)
	mustPlan(t, p)
	if p.Arena != 256 {
		t.Errorf("arena of %d bytes\n%v", p.Arena, p)
	}
}

func TestPlanTakesTwoPlacesWhereViewsDiffer(t *testing.T) {
	p := chainOf(5)
	for i := range p.Steps {
		p.Steps[i].Op.(*Map).Space = []int{8, 8}
		p.Steps[i].In[0].Strides, p.Steps[i].Out[0].Strides = []int{1, 8}, []int{8, 1}
	}
	mustPlan(t, p)
	if p.Arena != 512 {
		t.Errorf("arena of %d bytes\n%v", p.Arena, p)
	}
}

func TestPlanKeepsWhatIsLookedAt(t *testing.T) {
	p := chainOf(5)
	p.Values[1].Role = Output
	p.Values[2].Role = Gradient
	mustPlan(t, p)
	if p.Arena != 3*256 || p.Values[1].Offset == p.Values[2].Offset {
		t.Errorf("arena of %d bytes\n%v", p.Arena, p)
	}
}

func TestPlanKeepsWhatACollectiveReadsUntilSomebodyWaits(t *testing.T) {
	p := chainOf(6)
	reduced := p.Add(Value{Name: "reduced", DType: tensor.F32, Shape: []int{64}, Place: Outside})
	comm := Step{Op: &Collective{Kind: dist.KindAllReduce}, Stream: Comm, After: []int{0}, In: []View{p.Whole(1)}, Out: []View{p.Whole(reduced)}}
	p.Steps = append(p.Steps[:1:1], append([]Step{comm}, p.Steps[1:]...)...)
	mustPlan(t, p)
	for id := ID(2); id <= 6; id++ {
		if p.Values[id].Offset == p.Values[1].Offset {
			t.Errorf("value %d has the bytes of value 1, which the collective reads\n%v", id, p)
		}
	}
	p.Steps[4].After = []int{1}
	mustPlan(t, p)
	if p.Values[4].Offset == p.Values[1].Offset && p.Values[6].Offset == p.Values[1].Offset {
		t.Errorf("all of the chain has moved\n%v", p)
	}
	if p.Arena != 512 {
		t.Errorf("arena of %d bytes\n%v", p.Arena, p)
	}
}

func TestPlanFillsTheSmallestGap(t *testing.T) {
	p := &Program{Name: "gaps", Clock: None}
	in := p.Add(Value{DType: tensor.U8, Shape: []int{1}, Role: Input, Place: Outside})
	value := func(bytes int, role Role) ID {
		id := p.Add(Value{DType: tensor.U8, Shape: []int{bytes}, Role: role})
		op := &Map{Space: []int{bytes}, Code: []Instr{{Op: Load}}, Stores: []int{0}}
		p.Steps = append(p.Steps, Step{Op: op, In: []View{{in, 0, []int{0}}}, Out: []View{p.Whole(id)}})
		return id
	}
	read := func(id ID) {
		out := p.Add(Value{DType: tensor.U8, Place: Outside})
		op := &Map{Code: []Instr{{Op: Load}}, Stores: []int{0}}
		p.Steps = append(p.Steps, Step{Op: op, In: []View{{id, 0, nil}}, Out: []View{p.Whole(out)}})
	}
	wide := value(2048, Temp)
	value(1500, Output)
	narrow := value(1200, Temp)
	value(1100, Output)
	read(wide)
	read(narrow)
	late := value(1000, Output)
	mustPlan(t, p)
	if p.Values[late].Offset != p.Values[narrow].Offset {
		t.Errorf("the late value is at %d, the narrow gap at %d\n%v", p.Values[late].Offset, p.Values[narrow].Offset, p)
	}
}

// gradientOf is a product, the gradient of a softmax from it, a Map that rounds it to bf16 and
// scales it, and a product that reads that.
func gradientOf(rows, axis int) *Program {
	p := &Program{Name: "gradient", Clock: None}
	add := func(name string, dt tensor.DType, place Place, shape ...int) View {
		return p.Whole(p.Add(Value{Name: name, DType: dt, Shape: shape, Place: place}))
	}
	x, y := add("x", tensor.F32, Outside, 1, rows, 4), add("y", tensor.F32, Outside, rows, axis, 1)
	w, z := add("w", tensor.F32, Outside, 1, 4, axis), add("z", tensor.BF16, Outside, 1, axis, 4)
	dy, dx := add("dy", tensor.F32, Arena, 1, rows, axis), add("dx", tensor.F32, Arena, rows, axis, 1)
	narrow, out := add("narrow", tensor.BF16, Arena, 1, rows, axis), add("out", tensor.F32, Outside, 1, rows, 4)
	half := []Instr{{Op: Load}, {Op: Const, Value: 0.5}, {Op: Mul, A: 0, B: 1}}
	packed := func(v View, strides ...int) View { return View{Value: v.Value, Strides: strides} }
	p.Steps = []Step{
		{Name: "dy", Op: &MatMul{Batch: 1, M: rows, N: axis, K: 4, Alpha: 1}, In: []View{x, w}, Out: []View{dy}},
		{Name: "dx", Op: &SoftmaxGrad{Outer: rows, Axis: axis, Inner: 1}, In: []View{y, packed(dy, axis, 1, 1)}, Out: []View{dx}},
		{Name: "narrow", Op: &Map{Space: []int{rows, axis}, Code: half, Stores: []int{2}}, In: []View{packed(dx, axis, 1)}, Out: []View{packed(narrow, axis, 1)}},
		{Name: "out", Op: &MatMul{Batch: 1, M: rows, N: 4, K: axis, Alpha: 1}, In: []View{narrow, z}, Out: []View{out}},
	}
	return p
}

// With Rows a narrower result does not take the bytes of its operand; without Rows it does.
func TestPlanWithRowsKeepsWhatARunReads(t *testing.T) {
	for _, rows := range []bool{false, true} {
		p := gradientOf(64, 32)
		p.Rows = rows
		mustPlan(t, p)
		dy, narrow := &p.Values[4], &p.Values[6]
		if shared := narrow.Offset < dy.Offset+dy.Bytes() && dy.Offset < narrow.Offset+narrow.Bytes(); shared == rows {
			t.Errorf("rows %t: %d B at %d, and %d B at %d", rows, dy.Bytes(), dy.Offset, narrow.Bytes(), narrow.Offset)
		}
	}
}

func TestPlanWithRowsLetsMapsWriteOverWhatTheyRead(t *testing.T) {
	p := chainOf(5)
	p.Rows = true
	mustPlan(t, p)
	if p.Arena != 256 {
		t.Errorf("arena of %d bytes\n%v", p.Arena, p)
	}
}

// Runs end at other operations, at other streams, and at steps that read no result of the run.
func TestRunsOfRows(t *testing.T) {
	p := gradientOf(64, 32)
	p.Steps = append(p.Steps, chainOf(2).Steps...)
	for i, want := range []int{1, 3, 3, 4, 6, 6} {
		if got := runFrom(p, i); got != want {
			t.Errorf("the run from step %d ends before step %d, want %d", i, got, want)
		}
	}
	p.Steps[2].Stream = Comm
	if got := runFrom(p, 1); got != 2 {
		t.Errorf("a run goes on to step %d on another stream", got)
	}
}
