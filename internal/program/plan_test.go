package program

import (
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// chainOf is n Maps of 64 floats one after the other, from an input to an output.
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
