package program

import (
	"errors"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// small is y = a + b, z = y times y transposed; the tests break it.
func small() *Program {
	p := &Program{Name: "small", Clock: None}
	a := p.Add(Value{Name: "a", DType: tensor.F32, Shape: []int{2, 3}, Role: Input, Place: Outside})
	b := p.Add(Value{Name: "b", DType: tensor.F32, Shape: []int{3}, Role: Param, Place: Outside})
	y := p.Add(Value{Name: "y", DType: tensor.F32, Shape: []int{2, 3}})
	z := p.Add(Value{Name: "z", DType: tensor.F32, Shape: []int{2, 2}, Role: Output})
	add := &Map{Space: []int{2, 3}, Code: []Instr{{Op: Load}, {Op: Load, A: 1}, {Op: Add, A: 0, B: 1}}, Stores: []int{2}}
	product := &MatMul{Batch: 1, M: 2, N: 2, K: 3, Alpha: 1}
	p.Steps = []Step{
		{Name: "add", Op: add, In: []View{p.Whole(a), {b, 0, []int{0, 1}}}, Out: []View{p.Whole(y)}},
		{Name: "product", Op: product, In: []View{{y, 0, []int{0, 3, 1}}, {y, 0, []int{0, 1, 3}}}, Out: []View{{z, 0, []int{0, 2, 1}}}},
	}
	return p
}

func TestValidateAcceptsAPlannedProgram(t *testing.T) {
	p := small()
	if err := Validate(p); err != nil {
		t.Fatal(err)
	}
	if err := Plan(p); err != nil {
		t.Fatal(err)
	}
	if err := Validate(p); err != nil {
		t.Fatal(err)
	}
}

func TestValidateNamesWhatIsWrong(t *testing.T) {
	tests := map[string]struct {
		change func(p *Program)
		want   string
	}{
		"no operation":       {func(p *Program) { p.Steps[0].Op = nil }, `step 0 "add" (no operation)`},
		"no such value":      {func(p *Program) { p.Steps[0].In[1].Value = 9 }, `step 0 "add" (map (2, 3): add): in 1 is value 9 of 4`},
		"too few in":         {func(p *Program) { p.Steps[1].In = p.Steps[1].In[:1] }, "has 1 in; 2 are needed"},
		"rank":               {func(p *Program) { p.Steps[0].In[1].Strides = []int{1} }, `in 1, value 1 "b" f32(3), has 1 strides over space (2, 3)`},
		"outside its value":  {func(p *Program) { p.Steps[0].In[1].Offset = 1 }, `in 1, value 1 "b" f32(3), touches elements 1 to 3 of 3`},
		"before its value":   {func(p *Program) { p.Steps[0].In[1].Strides = []int{-1, 1} }, "touches elements -1 to 2 of 3"},
		"dtype":              {func(p *Program) { p.Values[0].DType = tensor.Invalid }, `value 0 "a" invalid(2, 3) has no dtype`},
		"constant data":      {func(p *Program) { p.Values[0].Place, p.Values[0].Role = Constant, Temp }, "constant of 24 bytes, but has data of 0"},
		"role of a constant": {func(p *Program) { p.Values[0].Place, p.Values[0].Data = Constant, make([]byte, 24) }, "constant and has role input"},
		"store in constant": {func(p *Program) {
			p.Values[2].Place, p.Values[2].Data = Constant, make([]byte, 24)
		}, "out 0 is a constant"},
		"registers":        {func(p *Program) { p.Steps[0].Op.(*Map).Code[2].B = 2 }, "register 2 (add) takes register 2 as operand 1; it is not an earlier one"},
		"load":             {func(p *Program) { p.Steps[0].Op.(*Map).Code[1].A = 2 }, "register 1 loads in 2 of 2"},
		"store":            {func(p *Program) { p.Steps[0].Op.(*Map).Stores[0] = 3 }, "out 0 is register 3 of 3"},
		"rand":             {func(p *Program) { p.Steps[0].Op.(*Map).Code[1] = Instr{Op: Rand} }, "the program has no clock"},
		"clock":            {func(p *Program) { p.Steps[0].Op.(*Map).Code[1] = Instr{Op: Rand}; p.Clock = 0 }, "is not two u64 outside"},
		"stored twice":     {func(p *Program) { p.Steps[0].Out[0].Strides = []int{1, 1} }, "has strides [1 1] over (2, 3), which meet"},
		"matrix":           {func(p *Program) { p.Steps[1].In[0].Strides = []int{0, 3, 2}; p.Values[2].Shape = []int{9} }, "one of the last two is to be 1: see Pack"},
		"beta":             {func(p *Program) { p.Steps[1].Op.(*MatMul).Beta = 2 }, "beta is 2"},
		"types":            {func(p *Program) { p.Values[3].DType = tensor.F64 }, `out 0, value 3 "z" f64(2, 2), is not f32 as in 0 is`},
		"integers":         {func(p *Program) { p.Values[2].DType, p.Values[3].DType = tensor.I32, tensor.I32 }, "is not floating-point"},
		"unwritten":        {func(p *Program) { p.Steps = p.Steps[1:] }, `in 0, value 2 "y" f32(2, 3), is read before anything is written to it`},
		"output unwritten": {func(p *Program) { p.Steps = p.Steps[:1] }, `value 3 "z" f32(2, 2) is an output, and no step writes it`},
		"part of a sum": {func(p *Program) {
			p.Steps[0] = Step{Name: "sum", Op: &Collective{Kind: dist.KindAllReduce, Part: 3}, In: []View{p.Whole(0)}, Out: []View{p.Whole(2)}}
		}, "has a part of 3; allgather and reduce-scatter can"},
		"no part": {func(p *Program) {
			p.Steps[0] = Step{Name: "gather", Op: &Collective{Kind: dist.KindAllGather, Part: 2}, In: []View{{0, 3, []int{1}}}, Out: []View{p.Whole(2)}}
		}, "in 0 is 2 elements from 3 on of"},
		"early": {func(p *Program) {
			whole := p.Whole(p.Add(Value{Name: "w", DType: tensor.F32, Shape: []int{6}, Place: Outside, Role: State}))
			gather := Step{Name: "gather", Op: &Collective{Kind: dist.KindAllGather, Part: 3, Early: true}, In: []View{whole}, Out: []View{whole}}
			p.Steps = append([]Step{gather, gather}, p.Steps...)
		}, `step 1 "gather" (allgather part 3 early group 0): is early, and step 0 "gather"`},
		"early in the arena": {func(p *Program) {
			p.Steps[0] = Step{Name: "sum", Op: &Collective{Kind: dist.KindAllReduce, Early: true}, In: []View{p.Whole(0)}, Out: []View{p.Whole(2)}}
		}, `is early, and value 2 "y" f32(2, 3) is not outside`},
		"after later":   {func(p *Program) { p.Steps[0].After = []int{1} }, "after step 1, which is not before it"},
		"after itself":  {func(p *Program) { p.Steps[1].After = []int{0} }, "which is on its own stream"},
		"streams":       {func(p *Program) { p.Steps[1].Stream = Comm }, `does not wait for step 0 "add" (map (2, 3): add), and both touch value 2`},
		"in place":      {func(p *Program) { p.Steps[0].Out[0] = View{0, 0, []int{1, 2}}; p.Steps = p.Steps[:1] }, `in 0 and out 0 share elements of value 0 "a"`},
		"reduced":       {reduceAlong, "out 0, value 2 \"y\" f32(2, 3), has stride 3 on axis 0, which is reduced"},
		"no collective": {callOf, "send moves no values of one program"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			p := small()
			c.change(p)
			err := Validate(p)
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func reduceAlong(p *Program) {
	p.Steps[0].Op = &Reduce{Space: []int{2, 3}, Reduced: []bool{true, false}, Code: []Instr{{Op: Load}}}
}

func callOf(p *Program) {
	p.Steps[1] = Step{Name: "sum", Op: &Collective{Kind: dist.KindSend}, In: []View{p.Whole(2)}, Out: []View{p.Whole(3)}}
}

func TestValidateFindsValuesThatShareBytes(t *testing.T) {
	p := small()
	if err := Plan(p); err != nil {
		t.Fatal(err)
	}
	p.Values[3].Offset = p.Values[2].Offset
	err := Validate(p)
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "share bytes while both are in use") {
		t.Errorf("got %v", err)
	}
	p.Values[3].Offset = p.Arena
	if err := Validate(p); err == nil || !strings.Contains(err.Error(), "in an arena of 512 bytes") {
		t.Errorf("got %v", err)
	}
}

func TestPassesRefuseWhatIsNoProgram(t *testing.T) {
	for name, pass := range map[string]func(*Program) error{"Plan": Plan, "Pack": Pack, "Optimize": Optimize, "Validate": Validate} {
		p := small()
		p.Steps[1].In[0].Offset = 1 << 20
		if err := pass(p); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
