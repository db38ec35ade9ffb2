package program

import "slices"

// maxFolded is the size limit of a folded constant in bytes. Larger ones are cheaper to compute
// where they are read, as a repeated number costs nothing there.
const maxFolded = 64 << 10

// simplify folds constants and drops operations without effect, in each Map and Reduce.
func simplify(p *Program) bool {
	changed := false
	f := flowOf(p)
	for i := range p.Steps {
		s := &p.Steps[i]
		dropUnread(f, i)
		e, ok := elementsOf(s)
		if !ok {
			continue
		}
		t := e.tidy(p, single(p, s))
		if _, reduces := s.Op.(*Reduce); reduces && t.roots[0] != len(t.code)-1 {
			continue
		}
		if len(t.code) != len(e.code) || len(t.in) != len(e.in) {
			changed = t.put(p, s) || changed
		}
	}
	return foldConstants(p) || changed
}

// dropUnread drops the unread Outs of step i that the operation does not need to make.
func dropUnread(f *flow, i int) {
	p := f.p
	s := &p.Steps[i]
	if len(s.Out) < 2 {
		return
	}
	unread := func(v View) bool { return f.maker(v.Value) == i && len(f.readers[v.Value]) == 0 }
	switch o := s.Op.(type) {
	case *Map:
		var out []View
		var stores []int
		for k, v := range s.Out {
			if !unread(v) {
				out, stores = append(out, v), append(stores, o.Stores[k])
			}
		}
		if len(out) == 0 || len(out) == len(s.Out) {
			return
		}
		n := Step{Op: &Map{Space: o.Space, Code: o.Code, Stores: stores}, In: s.In, Out: out}
		if single(p, &n) == single(p, s) {
			s.Op, s.Out = n.Op, n.Out
		}
	case *CrossEntropy, *SparseCrossEntropy:
		if unread(s.Out[1]) {
			s.Out = slices.Clone(s.Out[:1])
		}
	}
}

// foldConstants replaces the results of Maps and Reduces of constants by constants, if they are
// small.
func foldConstants(p *Program) bool {
	changed := false
	f := flowOf(p)
	for i := range p.Steps {
		s := &p.Steps[i]
		e, ok := elementsOf(s)
		if !ok || !f.madeOnly(i) || has(e.code, Rand) || !foldable(p, s, e) {
			continue
		}
		evaluate(p, s, e)
		f.remove(i)
		changed = true
	}
	f.finish()
	return changed
}

// foldable reports whether all inputs of a step are constant, and neither its space nor its results
// are large.
func foldable(p *Program, s *Step, e *elementwise) bool {
	n := int64(lenOf(e.space))
	for _, v := range s.In {
		if p.Values[v.Value].Place != Constant {
			return false
		}
	}
	bytes := int64(0)
	for _, v := range s.Out {
		bytes += p.Values[v.Value].Bytes()
	}
	return bytes <= maxFolded && n <= maxFolded
}

// evaluate turns the Outs of s into constants. Sums are accumulated in float64 and rounded once.
func evaluate(p *Program, s *Step, e *elementwise) {
	for _, v := range s.Out {
		val := &p.Values[v.Value]
		val.Place, val.Data = Constant, make([]byte, val.Bytes())
	}
	f32 := single(p, s)
	regs := make([]float64, len(e.code))
	red, reduces := s.Op.(*Reduce)
	var sums map[int]float64
	if reduces {
		sums = red.empty(&s.Out[0])
	}
	index := make([]int, len(e.space))
	for range lenOf(e.space) {
		e.run(p, f32, index, regs)
		for k, root := range e.roots {
			at := s.Out[k].at(index)
			if reduces {
				sums[at] = red.Red.Combine(sums[at], regs[root])
				continue
			}
			store(p, &s.Out[k], at, e, root, regs[root], index)
		}
		next(e.space, index)
	}
	if reduces {
		val := &p.Values[s.Out[0].Value]
		for at := range val.Len() {
			SetElement(val.DType, val.Data, at, sums[at])
		}
	}
}

// store sets element at of a constant. A value that is only loaded keeps its bits.
func store(p *Program, out *View, at int, e *elementwise, root int, x float64, index []int) {
	val := &p.Values[out.Value]
	if in := &e.code[root]; in.Op == Load && p.Values[e.in[in.A].Value].DType == val.DType {
		n, from := val.DType.Size(), e.in[in.A].at(index)
		copy(val.Data[at*n:(at+1)*n], p.Values[e.in[in.A].Value].Data[from*n:(from+1)*n])
		return
	}
	SetElement(val.DType, val.Data, at, x)
}

// run computes the registers for one index.
func (e *elementwise) run(p *Program, f32 bool, index []int, regs []float64) {
	for r := range e.code {
		in := &e.code[r]
		x := in.Value
		switch in.Op {
		case Const:
		case Load:
			v := &e.in[in.A]
			x = Element(p.Values[v.Value].DType, p.Values[v.Value].Data, v.at(index))
		default:
			var a [3]float64
			for k, reg := range in.args() {
				a[k] = regs[reg]
			}
			x = in.Op.Eval(f32, a[0], a[1], a[2])
		}
		if f32 {
			x = float64(float32(x))
		}
		regs[r] = x
	}
}

// at returns the element at an index.
func (v *View) at(index []int) int {
	e := v.Offset
	for a, i := range index {
		e += i * v.Strides[a]
	}
	return e
}

// next advances index to the next one of a space in C order.
func next(space, index []int) {
	for a := len(space) - 1; a >= 0; a-- {
		index[a]++
		if index[a] < space[a] {
			return
		}
		index[a] = 0
	}
}

// empty returns the result of an empty reduction for each element of out.
func (o *Reduce) empty(out *View) map[int]float64 {
	sums := map[int]float64{}
	kept := o.kept()
	each(kept, out, func(e int) { sums[e] = o.Red.Empty() })
	return sums
}
