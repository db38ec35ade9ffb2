package program

import (
	"slices"
	"strings"

	"github.com/symgrad/symgrad/tensor"
)

// fuse joins Maps with the Maps and Reduces that read them, and folds copies into the views of
// their readers, until nothing changes. Registers have the arithmetic's type, so f32 and f64 keep
// their bits; f16 and bf16 between joined steps are no longer rounded.
func fuse(p *Program) bool {
	changed := false
	f := flowOf(p)
	for j := 0; j < len(p.Steps); {
		if f.gone[j] || !fuseInto(f, j) {
			j++
			continue
		}
		changed = true
	}
	f.finish()
	return changed
}

// fuseInto makes one change to the inputs of step j, or removes j.
func fuseInto(f *flow, j int) bool {
	p := f.p
	s := &p.Steps[j]
	before := *s
	for k := range s.In {
		i := f.maker(s.In[k].Value)
		if i < 0 || i >= j {
			continue
		}
		ok := false
		x := &join{f: f, p: p, i: i, j: j}
		switch s.Op.(type) {
		case *Map, *Reduce:
			ok = x.inline(k) || x.fuseMultiOutput(k)
		default:
			ok = x.relook(k)
		}
		if ok {
			f.renew(j, &before)
			x.sweep()
			return true
		}
	}
	return foldCopyOut(f, j)
}

// join joins step i into step j, which reads a result of i.
type join struct {
	f    *flow
	p    *Program
	i, j int
	done bool // step i is now a part of j
}

// sweep removes step i if it is now a part of j, or if no step reads its results.
func (x *join) sweep() {
	if x.done || x.f.unneeded(x.i) {
		x.f.remove(x.i)
	}
}

// cheap is the most instructions that readers repeat instead of storing the result.
const cheap = 2

// mostAgain is the most instructions, functions included, that are repeated where that reads less
// memory.
const mostAgain = 16

// inline makes step j, a Map or Reduce, compute its In number k itself.
func (x *join) inline(k int) bool {
	from, to := &x.p.Steps[x.i], &x.p.Steps[x.j]
	m, ok := from.Op.(*Map)
	if !ok || !x.f.steady(x.i, x.j) || !x.sameArithmetic() {
		return false
	}
	v := to.In[k]
	out := from.outOf(v.Value)
	e, _ := elementsOf(to)
	r, ok := routeOf(m.Space, &from.Out[out], e.space, &v)
	if !ok || !carries(x.p.Values[v.Value].DType, single(x.p, to)) {
		return false
	}
	random := has(m.Code, Rand)
	if random && !r.straight(m.Space) {
		return false
	}
	code := (&elementwise{m.Space, from.In, m.Code, []int{m.Stores[out]}}).prune()
	if again := r.repeats() || !x.onlyReader(&v); again && (random || !x.worthAgain(code) && !x.readsAnyway(code, r)) {
		return false
	}
	return x.write(code, r, k)
}

// costly reports whether code has functions that take many instructions.
func costly(code []Instr) bool {
	return slices.ContainsFunc(code, func(in Instr) bool {
		switch in.Op {
		case Sin, Cos, Exp, Log, Log2, Log1p, Expm1, Tanh, Sigmoid, Softplus, Erf, Pow:
			return true
		}
		return false
	})
}

// worthAgain reports whether each reader should repeat code, so that its result need not be stored:
// code is cheap, a copy or a constant.
func (x *join) worthAgain(code *elementwise) bool {
	n := work(code.code)
	if n == 0 {
		return true
	}
	if n > cheap || len(code.in) > cheap || costly(code.code) || !x.f.madeOnly(x.i) {
		return false
	}
	return !slices.ContainsFunc(x.p.Steps[x.i].Out, func(v View) bool { return x.f.rigid[v.Value] > 0 })
}

// readsAnyway reports whether step j already reads the inputs of code, along route r. Then
// repeating code saves memory traffic and adds none. It requires Program.Again.
func (x *join) readsAnyway(code *elementwise, r *route) bool {
	if !x.p.Again || work(code.code) > mostAgain {
		return false
	}
	to := &x.p.Steps[x.j]
	for _, w := range code.in {
		w = r.carry(w)
		if !slices.ContainsFunc(to.In, func(v View) bool { v = r.split(v); return sameView(r.space(), &w, &v) }) {
			return false
		}
	}
	return len(code.in) > 0
}

// onlyReader reports whether step j alone reads the results of step i, all through equal views.
func (x *join) onlyReader(v *View) bool {
	from, to := &x.p.Steps[x.i], &x.p.Steps[x.j]
	if !x.f.readBy(x.i, x.j) || !x.f.madeOnly(x.i) {
		return false
	}
	e, _ := elementsOf(to)
	for k := range to.In {
		w := &to.In[k]
		if from.outOf(w.Value) >= 0 && !sameLook(e.space, w, v) {
			return false
		}
	}
	return true
}

// sameArithmetic reports whether both steps compute in f32, or both in f64.
func (x *join) sameArithmetic() bool {
	return single(x.p, &x.p.Steps[x.i]) == single(x.p, &x.p.Steps[x.j])
}

// write puts code, as the source of In number k along a route, into step j if the result is valid.
func (x *join) write(code *elementwise, r *route, k int) bool {
	to := x.p.Steps[x.j]
	e, _ := elementsOf(&to)
	v := to.In[k]
	joined := &elementwise{space: r.space()}
	for _, w := range code.in {
		joined.in = append(joined.in, r.carry(w))
	}
	joined.code = slices.Clone(code.code)
	base := len(joined.in)
	for _, w := range e.in {
		joined.in = append(joined.in, r.split(w))
	}
	at := make([]int, len(e.code))
	for n, in := range e.code {
		if in.Op == Load && sameView(e.space, &e.in[in.A], &v) {
			at[n] = code.roots[0]
			continue
		}
		if in.Op == Load {
			in.A += base
		} else {
			in = in.moved(at)
		}
		joined.code = append(joined.code, in)
		at[n] = len(joined.code) - 1
	}
	for _, root := range e.roots {
		joined.roots = append(joined.roots, at[root])
	}
	return x.replace(joined, r, &to)
}

// replace makes step j compute joined, over the split space.
func (x *join) replace(joined *elementwise, r *route, to *Step) bool {
	joined = joined.tidy(x.p, single(x.p, to))
	if len(joined.in) > maxIns || len(joined.code) > maxInstrs {
		return false
	}
	next := *to
	next.Out = make([]View, len(to.Out))
	for k := range to.Out {
		next.Out[k] = r.split(to.Out[k])
	}
	if o, ok := to.Op.(*Reduce); ok {
		if joined.roots[0] != len(joined.code)-1 {
			return false
		}
		var reduced []bool
		for a, legs := range r.legs {
			for range legs {
				reduced = append(reduced, o.Reduced[a])
			}
		}
		next.Op = &Reduce{joined.space, reduced, o.Red, joined.code}
	}
	if !joined.put(x.p, &next) || !elementByElement(x.p, &next) {
		return false
	}
	next.Name = joinedName(x.p.Steps[x.i].Name, next.Name)
	x.p.Steps[x.j] = next
	return true
}

// elementByElement reports whether a Map or Reduce reads each element that it overwrites at the
// same index only.
func elementByElement(p *Program, s *Step) bool {
	c := &checker{p: &Program{Values: p.Values, Steps: []Step{*s}, Clock: p.Clock}}
	in, out, err := p.Operands(s)
	if err != nil {
		return false
	}
	c.overlaps(0, in, out)
	return len(c.found) == 0
}

// relook makes In number k of step j a view of the memory that step i copies. j has any operation.
func (x *join) relook(k int) bool {
	from, to := &x.p.Steps[x.i], &x.p.Steps[x.j]
	if !copies(x.p, from) || !x.f.steady(x.i, x.j) {
		return false
	}
	in, out, err := x.p.Operands(to)
	if err != nil {
		return false
	}
	switch to.Op.(type) {
	case *Collective, *Call:
		return x.rewhole(k)
	}
	m, _ := from.Op.(*Map)
	r, ok := routeOf(m.Space, &from.Out[0], in[k].Space, &to.In[k])
	if !ok {
		return false
	}
	v, ok := r.whole(from.In[0])
	if !ok || !in[k].meets(&v) {
		return false
	}
	for o := range to.Out {
		if to.Out[o].Value == v.Value && !disjoint(in[k].Space, &v, out[o].Space, &to.Out[o]) {
			return false
		}
	}
	to.In = slices.Clone(to.In)
	to.In[k] = v
	return true
}

// rewhole is relook for steps that take whole values: the copy must be of a whole value in its
// order.
func (x *join) rewhole(k int) bool {
	from, to := &x.p.Steps[x.i], &x.p.Steps[x.j]
	if o, ok := to.Op.(*Collective); ok && o.parted() != noPart {
		return false
	}
	m, _ := from.Op.(*Map)
	src, dst := from.In[0], from.Out[0]
	n := x.p.Values[src.Value].Len()
	if n != lenOf(m.Space) || src.Offset != 0 || !tensor.Packed(m.Space, src.Strides) || !tensor.Packed(m.Space, dst.Strides) {
		return false
	}
	for o := range to.Out {
		if to.Out[o].Value == src.Value {
			return false
		}
	}
	to.In = slices.Clone(to.In)
	to.In[k] = x.p.Whole(src.Value)
	return true
}

// foldCopyOut removes step j, a copy, and makes the step that it reads from write to j's Out.
func foldCopyOut(f *flow, j int) bool {
	p := f.p
	if !copies(p, &p.Steps[j]) {
		return false
	}
	c := p.Steps[j]
	v, target := c.In[0], c.Out[0]
	i := f.maker(v.Value)
	if i < 0 || len(f.readers[v.Value]) != 1 || f.touchedBetween(target.Value, i, j) || p.Values[target.Value].Place == Constant {
		return false
	}
	s := &p.Steps[i]
	switch s.Op.(type) {
	case *Collective, *Call, *Map: // they take whole values; and inline joins Maps
		return false
	}
	for _, w := range append(slices.Clone(s.In), s.Out...) {
		if w.Value == target.Value {
			return false
		}
	}
	m, _ := c.Op.(*Map)
	_, out, err := p.Operands(s)
	k := s.outOf(v.Value)
	if err != nil || !v.covers(m.Space, p.Values[v.Value].Len()) {
		return false
	}
	r, ok := routeOf(m.Space, &v, out[k].Space, &s.Out[k])
	if !ok {
		return false
	}
	to, ok := r.whole(target)
	if !ok || !out[k].meets(&to) {
		return false
	}
	before := *s
	s.Out = slices.Clone(s.Out)
	s.Out[k] = to
	s.Name = joinedName(s.Name, c.Name)
	f.renew(i, &before)
	f.remove(j)
	return true
}

// joinedName returns the name of two joined steps: each name once, and only the ends of long
// chains.
func joinedName(a, b string) string {
	const sep, longest = "; ", 60
	var parts []string
	for _, name := range append(strings.Split(a, sep), strings.Split(b, sep)...) {
		if name != "" && !slices.Contains(parts, name) {
			parts = append(parts, name)
		}
	}
	all := strings.Join(parts, sep)
	for len(all) > longest && len(parts) > 3 {
		parts = slices.Delete(parts, 1, 2)
		parts[1] = "..."
		all = strings.Join(parts, sep)
	}
	return all
}
