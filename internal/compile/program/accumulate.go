package program

import "slices"

// fuseAccumulate makes a product accumulate onto another where a Map only adds the two. The last
// bit may change, since libraries add in their own order.
func fuseAccumulate(p *Program) bool {
	changed := false
	f := flowOf(p)
	for j := range p.Steps {
		changed = accumulateInto(f, j) || changed
	}
	f.finish()
	return changed
}

func accumulateInto(f *flow, j int) bool {
	p := f.p
	s := p.Steps[j]
	m, ok := s.Op.(*Map)
	if !ok || len(s.In) != 2 || len(s.Out) != 1 || !isSum(m) || s.In[0].Value == s.In[1].Value {
		return false
	}
	target := s.Out[0]
	a, b := f.maker(s.In[0].Value), f.maker(s.In[1].Value)
	if a > b {
		a, b = b, a
		s.In = []View{s.In[1], s.In[0]}
	}
	if a < 0 || b >= j || f.touchedBetween(target.Value, a, j) || f.touchedBetween(target.Value, a-1, a+1) {
		return false
	}
	var outs [2]View
	for k, i := range []int{a, b} {
		v := s.In[k]
		o, ok := p.Steps[i].Op.(*MatMul)
		if !ok || o.Beta != 0 || len(f.readers[v.Value]) != 1 || p.Values[v.Value].DType != p.Values[target.Value].DType {
			return false
		}
		if !v.covers(m.Space, p.Values[v.Value].Len()) {
			return false
		}
		space := []int{o.Batch, o.M, o.N}
		r, ok := routeOf(m.Space, &v, space, &p.Steps[i].Out[0])
		if !ok {
			return false
		}
		out, ok := r.whole(target)
		if !ok || !isMatrix(space, out.Strides) || readsValue(&p.Steps[i], target.Value) {
			return false
		}
		outs[k] = out
	}
	first, second := &p.Steps[a], &p.Steps[b]
	before := *first
	first.Out = []View{outs[0]}
	f.renew(a, &before)
	before = *second
	o := *second.Op.(*MatMul)
	o.Beta = 1
	second.Op, second.Out, second.Name = &o, []View{outs[1]}, joinedName(second.Name, s.Name)
	f.renew(b, &before)
	f.remove(j)
	return true
}

// isSum reports whether a Map is exactly In 0 plus In 1.
func isSum(m *Map) bool {
	root := m.Code[m.Stores[0]]
	return len(m.Code) == 3 && root.Op == Add && m.Code[root.A].Op == Load && m.Code[root.B].Op == Load &&
		m.Code[root.A].A != m.Code[root.B].A
}

func readsValue(s *Step, id ID) bool {
	return slices.ContainsFunc(s.In, func(v View) bool { return v.Value == id })
}
