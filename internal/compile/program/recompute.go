package program

import "slices"

// recomputeSoftmax repeats a softmax for its gradient. It does so if all other readers round the
// softmax to bf16 or f16, and if its input comes from fewer bytes. The softmax, its gradient and
// the Maps around them run row by row, so the f32 in between need not be in memory. fuse repeats
// other functions.
func recomputeSoftmax(p *Program) {
	if !p.Again {
		return
	}
	pk := &packer{p: p, at: make([]int, len(p.Steps))}
	f := flowOf(p)
	for j := range p.Steps {
		s := p.Steps[j]
		if m, k, ok := f.recomputable(j); ok {
			x, y := p.Steps[k].In[0].Value, s.In[0].Value
			in, out := pk.temp(x, p.Values[x].Shape), pk.temp(y, p.Values[y].Shape)
			operand, soft := p.Steps[m], p.Steps[k]
			operand.Out, soft.In, soft.Out = ofValue(operand.Out, in.Value), ofValue(soft.In, in.Value), ofValue(soft.Out, out.Value)
			pk.before(j, &s, operand, soft)
			s.In = slices.Clone(s.In)
			s.In[0].Value = out.Value
		}
		pk.put(j, s, nil)
	}
	p.Steps = pk.steps
}

// before adds steps before s, which is step j. If the last step converts the gradient for s, they
// go before that step, which stays next to s.
func (pk *packer) before(j int, s *Step, steps ...Step) {
	at := len(pk.steps)
	if at > 0 && pk.steps[at-1].outOf(s.In[1].Value) >= 0 && converts(pk.steps[at-1].Op) {
		at--
		pk.at[j-1] += len(steps)
	}
	pk.steps = slices.Insert(pk.steps, at, steps...)
}

// ofValue returns a list's only view, as a view of another value of the same shape.
func ofValue(one []View, to ID) []View {
	return []View{{Value: to, Offset: one[0].Offset, Strides: one[0].Strides}}
}

// recomputable reports whether step j is the gradient of softmax k, which reads a result of Map m,
// and whether repeating m and k pays.
func (f *flow) recomputable(j int) (m, k int, ok bool) {
	p := f.p
	grad, isGrad := p.Steps[j].Op.(*SoftmaxGrad)
	if !isGrad {
		return 0, 0, false
	}
	y := p.Steps[j].In[0]
	if k = f.maker(y.Value); k < 0 {
		return 0, 0, false
	}
	soft, isSoftmax := p.Steps[k].Op.(*Softmax)
	if !isSoftmax || *soft != Softmax(*grad) || !sameView([]int{soft.Outer, soft.Axis, soft.Inner}, &y, &p.Steps[k].Out[0]) {
		return 0, 0, false
	}
	for _, r := range f.readers[y.Value] {
		if r != j && !rounds(p, &p.Steps[r]) {
			return 0, 0, false
		}
	}
	x := p.Steps[k].In[0].Value
	if m = f.maker(x); m < 0 || len(f.readers[x]) != 1 || !f.steady(m, j) {
		return 0, 0, false
	}
	op, isMap := p.Steps[m].Op.(*Map)
	return m, k, isMap && len(p.Steps[m].Out) == 1 && !has(op.Code, Rand) && bytesRead(p, m) < p.Values[y.Value].Bytes()
}

// rounds reports whether a step is a copy into elements of half the size or less.
func rounds(p *Program, s *Step) bool {
	m, ok := s.Op.(*Map)
	return ok && len(s.In) == 1 && len(s.Out) == 1 && work(m.Code) == 0 && 2*p.Values[s.Out[0].Value].DType.Size() <= p.Values[s.In[0].Value].DType.Size()
}

// bytesRead returns the bytes of all values that step i reads.
func bytesRead(p *Program, i int) (bytes int64) {
	var counted []ID
	for _, v := range p.Steps[i].In {
		if !slices.Contains(counted, v.Value) {
			counted = append(counted, v.Value)
			bytes += p.Values[v.Value].Bytes()
		}
	}
	return bytes
}
