package program

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// fetchingLayers is the forward and the backward pass of layers with parameters sharded over two
// ranks, in the order of a graph. A Call takes each gradient at once.
func fetchingLayers(layers int) *Program {
	p := &Program{Name: "fetching", Clock: None}
	const n = 16 // matrices are n by n
	add := func(name string, role Role, place Place, shape ...int) ID {
		return p.Add(Value{Name: name, DType: tensor.F32, Shape: shape, Role: role, Place: place})
	}
	matrix := func(id ID, strides ...int) View { return View{id, 0, append([]int{0}, strides...)} }
	product := &MatMul{Batch: 1, M: n, N: n, K: n, Alpha: 1}
	x := add("x", Input, Outside, n, n)
	var whole, h []ID
	h = append(h, x)
	for l := range layers {
		shard := add(fmt.Sprintf("shard%d", l), Param, Outside, n*n/2)
		w := add(fmt.Sprintf("w%d", l), Temp, Arena, n*n)
		whole = append(whole, w)
		p.Steps = append(p.Steps, Step{Name: fmt.Sprintf("get%d", l), Op: &Collective{Kind: dist.KindAllGather, Fetch: true}, In: []View{p.Whole(shard)}, Out: []View{p.Whole(w)}})
		next := add(fmt.Sprintf("h%d", l), Temp, Arena, n, n)
		p.Steps = append(p.Steps, Step{Name: fmt.Sprintf("use%d", l), Op: product, In: []View{matrix(h[l], n, 1), matrix(w, n, 1)}, Out: []View{matrix(next, n, 1)}})
		h = append(h, next)
	}
	d := h[layers]
	for l := layers - 1; l >= 0; l-- {
		g := add(fmt.Sprintf("g%d", l), Temp, Arena, n, n)
		p.Steps = append(p.Steps, Step{Name: fmt.Sprintf("grad%d", l), Op: product, In: []View{matrix(h[l], 1, n), matrix(d, n, 1)}, Out: []View{matrix(g, n, 1)}})
		p.Steps = append(p.Steps, Step{Name: fmt.Sprintf("start%d", l), Op: &Call{Func: l, Label: "start"}, In: []View{p.Whole(g)}})
		next := add(fmt.Sprintf("d%d", l), Temp, Arena, n, n)
		p.Steps = append(p.Steps, Step{Name: fmt.Sprintf("back%d", l), Op: product, In: []View{matrix(d, n, 1), matrix(whole[l], 1, n)}, Out: []View{matrix(next, n, 1)}})
		d = next
	}
	p.Values[d].Role, p.Values[d].Place = Output, Outside
	return p
}

func TestFetchesAreMadeAgainAndOneAhead(t *testing.T) {
	p := fetchingLayers(5)
	if err := Rematerialize(p); err != nil {
		t.Fatal(err)
	}
	want := "get0 get1 use0 get2 use1 get3 use2 get4 use3 use4 grad4 start4 back4 " +
		"get2 again grad3 start3 back3 get1 again grad2 start2 back2 get0 again grad1 start1 back1 grad0 start0 back0"
	if got := names(p); got != want {
		t.Errorf("order\n%s, want\n%s", got, want)
	}
	if err := Validate(p); err != nil {
		t.Error(err)
	}
	before := p.String()
	if err := Rematerialize(p); err != nil {
		t.Fatal(err)
	}
	if after := p.String(); after != before {
		t.Errorf("a second time it changes\n%s\nto\n%s", before, after)
	}
}

// TestFetchesTakeTheBytesOfThoseBefore checks streams, waits and memory.
func TestFetchesTakeTheBytesOfThoseBefore(t *testing.T) {
	const layers, matrix = 9, 16 * 16 * 4
	p := fetchingLayers(layers)
	if err := Optimize(p); err != nil {
		t.Fatal(err)
	}
	if err := Plan(p); err != nil {
		t.Fatal(err)
	}
	if err := Validate(p); err != nil {
		t.Fatal(err)
	}
	want := fetchingLayers(layers)
	if err := Rematerialize(want); err != nil {
		t.Fatal(err)
	}
	if got := names(p); got != names(want) {
		t.Errorf("scheduled\n%s, want\n%s", got, names(want))
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		switch s.Op.(type) {
		case *Collective:
			if i > 1 && (s.Stream != Comm || !slices.Equal(s.After, []int{i - 1})) {
				t.Errorf("step %d %q is on %v after %v, want comm after %d", i, s.Name, s.Stream, s.After, i-1)
			}
		case *Call:
			if len(s.After) > 0 {
				t.Errorf("step %d %q waits for %v, whose results it does not read", i, s.Name, s.After)
			}
		}
	}
	// Two fetched matrices, the results of all layers but the last, and what the backward pass
	// holds for a moment.
	if got, most := p.Arena, int64((2+layers+2)*matrix); got > most {
		t.Errorf("the arena has %d bytes, want at most %d\n%v", got, most, p)
	}
	// With all fetched at once it would be as many again.
	p = fetchingLayers(layers)
	if err := Pack(p); err != nil {
		t.Fatal(err)
	}
	if err := Plan(p); err != nil {
		t.Fatal(err)
	}
	if least := int64(2 * layers * matrix); p.Arena < least {
		t.Errorf("without Rematerialize the arena has %d bytes, want at least %d", p.Arena, least)
	}
}

// TestFetchesOfWhatIsWrittenStay has a shard that is updated before its last use, another that is
// updated at the end of the step, and a gathered value that another collective reads.
func TestFetchesOfWhatIsWrittenStay(t *testing.T) {
	p := fetchingLayers(5)
	double := &Map{Space: []int{128}, Code: []Instr{{Op: Load}, {Op: Add}}, Stores: []int{1}}
	update := func(l int) Step {
		shard := p.Steps[2*l].In[0]
		return Step{Name: fmt.Sprintf("update%d", l), Op: double, In: []View{shard}, Out: []View{shard}}
	}
	p.Steps = append(slices.Insert(p.Steps, len(p.Steps)-1, update(0)), update(2))
	sum := p.Steps[2].Out[0].Value
	p.Steps = append(p.Steps, Step{Name: "sum1", Op: &Collective{Kind: dist.KindAllReduce}, In: []View{p.Whole(sum)}, Out: []View{p.Whole(p.Add(Value{DType: tensor.F32, Shape: []int{256}, Role: Output}))}})
	if err := Rematerialize(p); err != nil {
		t.Fatal(err)
	}
	if got := names(p); strings.Contains(got, "get0 again") || strings.Contains(got, "get1 again") || !strings.Contains(got, "get2 again") {
		t.Errorf("steps %s", got)
	}
	schedule(p)
	if err := Validate(p); err != nil {
		t.Errorf("%v\n%v", err, p)
	}
}

// TestGathersThatDoNotSaySoStay has a user's collectives, whose order and number are those of the
// graph on all ranks.
func TestGathersThatDoNotSaySoStay(t *testing.T) {
	p := fetchingLayers(5)
	for i := range p.Steps {
		if _, ok := p.Steps[i].Op.(*Collective); ok {
			p.Steps[i].Op = &Collective{Kind: dist.KindAllGather}
		}
	}
	before := p.String()
	if err := Rematerialize(p); err != nil {
		t.Fatal(err)
	}
	if after := p.String(); after != before {
		t.Errorf("it changes\n%s\nto\n%s", before, after)
	}
	p.Steps[0].Op = &Collective{Kind: dist.KindBroadcast, Fetch: true}
	if err := Validate(p); err == nil || !strings.Contains(err.Error(), "fetches") {
		t.Errorf("a broadcast that fetches: %v", err)
	}
}

// TestOrderOfCommunicationDoesNotDependOnTheBatch compares the communication of programs whose
// other steps differ.
func TestOrderOfCommunicationDoesNotDependOnTheBatch(t *testing.T) {
	order := func(p *Program) string {
		if err := Optimize(p); err != nil {
			t.Fatal(err)
		}
		var all []string
		for i := range p.Steps {
			switch p.Steps[i].Op.(type) {
			case *Collective, *Call:
				all = append(all, p.Steps[i].Name)
			}
		}
		return strings.Join(all, " ")
	}
	longer := fetchingLayers(7)
	var steps []Step
	for _, s := range longer.Steps { // each product is followed by a step that another batch may need
		steps = append(steps, s)
		if m, ok := s.Op.(*MatMul); ok {
			to := longer.Add(Value{DType: tensor.F32, Shape: []int{m.M, m.N}, Role: Output})
			copied := &Map{Space: []int{256}, Code: []Instr{{Op: Load}, {Op: Exp}}, Stores: []int{1}}
			steps = append(steps, Step{Op: copied, In: []View{{s.In[1].Value, 0, []int{1}}}, Out: []View{{to, 0, []int{1}}}})
		}
	}
	longer.Steps = steps
	if a, b := order(fetchingLayers(7)), order(longer); a != b {
		t.Errorf("one batch has\n%s, another\n%s", a, b)
	}
}
