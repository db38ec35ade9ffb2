package program

import "slices"

// keptSpans returns spans in which all values of a run of steps are in use until its end. A run is
// successive Maps, Reduces and softmaxes, each of which reads a result of an earlier one, or makes
// another input of the next. A back half that does such a run row by row needs its inputs until the
// last row is done. A Map may still write in place.
func (p *Program) keptSpans(spans []span) []span {
	kept := slices.Clone(spans)
	for i := 0; i < len(p.Steps); {
		end := p.runFrom(i)
		for _, s := range p.Steps[i:end] {
			for _, v := range slices.Concat(s.In, s.Out) {
				last := &kept[v.Value].last[s.Stream]
				*last = max(*last, end-1)
			}
		}
		i = end
	}
	return kept
}

// leadsInto reports whether the step after step j, on its stream, reads the result of j and
// continues a run.
func (p *Program) leadsInto(j int, goesOn func(v View) bool) bool {
	if j+1 == len(p.Steps) || p.Steps[j+1].Stream != p.Steps[j].Stream {
		return false
	}
	next := &p.Steps[j+1]
	return slices.ContainsFunc(next.In, goesOn) && slices.ContainsFunc(p.Steps[j].Out, func(v View) bool { return readsValue(next, v.Value) })
}

// runFrom is the end of the run that begins with step i.
func (p *Program) runFrom(i int) int {
	made := map[ID]bool{}
	for j := i; j < len(p.Steps); j++ {
		s := &p.Steps[j]
		goesOn := func(v View) bool { return made[v.Value] }
		if s.Stream != p.Steps[i].Stream || j > i && !slices.ContainsFunc(s.In, goesOn) && !p.leadsInto(j, goesOn) {
			return j
		}
		switch s.Op.(type) {
		case *Map, *Reduce, *Softmax, *SoftmaxGrad:
		default:
			return max(j, i+1)
		}
		for _, v := range s.Out {
			made[v.Value] = true
		}
	}
	return len(p.Steps)
}
