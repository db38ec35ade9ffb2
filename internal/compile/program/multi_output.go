package program

import "slices"

// fuseMultiOutput makes step j, a Map, also compute the results of step i, which other steps still
// need. Both run over the same elements, and In number k of step j is a result of i.
func (x *join) fuseMultiOutput(k int) bool {
	from, to := &x.p.Steps[x.i], &x.p.Steps[x.j]
	m, ok := from.Op.(*Map)
	n, isMap := to.Op.(*Map)
	if !ok || !isMap {
		return false
	}
	v := to.In[k]
	r, ok := routeOf(m.Space, &from.Out[from.outOf(v.Value)], n.Space, &v)
	if !ok || lenOf(n.Space) != lenOf(m.Space) || r.repeats() {
		return false
	}
	return x.merge(r)
}

// merge adds Map i to step j along a route that visits all of its space once.
func (x *join) merge(r *route) bool {
	from, to := x.p.Steps[x.i], x.p.Steps[x.j]
	m, _ := from.Op.(*Map)
	n, _ := to.Op.(*Map)
	if len(from.Out)+len(to.Out) > maxOuts || !x.mayMove(&from) || !x.sameArithmetic() || has(m.Code, Rand) && !r.straight(m.Space) {
		return false
	}
	f32 := single(x.p, &to)
	next := Step{Stream: to.Stream, After: append(slices.Clone(from.After), to.After...)}
	all := &elementwise{space: r.space(), code: slices.Clone(m.Code)}
	for _, w := range from.In {
		all.in = append(all.in, r.carry(w))
	}
	for _, w := range to.In {
		all.in = append(all.in, r.split(w))
	}
	made := map[int]int{} // by In of step j, the register that computes it
	for k := range from.Out {
		next.Out = append(next.Out, r.carry(from.Out[k]))
		all.roots = append(all.roots, m.Stores[k])
		if !isInjective(all.space, next.Out[k].Strides) {
			return false
		}
		for in := range to.In {
			w := r.split(to.In[in])
			if w.Value != from.Out[k].Value {
				continue
			}
			if !sameLook(all.space, &w, &next.Out[k]) || !carries(x.p.Values[w.Value].DType, f32) {
				return false
			}
			made[in] = m.Stores[k]
		}
	}
	x.append(all, n, made, len(from.In))
	for _, w := range to.Out {
		next.Out = append(next.Out, r.split(w))
	}
	return x.accept(all, next, f32)
}

// append adds the code of Map n to all, which already has the other Map's code and the Ins of both.
func (x *join) append(all *elementwise, n *Map, made map[int]int, base int) {
	at := make([]int, len(n.Code))
	for k, in := range n.Code {
		if in.Op == Load {
			if r, ok := made[in.A]; ok {
				at[k] = r
				continue
			}
			in.A += base
		} else {
			in = in.moved(at)
		}
		all.code = append(all.code, in)
		at[k] = len(all.code) - 1
	}
	for _, r := range n.Stores {
		all.roots = append(all.roots, at[r])
	}
}

// accept replaces step j by next, which computes all, if next is valid and no longer.
func (x *join) accept(all *elementwise, next Step, f32 bool) bool {
	before := len(all.code)
	all = all.tidy(x.p, f32)
	if len(all.in) > maxIns || len(all.code) > maxInstrs || len(all.code) > before {
		return false
	}
	next.Op = &Map{Space: all.space, Code: all.code, Stores: all.roots}
	next.In = all.in
	if single(x.p, &next) != f32 || !elementByElement(x.p, &next) {
		return false
	}
	next.Name = joinedName(x.p.Steps[x.i].Name, x.p.Steps[x.j].Name)
	slices.Sort(next.After)
	next.After = slices.Compact(next.After)
	x.p.Steps[x.j] = next
	x.done = true
	return true
}

// mayMove reports whether step i can run right before step j.
func (x *join) mayMove(from *Step) bool {
	for _, w := range from.In {
		if x.f.writtenBetween(w.Value, x.i, x.j) {
			return false
		}
	}
	for _, w := range from.Out {
		if x.f.touchedBetween(w.Value, x.i, x.j) {
			return false
		}
	}
	return true
}
