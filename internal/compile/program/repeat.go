package program

import "slices"

// repeater rewrites a program so that the backward pass computes dropped results again. It copies
// the steps that make them, with all that these need, to right before the first reader.
type repeater struct {
	a     *activations
	p     *Program  // the new one
	drop  []bool    // by value: it is not kept for the backward pass
	of    map[ID]ID // the value that replaces a dropped one
	steps []Step
	cost  float64 // of the repeated steps: see costOf
}

// repeat returns a copy of the program of a in which the backward pass computes the dropped values
// again, and the cost of that. Streams and After are not set yet.
func (a *activations) repeat(drop []bool) (*Program, float64) {
	p := *a.p
	p.Values = slices.Clone(p.Values)
	r := &repeater{a: a, p: &p, drop: slices.Clone(drop), of: map[ID]ID{}}
	for j := range a.p.Steps {
		s := a.p.Steps[j]
		if s.After = nil; j >= a.turn {
			r.reader(j, &s)
		}
		r.steps = append(r.steps, s)
	}
	p.Steps = r.steps
	for pruneRepeated(&p, len(a.p.Values)) && removeDead(&p) {
	}
	return &p, r.cost
}

// reader makes step j read repeated values instead of dropped ones.
func (r *repeater) reader(j int, s *Step) {
	cloned := false
	for k := range s.In {
		id := s.In[k].Value
		if int(id) >= len(r.drop) || !r.drop[id] {
			continue
		}
		if _, done := r.of[id]; !done && !r.possible(id, j, map[int]bool{}) {
			r.drop[id] = false // it is kept
			continue
		}
		if !cloned {
			s.In, cloned = slices.Clone(s.In), true
		}
		s.In[k].Value = r.again(id, j)
	}
}

// possible reports whether a dropped value can be computed again right before step j. A dropped
// activation that it needs and that cannot be computed again is kept. steps has the answers so far.
func (r *repeater) possible(id ID, j int, steps map[int]bool) bool {
	i := r.a.f.maker(id)
	can, known := steps[i]
	if !known {
		can = r.a.again[i] && r.a.horizon[i] >= j && r.possibleInputs(&r.a.p.Steps[i], j, steps)
		steps[i] = can
	}
	return can
}

// possibleInputs reports whether all inputs of a step can be in memory right before step j.
func (r *repeater) possibleInputs(s *Step, j int, steps map[int]bool) bool {
	for k, v := range s.In {
		id := v.Value
		_, done := r.of[id]
		home, fetched := r.a.fetchedFrom(id)
		switch {
		case trains(s) && (k == 1 || k == 2), done:
		case r.drop[id] && !r.possible(id, j, steps):
			if !r.a.saved[id] {
				return false
			}
			r.drop[id] = false
		case fetched && r.a.fetchBefore(home, id, j) == None:
			return false
		}
	}
	return true
}

// fetchBefore returns the value that was last fetched from home before step j, for the backward
// pass or for no step (see refetchBlocks). Its elements are those of id. It returns None if there
// is none.
func (a *activations) fetchBefore(home, id ID, j int) ID {
	best := None
	of := a.p.Steps[a.f.maker(id)].Op.(*Collective)
	for k := range a.p.Steps[:j] {
		s := &a.p.Steps[k]
		c, ok := s.Op.(*Collective)
		if !ok || !c.Fetch || s.In[0].Value != home || *c != *of {
			continue
		}
		out := s.Out[0].Value
		if r := a.f.readers[out]; len(r) == 0 || r[len(r)-1] >= a.turn {
			best = out
		}
	}
	return best
}

// again returns the value that replaces a dropped one, and adds the steps that compute it.
func (r *repeater) again(id ID, j int) ID {
	if to, done := r.of[id]; done {
		return to
	}
	a := r.a
	i := a.f.maker(id)
	s := a.p.Steps[i]
	s.In, s.Out, s.After = slices.Clone(s.In), slices.Clone(s.Out), nil
	for k := range s.In {
		from := s.In[k].Value
		switch {
		case trains(&s) && (k == 1 || k == 2):
		case r.drop[from]:
			s.In[k].Value = r.again(from, j)
		default:
			if home, ok := a.fetchedFrom(from); ok {
				s.In[k].Value = a.fetchBefore(home, from, j)
			}
		}
	}
	for k := range s.Out {
		from := s.Out[k].Value
		v := a.p.Values[from]
		if v.Role != Temp || v.Place != Arena { // running statistics, which count a batch once
			s.In[k-2] = r.unread(&s, &v)
			s.Out[k] = s.In[k-2]
			continue
		}
		v.Shape = slices.Clone(v.Shape)
		s.Out[k].Value = r.p.Add(v)
		r.of[from] = s.Out[k].Value
	}
	s.Name, s.Again = s.Name+" again", true
	r.cost += costOf(r.p, &s)
	r.steps = append(r.steps, s)
	return r.of[id]
}

// unread returns a value of zeros that is like v, for running statistics that no step reads.
func (r *repeater) unread(s *Step, v *Value) View {
	to := r.p.Whole(r.p.Add(Value{Name: v.Name, DType: v.DType, Shape: slices.Clone(v.Shape)}))
	zero := &Map{Space: slices.Clone(v.Shape), Code: []Instr{{Op: Const}}, Stores: []int{0}}
	r.steps = append(r.steps, Step{Name: s.Name, Op: zero, Out: []View{to}})
	return to
}

// pruneRepeated removes results of repeated Maps that no step reads. Repeated values are those from
// number first on.
func pruneRepeated(p *Program, first int) bool {
	f := flowOf(p)
	pruned := false
	for i := range p.Steps {
		s := &p.Steps[i]
		m, ok := s.Op.(*Map)
		if !ok || int(s.Out[0].Value) < first {
			continue
		}
		e := &elementwise{space: m.Space, in: s.In, code: m.Code}
		next := *s
		next.Out = nil
		for k, v := range s.Out {
			if len(f.readers[v.Value]) > 0 {
				next.Out, e.roots = append(next.Out, v), append(e.roots, m.Stores[k])
			}
		}
		if n := len(next.Out); n < len(s.Out) && n > 0 && single(p, &next) == single(p, s) && e.prune().put(p, &next) {
			*s, pruned = next, true
		}
	}
	return pruned
}
