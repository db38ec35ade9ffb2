package program

import "slices"

// smallMap is up to how many elements a Map costs more to start than to run, on a GPU.
const smallMap = 1 << 16

// fuseSiblings joins Maps that go over one space and do not depend on each other, where that saves
// something: they read a value in common, or they are small. Maps that wait for different
// collectives stay apart, since the one would wait for both.
func fuseSiblings(p *Program) bool {
	changed := false
	f := flowOf(p)
	waits := waitsFor(f)
	last := make([]int, len(p.Steps)) // of each step, the one before it that is not removed; -1 for none
	for j := range p.Steps {
		last[j] = j - 1
		i := &last[j]
		for back := 0; *i >= 0 && back < reachBeside; {
			before := p.Steps[j]
			if !worthBeside(p, *i, j) || !slices.Equal(waits[*i], waits[j]) || !(&join{f: f, p: p, i: *i, j: j}).fuseBoth() {
				i = &last[*i]
				back++
				continue
			}
			f.renew(j, &before)
			f.remove(*i)
			*i = last[*i]
			changed = true
		}
	}
	f.finish()
	return changed
}

// fuseBoth makes step j also do the work of step i, over the same space.
func (x *join) fuseBoth() bool {
	m, _ := x.p.Steps[x.i].Op.(*Map)
	return x.merge(unit(m.Space))
}

// reachBeside is how many steps back a Map looks for another one.
const reachBeside = 64

func worthBeside(p *Program, i, j int) bool {
	a, ok := p.Steps[i].Op.(*Map)
	b, isMap := p.Steps[j].Op.(*Map)
	if !ok || !isMap || !slices.Equal(a.Space, b.Space) {
		return false
	}
	if lenOf(a.Space) <= smallMap {
		return true
	}
	for _, v := range p.Steps[i].In {
		whole := p.Values[v.Value].Len() >= lenOf(a.Space)/2
		if whole && slices.ContainsFunc(p.Steps[j].In, func(w View) bool { return w.Value == v.Value }) {
			return true
		}
	}
	return false
}

// waitsFor is, of each step, the collectives whose results reach it, by number.
func waitsFor(f *flow) [][]int {
	p := f.p
	all := make([][]int, len(p.Steps))
	of := make([][]int, len(p.Values))
	for i := range p.Steps {
		var w []int
		for _, v := range p.Steps[i].In {
			w = append(w, of[v.Value]...)
		}
		if _, ok := p.Steps[i].Op.(*Collective); ok {
			w = append(w, i)
		}
		slices.Sort(w)
		all[i] = slices.Compact(w)
		for _, v := range p.Steps[i].Out {
			of[v.Value] = all[i]
		}
	}
	return all
}
