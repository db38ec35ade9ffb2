package program

// removeDead removes steps whose results neither a later step nor the caller reads. Collectives
// stay because other ranks take part in them, and Calls because they may have side effects.
func removeDead(p *Program) bool {
	needed := make([]bool, len(p.Values)) // by a later step, or after the run
	for i := range p.Values {
		v := &p.Values[i]
		needed[i] = v.Role != Temp || v.Place == Outside
	}
	keep := make([]bool, len(p.Steps))
	for i := len(p.Steps) - 1; i >= 0; i-- {
		s := &p.Steps[i]
		switch s.Op.(type) {
		case *Collective, *Call:
			keep[i] = true
		}
		for _, v := range s.Out {
			keep[i] = keep[i] || needed[v.Value]
		}
		if !keep[i] {
			continue
		}
		for _, v := range s.In {
			needed[v.Value] = true
		}
		if m, ok := s.Op.(*MatMul); ok && m.Beta != 0 {
			needed[s.Out[0].Value] = true
		}
	}
	return keepSteps(p, keep)
}

// keepSteps drops the other steps, and entries of After that name them.
func keepSteps(p *Program, keep []bool) bool {
	at := make([]int, len(p.Steps))
	kept := p.Steps[:0]
	for i, s := range p.Steps {
		at[i] = -1
		if !keep[i] {
			continue
		}
		after := s.After[:0:0]
		for _, j := range s.After {
			if at[j] >= 0 {
				after = append(after, at[j])
			}
		}
		s.After = after
		at[i] = len(kept)
		kept = append(kept, s)
	}
	dropped := len(kept) < len(at)
	p.Steps = kept
	return dropped
}
