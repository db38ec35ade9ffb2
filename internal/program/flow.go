package program

import "slices"

// flow is who writes and who reads each value.
type flow struct {
	p       *Program
	writers [][]int // by value: steps in their order, each once
	readers [][]int
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
	return &flow{p, w.steps, r.steps}
}

// touches is the steps that touch each value, in one piece of memory: flows are made often.
type touches struct {
	steps [][]int
	room  []int // of each value
	last  []int // the last step counted
	all   []int
}

func (t *touches) start(values int) {
	t.steps, t.room, t.last = make([][]int, values), make([]int, values), make([]int, values)
}

// count makes room for a step.
func (t *touches) count(id ID, i int) {
	if t.last[id] != i+1 {
		t.last[id] = i + 1
		t.room[id]++
	}
}

// share gives each value its room, once.
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

// maker is the step that makes a value which is nothing but its result: in the arena, for nobody after the run, written
// once, whole, before all reads. It is what passes may do away with. It gives -1 for other values.
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

// outOf is which Out of a step writes a value; -1 if none.
func (s *Step) outOf(id ID) int {
	return slices.IndexFunc(s.Out, func(v View) bool { return v.Value == id })
}

// kept is the space of what is stored: reduced axes have one element.
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

// touchedBetween is writtenBetween for reads, too.
func (f *flow) touchedBetween(id ID, i, j int) bool {
	return between(f.writers[id], i, j) || between(f.readers[id], i, j)
}

func between(steps []int, i, j int) bool {
	return slices.ContainsFunc(steps, func(k int) bool { return i < k && k < j })
}

// steady reports whether what step i reads is the same when step j begins.
func (f *flow) steady(i, j int) bool {
	for _, v := range f.p.Steps[i].In {
		if f.writtenBetween(v.Value, i, j) || slices.Contains(f.writers[v.Value], i) {
			return false
		}
	}
	return true
}

// readersOf is the steps that read any Out of step i, in order.
func (f *flow) readersOf(i int) []int {
	var all []int
	for _, v := range f.p.Steps[i].Out {
		all = append(all, f.readers[v.Value]...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// madeOnly reports whether all Outs of step i are values that it is the maker of.
func (f *flow) madeOnly(i int) bool {
	for _, v := range f.p.Steps[i].Out {
		if f.maker(v.Value) != i {
			return false
		}
	}
	return true
}

// unneeded reports whether step i makes nothing but values that no step reads.
func (f *flow) unneeded(i int) bool {
	for _, v := range f.p.Steps[i].Out {
		if f.maker(v.Value) != i {
			return false
		}
		for j := range f.p.Steps {
			if readsValue(&f.p.Steps[j], v.Value) {
				return false
			}
		}
	}
	return true
}

// drop takes out steps.
func (p *Program) drop(steps ...int) {
	keep := make([]bool, len(p.Steps))
	for i := range keep {
		keep[i] = !slices.Contains(steps, i)
	}
	p.keep(keep)
}
