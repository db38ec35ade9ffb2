package program

import (
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// sharded is the backward pass of layers with so many weights each. Each rank updates a half.
func sharded(sizes ...int) *Program {
	p := &Program{Clock: None}
	outside := func(name string, role Role, n int) ID {
		return p.Add(Value{Name: name, DType: tensor.F32, Shape: []int{n}, Role: role, Place: Outside})
	}
	double := func(name string, from, to View, n int) Step {
		return Step{Name: name, Op: &Map{Space: []int{n}, Code: []Instr{{Op: Load}, {Op: Add}}, Stores: []int{1}}, In: []View{from}, Out: []View{to}}
	}
	var homes, grads []ID
	for _, n := range sizes {
		homes, grads = append(homes, outside("weights", Param, n)), append(grads, outside("bucket", Gradient, n))
	}
	for l, home := range homes {
		layer, n := string(rune('a'+l)), sizes[l]
		x := p.Whole(outside("x", Input, n))
		own := View{home, n / 2, []int{1}}
		sum := &Collective{Kind: dist.KindReduceScatter, Part: n / 2}
		p.Steps = append(
			p.Steps,
			double("read "+layer, p.Whole(home), x, n),
			double("grad "+layer, x, p.Whole(grads[l]), n),
			Step{Name: "sum " + layer, Op: sum, In: []View{p.Whole(grads[l])}, Out: []View{{grads[l], n / 2, []int{1}}}},
			double("update "+layer, View{grads[l], n / 2, []int{1}}, own, n/2),
			Step{Name: "spread " + layer, Op: &Collective{Kind: dist.KindAllGather, Part: n / 2}, In: []View{own}, Out: []View{p.Whole(home)}},
		)
	}
	return p
}

// streamed returns the names of the steps, by stream.
func streamed(p *Program) (compute, comm string) {
	var by [streamCount][]string
	for i := range p.Steps {
		s := &p.Steps[i]
		by[s.Stream] = append(by[s.Stream], s.Name)
	}
	return strings.Join(by[Compute], ", "), strings.Join(by[Comm], ", ")
}

func TestUpdatesOfPartsRunWhileTheNextSumsAreOnTheirWay(t *testing.T) {
	for _, c := range []struct {
		sizes         []int
		compute, comm string
	}{
		{[]int{8}, "read a, grad a, update a", "sum a, spread a"},
		{
			[]int{8, 8, 8},
			"read a, grad a, read b, grad b, update a, read c, grad c, update b, update c",
			"sum a, sum b, spread a, sum c, spread b, spread c",
		},
		{ // a large bucket before small ones delays later updates, and no sum
			[]int{8, 2, 2, 2, 2, 2, 8},
			"read a, grad a, read b, grad b, read c, grad c, read d, grad d, read e, grad e, update a, update b, update c, update d, " +
				"read f, grad f, update e, read g, grad g, update f, update g",
			"sum a, sum b, sum c, sum d, sum e, spread a, spread b, spread c, spread d, sum f, spread e, sum g, spread f, spread g",
		},
		{ // the small sum of b hides no update of a
			[]int{8, 2, 8},
			"read a, grad a, read b, grad b, read c, grad c, update a, update b, update c",
			"sum a, sum b, sum c, spread a, spread b, spread c",
		},
	} {
		p := sharded(c.sizes...)
		if err := Validate(p); err != nil {
			t.Fatal(err)
		}
		schedule(p)
		if err := Validate(p); err != nil {
			t.Error(err)
		}
		if compute, comm := streamed(p); compute != c.compute || comm != c.comm {
			t.Errorf("%v: compute %q,\nwant %q,\ncomm %q,\nwant %q", c.sizes, compute, c.compute, comm, c.comm)
		}
	}
}

// Weights that are read between an update and the next sum must be whole by then: the update does
// not wait for steps in between.
func TestUpdatesOfPartsThatAreReadAtOnceAreOnComm(t *testing.T) {
	p := sharded(8, 8)
	at := slices.IndexFunc(p.Steps, func(s Step) bool { return s.Name == "spread a" })
	again := p.Steps[0]
	again.Name = "read again"
	p.Steps = slices.Insert(p.Steps, at+1, again)
	schedule(p)
	if err := Validate(p); err != nil {
		t.Error(err)
	}
	compute, comm := streamed(p)
	if want := "sum a, update a, spread a, sum b, spread b"; comm != want {
		t.Errorf("comm %q, want %q", comm, want)
	}
	if want := "read a, grad a, read b, grad b, update b, read again"; compute != want {
		t.Errorf("compute %q, want %q", compute, want)
	}
}

// A rank whose part of a bucket has no parameters takes part in the same collectives, in the same
// order.
func TestRanksWithoutUpdatesHaveTheSameOrder(t *testing.T) {
	want := ""
	for left := range 8 {
		p := sharded(8, 2, 8)
		p.Steps = slices.DeleteFunc(p.Steps, func(s Step) bool {
			at, isUpdate := strings.CutPrefix(s.Name, "update ")
			return isUpdate && left>>(at[0]-'a')&1 == 0
		})
		schedule(p)
		if err := Validate(p); err != nil {
			t.Error(err)
		}
		_, comm := streamed(p)
		if want == "" {
			want = comm
		}
		if comm != want {
			t.Errorf("with updates %03b: comm %q, want %q", left, comm, want)
		}
	}
}

// A Call may read anything, on all ranks: weights are whole by then.
func TestCallsComeBehindTheSpreadsBeforeThem(t *testing.T) {
	p := sharded(8, 8)
	at := slices.IndexFunc(p.Steps, func(s Step) bool { return s.Name == "spread a" })
	p.Steps = slices.Insert(p.Steps, at+1, Step{Name: "call", Op: &Call{Label: "call"}})
	schedule(p)
	if err := Validate(p); err != nil {
		t.Error(err)
	}
	all := names(p)
	if call := strings.Index(all, "call"); call < strings.Index(all, "spread a") || call > strings.Index(all, "sum b") {
		t.Errorf("order %q", all)
	}
}

// TestSpreadsBeforeAllReadersHoldUpNothing has the spreads of the previous run's updates at the
// beginning. A reader waits for its own spread only, and updates come last, as no step waits for
// them.
func TestSpreadsBeforeAllReadersHoldUpNothing(t *testing.T) {
	late := func(sizes ...int) *Program {
		p := sharded(sizes...)
		var first, rest []Step
		for _, s := range p.Steps {
			if strings.HasPrefix(s.Name, "spread") {
				first = append(first, s)
			} else {
				rest = append(rest, s)
			}
		}
		p.Steps = append(first, rest...)
		return p
	}
	p := late(8, 8, 8)
	schedule(p)
	compute, comm := streamed(p)
	if want := "read a, grad a, read b, grad b, read c, grad c, update a, update b, update c"; compute != want {
		t.Errorf("compute is %s, want %s", compute, want)
	}
	if want := "spread a, spread b, spread c, sum a, sum b, sum c"; comm != want {
		t.Errorf("comm is %s, want %s", comm, want)
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		layer, reads := strings.CutPrefix(s.Name, "read ")
		if !reads {
			continue
		}
		spread := slices.IndexFunc(p.Steps, func(s Step) bool { return s.Name == "spread "+layer })
		if !orderOf(p).before(spread, i) {
			t.Errorf("%s does not wait for the weights:\n%v", s.Name, p)
		}
	}
	if err := Validate(p); err != nil {
		t.Error(err)
	}
	for i := range p.Steps {
		if want := strings.HasPrefix(p.Steps[i].Name, "spread"); opens(p, i) != want {
			t.Errorf("%s opens: %v, want %v", p.Steps[i].Name, opens(p, i), want)
		}
	}
	usual := sharded(8, 8)
	for i := range usual.Steps {
		if opens(usual, i) {
			t.Errorf("%s opens, and comes behind what reads the weights", usual.Steps[i].Name)
		}
	}
}

// TestUpdatesRunBesideTheLastSpread has all spreads except the last at the beginning. The update
// that the last one waits for precedes others, which have about as many elements as are spread.
func TestUpdatesRunBesideTheLastSpread(t *testing.T) {
	for _, c := range []struct {
		sizes []int
		want  string
	}{
		{[]int{8, 8, 8}, "update c, update a, update b"},
		{[]int{8, 8, 8, 8}, "update a, update d, update b, update c"},
		{[]int{16, 4, 4, 8}, "update a, update d, update b, update c"},
		{[]int{8, 8, 2}, "update a, update b, update c"},
	} {
		p := sharded(c.sizes...)
		var first, rest []Step
		for i, s := range p.Steps {
			if strings.HasPrefix(s.Name, "spread") && i < len(p.Steps)-1 {
				first = append(first, s)
			} else {
				rest = append(rest, s)
			}
		}
		p.Steps = append(first, rest...)
		schedule(p)
		if err := Validate(p); err != nil {
			t.Error(err)
		}
		compute, comm := streamed(p)
		if _, updates, _ := strings.Cut(compute, ", update"); "update"+updates != c.want {
			t.Errorf("%v: compute is %s, want %s at its end", c.sizes, compute, c.want)
		}
		if want := "spread " + string(rune('a'+len(c.sizes)-1)); !strings.HasSuffix(comm, want) {
			t.Errorf("%v: comm is %s, want %s last", c.sizes, comm, want)
		}
	}
}

// TestRanksWithoutUpdatesHaveTheOrderOfOthers has weights that no step reads. Ranks with and
// without updates of them must have the same order of collectives.
func TestRanksWithoutUpdatesHaveTheOrderOfOthers(t *testing.T) {
	without := func(names ...string) string {
		p := sharded(8, 8, 8)
		p.Steps = slices.DeleteFunc(p.Steps, func(s Step) bool { return slices.Contains(names, s.Name) })
		schedule(p)
		if err := Validate(p); err != nil {
			t.Fatal(err)
		}
		_, comm := streamed(p)
		return comm
	}
	want := without("read a")
	if got := without("read a", "update a"); got != want {
		t.Errorf("without updates comm is %s, with them %s", got, want)
	}
}
