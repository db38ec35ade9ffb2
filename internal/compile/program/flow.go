package program

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/internal/invariants"
)

// flow has the writers and readers of each value. A pass that changes steps updates its flow with
// renew and remove. Steps keep their indices until finish, so that a change costs the same in a
// long program as in a short one.
type flow struct {
	p       *Program
	writers [][]int // by value: steps in their order, each once
	readers [][]int
	rigid   []int  // by value: the number of readers that are neither Maps nor Reduces
	gone    []bool // steps that finish drops
}

func flowOf(p *Program) *flow {
	var w, r touches
	w.start(len(p.Values))
	r.start(len(p.Values))
	for _, pass := range []func(*touches, ID, int){(*touches).count, (*touches).add} {
		for i := range p.Steps {
			s := &p.Steps[i]
			for _, v := range s.In {
				pass(&r, v.Value, i)
			}
			if m, ok := s.Op.(*MatMul); ok && m.Beta != 0 {
				pass(&r, s.Out[0].Value, i)
			}
			for _, v := range s.Out {
				pass(&w, v.Value, i)
			}
		}
		w.share()
		r.share()
	}
	f := &flow{p: p, writers: w.steps, readers: r.steps, rigid: make([]int, len(p.Values)), gone: make([]bool, len(p.Steps))}
	for id, steps := range f.readers {
		for _, i := range steps {
			if !converts(p.Steps[i].Op) {
				f.rigid[id]++
			}
		}
	}
	return f
}

// renew updates f after a change of step i, which was old. Values may have been added to the
// program.
func (f *flow) renew(i int, old *Step) {
	if n := len(f.p.Values) - len(f.writers); n > 0 {
		f.writers, f.readers = append(f.writers, make([][]int, n)...), append(f.readers, make([][]int, n)...)
		f.rigid = append(f.rigid, make([]int, n)...)
	}
	f.touch(i, old, without)
	f.touch(i, &f.p.Steps[i], with)
	f.check()
}

// remove removes step i from f; finish removes it from the program.
func (f *flow) remove(i int) {
	old := f.p.Steps[i]
	f.p.Steps[i] = Step{Name: old.Name}
	f.gone[i] = true
	f.renew(i, &old)
}

// finish drops the removed steps. The flow is invalid afterwards.
func (f *flow) finish() {
	keep := make([]bool, len(f.gone))
	for i, gone := range f.gone {
		keep[i] = !gone
	}
	keepSteps(f.p, keep)
}

// touch changes the lists of all values that a step writes or reads.
func (f *flow) touch(i int, s *Step, change func(steps []int, i int) []int) {
	for _, v := range s.Out {
		f.writers[v.Value] = change(f.writers[v.Value], i)
	}
	read := func(id ID) {
		before := len(f.readers[id])
		f.readers[id] = change(f.readers[id], i)
		if !converts(s.Op) {
			f.rigid[id] += len(f.readers[id]) - before
		}
	}
	for _, v := range s.In {
		read(v.Value)
	}
	if m, ok := s.Op.(*MatMul); ok && m.Beta != 0 {
		read(s.Out[0].Value)
	}
}

// with returns a sorted list with i in it once.
func with(steps []int, i int) []int {
	at, there := slices.BinarySearch(steps, i)
	if there {
		return steps
	}
	return slices.Insert(steps, at, i)
}

// without returns a sorted list without i.
func without(steps []int, i int) []int {
	if at, there := slices.BinarySearch(steps, i); there {
		return slices.Delete(steps, at, at+1)
	}
	return steps
}

// checked is the length of the longest program that check verifies. Each change costs check time
// proportional to the length.
const checked = 500

// check panics if f differs from a new flow, in builds that check invariants.
func (f *flow) check() {
	if !invariants.Enabled || len(f.p.Steps) > checked {
		return
	}
	n := flowOf(f.p)
	for id := range n.writers {
		same := slices.Equal(n.writers[id], f.writers[id]) && slices.Equal(n.readers[id], f.readers[id]) && n.rigid[id] == f.rigid[id]
		if invariants.Enabled && !same {
			panic(fmt.Sprintf("BUG: value %d has writers %v and readers %v, %d rigid; the flow says %v, %v, %d",
				id, n.writers[id], n.readers[id], n.rigid[id], f.writers[id], f.readers[id], f.rigid[id]))
		}
	}
}

// touches has the steps that touch each value, in one allocation, as flows are made often.
type touches struct {
	steps [][]int
	room  []int // number of steps by value
	last  []int // by value, the last step counted plus 1
	all   []int
}

func (t *touches) start(values int) {
	t.steps, t.room, t.last = make([][]int, values), make([]int, values), make([]int, values)
}

// count reserves room for a step.
func (t *touches) count(id ID, i int) {
	if t.last[id] != i+1 {
		t.last[id] = i + 1
		t.room[id]++
	}
}

// share divides the memory among the values, once.
func (t *touches) share() {
	if t.all != nil {
		return
	}
	n := 0
	for _, r := range t.room {
		n += r
	}
	t.all = make([]int, n)
	n = 0
	for id, r := range t.room {
		t.steps[id] = t.all[n : n : n+r]
		n += r
	}
}

func (t *touches) add(id ID, i int) {
	if n := len(t.steps[id]); n == 0 || t.steps[id][n-1] != i {
		t.steps[id] = append(t.steps[id], i)
	}
}

// maker returns the only step that writes a value, whole and before all reads, if the value is a
// Temp in the arena. Passes may remove such values. It returns -1 for other values.
func (f *flow) maker(id ID) int {
	v := &f.p.Values[id]
	if v.Place != Arena || v.Role != Temp || len(f.writers[id]) != 1 {
		return -1
	}
	i := f.writers[id][0]
	if len(f.readers[id]) > 0 && f.readers[id][0] <= i {
		return -1
	}
	s := &f.p.Steps[i]
	_, out, err := f.p.Operands(s)
	if err != nil {
		return -1
	}
	for k := range s.Out {
		if s.Out[k].Value != id {
			continue
		}
		space := out[k].Space
		if r, ok := s.Op.(*Reduce); ok {
			space = r.kept()
		}
		if s.Out[k].covers(space, v.Len()) {
			return i
		}
		return -1
	}
	return -1
}

// outOf returns the index of the Out of s that writes a value, or -1.
func (s *Step) outOf(id ID) int {
	return slices.IndexFunc(s.Out, func(v View) bool { return v.Value == id })
}

// kept returns the space of the result, in which reduced axes have one element.
func (o *Reduce) kept() []int {
	kept := slices.Clone(o.Space)
	for a, reduced := range o.Reduced {
		if reduced {
			kept[a] = 1
		}
	}
	return kept
}

// writtenBetween reports whether a step between i and j, both excluded, writes a value.
func (f *flow) writtenBetween(id ID, i, j int) bool { return between(f.writers[id], i, j) }

// touchedBetween is writtenBetween for writes and reads.
func (f *flow) touchedBetween(id ID, i, j int) bool {
	return between(f.writers[id], i, j) || between(f.readers[id], i, j)
}

func between(steps []int, i, j int) bool {
	k, _ := slices.BinarySearch(steps, i+1)
	return k < len(steps) && steps[k] < j
}

func contains(steps []int, i int) bool {
	_, there := slices.BinarySearch(steps, i)
	return there
}

// steady reports whether the inputs of step i are unchanged when step j begins.
func (f *flow) steady(i, j int) bool {
	for _, v := range f.p.Steps[i].In {
		if f.writtenBetween(v.Value, i, j) || contains(f.writers[v.Value], i) {
			return false
		}
	}
	return true
}

// readBy reports whether step j is the only reader of the Outs of step i.
func (f *flow) readBy(i, j int) bool {
	some := false
	for _, v := range f.p.Steps[i].Out {
		r := f.readers[v.Value]
		if len(r) > 1 || len(r) == 1 && r[0] != j {
			return false
		}
		some = some || len(r) == 1
	}
	return some
}

// madeOnly reports whether step i is the maker of all its Outs.
func (f *flow) madeOnly(i int) bool {
	for _, v := range f.p.Steps[i].Out {
		if f.maker(v.Value) != i {
			return false
		}
	}
	return true
}

// unneeded reports whether step i is the maker of all its Outs and no step reads them.
func (f *flow) unneeded(i int) bool {
	return f.madeOnly(i) && !slices.ContainsFunc(f.p.Steps[i].Out, func(v View) bool { return len(f.readers[v.Value]) > 0 })
}

// drop removes steps.
func (p *Program) drop(steps ...int) {
	keep := make([]bool, len(p.Steps))
	for i := range keep {
		keep[i] = !slices.Contains(steps, i)
	}
	keepSteps(p, keep)
}

// rename makes all readers of a value read another value with the same elements in the same order.
func (f *flow) rename(from, to ID) {
	p := f.p
	for _, i := range slices.Clone(f.readers[from]) {
		s := &p.Steps[i]
		before := *s
		s.In = slices.Clone(s.In) // steps may share a slice of views
		for k := range s.In {
			if s.In[k].Value != from {
				continue
			}
			switch s.Op.(type) {
			case *Collective, *Call: // their views have the value's own shape
				s.In[k] = p.Whole(to)
			default:
				s.In[k].Value = to
			}
		}
		f.renew(i, &before)
	}
}

// goOn reports for each step whether a step that stands follows from it, through values.
func (f *flow) goOn() []bool {
	goesOn := make([]bool, len(f.p.Steps))
	for i := len(goesOn) - 1; i >= 0; i-- {
		for _, v := range f.p.Steps[i].Out {
			for _, j := range f.readers[v.Value] {
				goesOn[i] = goesOn[i] || j > i && (goesOn[j] || stands(&f.p.Steps[j]))
			}
		}
	}
	return goesOn
}

// readsFrom reports whether step i reads a result of an earlier step of a stream.
func (f *flow) readsFrom(i int, from Stream) bool {
	for _, v := range f.p.Steps[i].In {
		for _, j := range f.writers[v.Value] {
			if j < i && f.p.Steps[j].Stream == from {
				return true
			}
		}
	}
	return false
}
