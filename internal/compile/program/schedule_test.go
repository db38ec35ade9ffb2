package program

import (
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// training is the backward pass of three layers whose gradients are reduced at once. Each is
// followed by its update, as in a graph.
func training() *Program {
	p := &Program{Name: "training", Clock: None}
	shape := []int{4, 4}
	add := func(name string, role Role, place Place) ID {
		return p.Add(Value{Name: name, DType: tensor.F32, Shape: shape, Role: role, Place: place})
	}
	d := add("d", Input, Outside)
	for _, layer := range []string{"2", "1", "0"} {
		w, g := add("w"+layer, Param, Outside), add("g"+layer, Gradient, Outside)
		product := &MatMul{Batch: 1, M: 4, N: 4, K: 4, Alpha: 1}
		m := func(id ID) View { return View{id, 0, []int{0, 4, 1}} }
		p.Steps = append(p.Steps, Step{Name: "dw" + layer, Op: product, In: []View{m(d), m(d)}, Out: []View{m(g)}})
		sum := &Collective{Kind: dist.KindAllReduce, Red: dist.Avg}
		p.Steps = append(p.Steps, Step{Name: "reduce" + layer, Op: sum, In: []View{p.Whole(g)}, Out: []View{p.Whole(g)}})
		step := &Map{Space: shape, Code: []Instr{{Op: Load}, {Op: Load, A: 1}, {Op: Sub, A: 0, B: 1}}, Stores: []int{2}}
		next := add("d"+layer, Temp, Arena)
		p.Steps = append(p.Steps, Step{Name: "dx" + layer, Op: product, In: []View{m(d), m(w)}, Out: []View{m(next)}})
		p.Steps = append(p.Steps, Step{Name: "update" + layer, Op: step, In: []View{p.Whole(w), p.Whole(g)}, Out: []View{p.Whole(w)}})
		d = next
	}
	return p
}

// gathered returns p with a spread of the weights after each update.
func gathered(p *Program) *Program {
	var steps []Step
	for _, s := range p.Steps {
		steps = append(steps, s)
		if layer, ok := strings.CutPrefix(s.Name, "update"); ok && layer != "" {
			home := s.Out[0].Value
			spread := &Collective{Kind: dist.KindAllGather, Part: 8}
			steps = append(steps, Step{Name: "spread" + layer, Op: spread, In: []View{{home, 8, []int{1}}}, Out: []View{p.Whole(home)}})
		}
	}
	p.Steps = steps
	return p
}

func names(p *Program) string {
	var all []string
	for i := range p.Steps {
		all = append(all, p.Steps[i].Name)
	}
	return strings.Join(all, " ")
}

// ordered returns the names of steps except spreads.
func ordered(p *Program) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(names(p)), func(s string) bool { return strings.HasPrefix(s, "spread") }), " ")
}

func TestCollectivesOverlapTheRestOfTheStep(t *testing.T) {
	p := training()
	schedule(p)
	want := "dw2 reduce2 dx2 dw1 reduce1 dx1 dw0 reduce0 dx0 update2 update1 update0"
	if got := names(p); got != want {
		t.Errorf("order %q, want %q", got, want)
	}
	after := map[string][]int{"reduce2": {0}, "reduce1": {3}, "reduce0": {6}, "update2": {1}, "update1": {4}, "update0": {7}}
	for i := range p.Steps {
		s := &p.Steps[i]
		if !slices.Equal(s.After, after[s.Name]) || (s.Stream == Comm) != strings.HasPrefix(s.Name, "reduce") {
			t.Errorf("step %d %q is on %v after %v", i, s.Name, s.Stream, s.After)
		}
	}
	if err := Plan(p); err != nil {
		t.Fatal(err)
	}
	if err := Validate(p); err != nil {
		t.Error(err)
	}
}

// A graph has its updates in the order of the parameters, whose first gradient comes last.
func TestUpdatesFollowTheirCollectives(t *testing.T) {
	for want, p := range map[string]*Program{
		"dw2 reduce2 dx2 dw1 reduce1 dx1 dw0 reduce0 dx0 update2 update1 update0": training(),
		"dw2 reduce2 dx2 dw1 reduce1 update2 dx1 dw0 reduce0 update1 dx0 update0": gathered(training()),
	} {
		var updates, others []Step
		for i := range p.Steps {
			if name := p.Steps[i].Name; strings.HasPrefix(name, "update") || strings.HasPrefix(name, "spread") {
				updates = append(updates, p.Steps[i])
			} else {
				others = append(others, p.Steps[i])
			}
		}
		for layer := range slices.Chunk(updates, len(updates)/3) {
			others = slices.Insert(others, len(p.Steps)-len(updates), layer...)
		}
		p.Steps = others
		schedule(p)
		if got := ordered(p); got != want {
			t.Errorf("order %q, want %q", got, want)
		}
	}
}

// An update of a large sum would delay the next gradient if only a small sum were queued after it.
// An update that no spread waits for, that of the bias, follows the gradients and overlaps the last
// spread.
func TestUpdatesWaitUntilAsMuchIsOnItsWay(t *testing.T) {
	p := gathered(training())
	small := p.Add(Value{Name: "bias", DType: tensor.F32, Shape: []int{4}, Role: Gradient, Place: Outside})
	one := View{small, 0, []int{1}}
	bias := []Step{
		{Name: "db", Op: &Map{Space: []int{4}, Code: []Instr{{Op: Load}}, Stores: []int{0}}, In: []View{{0, 0, []int{1}}}, Out: []View{one}},
		{Name: "reduce", Op: &Collective{Kind: dist.KindAllReduce, Red: dist.Avg}, In: []View{p.Whole(small)}, Out: []View{p.Whole(small)}},
		{Name: "update", Op: &Map{Space: []int{4}, Code: []Instr{{Op: Load}}, Stores: []int{0}}, In: []View{one}, Out: []View{one}},
	}
	p.Steps = slices.Insert(p.Steps, 3, bias...) // after dx2
	schedule(p)
	want := "dw2 reduce2 dx2 db reduce dw1 reduce1 update2 dx1 dw0 reduce0 update1 dx0 update0 update"
	if got := ordered(p); got != want {
		t.Errorf("order %q, want %q", got, want)
	}
	if err := Validate(p); err != nil {
		t.Error(err)
	}
}

// A graph makes the terms of an optimizer's step after the gradients; updates move them along.
func TestUpdatesTakeTheirTermsAlong(t *testing.T) {
	p := training()
	rate := p.Add(Value{Name: "rate", DType: tensor.F32, Place: Arena})
	clock := p.Add(Value{Name: "steps", DType: tensor.F32, Place: Outside})
	terms := Step{Name: "terms", Op: &Map{Code: []Instr{{Op: Load}}, Stores: []int{0}}, In: []View{p.Whole(clock)}, Out: []View{p.Whole(rate)}}
	var updates, others []Step
	for _, s := range p.Steps {
		m, ok := s.Op.(*Map)
		if !ok {
			others = append(others, s)
			continue
		}
		m.Code = append([]Instr{{Op: Load}, {Op: Load, A: 1}, {Op: Load, A: 2}, {Op: Mul, A: 1, B: 2}, {Op: Sub, A: 0, B: 3}}, m.Code[:0]...)
		m.Stores = []int{4}
		s.In = append(s.In, View{rate, 0, []int{0, 0}})
		updates = append(updates, s)
	}
	p.Steps = append(append(others, terms), updates...)
	gathered(p)
	schedule(p)
	want := "dw2 reduce2 dx2 dw1 reduce1 terms update2 dx1 dw0 reduce0 update1 dx0 update0"
	if got := ordered(p); got != want {
		t.Errorf("order %q, want %q", got, want)
	}
	if err := Plan(p); err != nil {
		t.Fatal(err)
	}
	if err := Validate(p); err != nil {
		t.Error(err)
	}
}

// Products, and steps that lead to a sum, would delay earlier gradients.
func TestOnlyUpdatesAreHurried(t *testing.T) {
	p := gathered(training())
	first := p.Steps[1].Out[0].Value // the gradient that is reduced first
	add := func(name string) ID {
		return p.Add(Value{Name: name, DType: tensor.F32, Shape: []int{4, 4}, Role: Gradient, Place: Outside})
	}
	mixed, product := add("mixed"), add("product")
	m := func(id ID) View { return View{id, 0, []int{0, 4, 1}} }
	p.Steps = append(
		p.Steps,
		Step{Name: "mix", Op: &Map{Space: []int{4, 4}, Code: []Instr{{Op: Load}}, Stores: []int{0}}, In: []View{p.Whole(first)}, Out: []View{p.Whole(mixed)}},
		Step{Name: "reduce", Op: &Collective{Kind: dist.KindAllReduce, Red: dist.Avg}, In: []View{p.Whole(mixed)}, Out: []View{p.Whole(mixed)}},
		Step{Name: "multiply", Op: &MatMul{Batch: 1, M: 4, N: 4, K: 4, Alpha: 1}, In: []View{m(first), m(first)}, Out: []View{m(product)}},
	)
	schedule(p)
	want := "dw2 reduce2 dx2 dw1 reduce1 update2 dx1 dw0 reduce0 update1 dx0 mix reduce update0 multiply"
	if got := ordered(p); got != want {
		t.Errorf("order %q, want %q", got, want)
	}
	if err := Validate(p); err != nil {
		t.Error(err)
	}
}

// The norm of all gradients keeps every update at the end.
func TestUpdatesThatNeedAllGradientsComeLast(t *testing.T) {
	p := training()
	norm := p.Add(Value{Name: "norm", DType: tensor.F32, Shape: []int{4, 4}, Place: Arena})
	all := Step{Name: "norm", Op: &Map{Space: []int{4, 4}, Code: []Instr{{Op: Load}, {Op: Load, A: 1}, {Op: Add, A: 0, B: 1}}, Stores: []int{2}}}
	var updates, others []Step
	for _, s := range p.Steps {
		if _, ok := s.Op.(*Map); !ok {
			others = append(others, s)
			continue
		}
		if s.Name != "update1" {
			all.In = append(all.In, s.In[1])
		}
		s.In[1] = p.Whole(norm)
		updates = append(updates, s)
	}
	all.Out = []View{p.Whole(norm)}
	p.Steps = append(append(others, all), updates...)
	schedule(p)
	want := "dw2 reduce2 dx2 dw1 reduce1 dx1 dw0 reduce0 dx0 norm update2 update1 update0"
	if got := names(p); got != want {
		t.Errorf("order %q, want %q", got, want)
	}
}

func TestCollectivesAndCallsKeepTheirOrder(t *testing.T) {
	p := training()
	p.Steps = append(p.Steps, Step{Name: "call", Op: &Call{Label: "call"}})
	last := Step{Name: "last", Op: &Collective{Kind: dist.KindAllReduce}, In: []View{p.Whole(0)}, Out: []View{p.Whole(0)}}
	p.Steps = append(p.Steps, last)
	schedule(p)
	var order []string
	for i := range p.Steps {
		switch p.Steps[i].Op.(type) {
		case *Collective, *Call:
			order = append(order, p.Steps[i].Name)
		}
	}
	if got := strings.Join(order, " "); got != "reduce2 reduce1 reduce0 call last" {
		t.Errorf("order %q", got)
	}
	if err := Validate(p); err != nil {
		t.Error(err)
	}
}

func TestUpdatesThatWaitForDifferentCollectivesStayApart(t *testing.T) {
	p := training()
	if err := Optimize(p); err != nil {
		t.Fatal(err)
	}
	updates := 0
	for i := range p.Steps {
		if _, ok := p.Steps[i].Op.(*Map); ok {
			updates++
		}
	}
	if updates != 3 {
		t.Errorf("%d updates\n%v", updates, p)
	}
}
