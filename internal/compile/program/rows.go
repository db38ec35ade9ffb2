package program

import "slices"

// keptSpans extends spans to the end of runs of steps. A run is Maps, Reduces and softmaxes, one
// after the other. Each reads a result of the run, or makes one that the next step reads together
// with a result of the run. A back half that executes a run row by row needs its operands until the
// last row is done. A Map may still write in place.
func keptSpans(p *Program, spans []span) []span {
	kept := slices.Clone(spans)
	for i := 0; i < len(p.Steps); {
		end := runFrom(p, i)
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

// leadsInto reports whether the next step, on the same stream, reads a result of step j and also
// continues the run.
func leadsInto(p *Program, j int, goesOn func(v View) bool) bool {
	if j+1 == len(p.Steps) || p.Steps[j+1].Stream != p.Steps[j].Stream {
		return false
	}
	next := &p.Steps[j+1]
	return slices.ContainsFunc(next.In, goesOn) && slices.ContainsFunc(p.Steps[j].Out, func(v View) bool { return readsValue(next, v.Value) })
}

// runFrom returns the end of the run that begins with step i.
func runFrom(p *Program, i int) int {
	made := map[ID]bool{}
	for j := i; j < len(p.Steps); j++ {
		s := &p.Steps[j]
		goesOn := func(v View) bool { return made[v.Value] }
		if s.Stream != p.Steps[i].Stream || j > i && !slices.ContainsFunc(s.In, goesOn) && !leadsInto(p, j, goesOn) {
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
