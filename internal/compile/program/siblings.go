package program

import "slices"

// smallMap is the most elements for which a Map's launch on a GPU costs more than its work.
const smallMap = 1 << 16

// fuseSiblings fuses independent Maps over one space if they read a common value or are small. Maps
// that wait for different collectives stay separate, since the fused Map would wait for both.
func fuseSiblings(p *Program) bool {
	changed := false
	f := flowOf(p)
	waits := waitsFor(f)
	last := make([]int, len(p.Steps)) // by step, the previous step that is not removed, or -1
	for j := range p.Steps {
		last[j] = j - 1
		i := &last[j]
		for back := 0; *i >= 0 && back < siblingReach; {
			before := p.Steps[j]
			if !worthFusing(p, *i, j) || !slices.Equal(waits[*i], waits[j]) || !(&join{f: f, p: p, i: *i, j: j}).fuseSibling() {
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

// fuseSibling makes step j also compute the results of step i, over the same space.
func (x *join) fuseSibling() bool {
	m, _ := x.p.Steps[x.i].Op.(*Map)
	return x.merge(unit(m.Space))
}

// siblingReach is the number of earlier steps that a Map is compared with.
const siblingReach = 64

func worthFusing(p *Program, i, j int) bool {
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

// waitsFor returns, for each step, the collectives whose results reach it.
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
