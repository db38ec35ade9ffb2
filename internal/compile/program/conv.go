package program

import (
	"slices"

	"github.com/symgrad/symgrad/tensor"
)

// convolutions recognises the steps of gorgonia.Conv2d and its gradients. Im2Col and a product with
// the filter become Conv, a product with Im2Col ConvGradFilter, a product with the filter and
// Col2Im ConvGradInput. Products have the channels last, so copies reorder them; fuse may remove
// the copies. The order of summation may change.
func convolutions(p *Program) bool {
	changed := false
	f := flowOf(p)
	for i := 0; i < len(p.Steps); i++ {
		var steps []Step
		switch o := p.Steps[i].Op.(type) {
		case *MatMul:
			if o.Batch != 1 || o.Alpha != 1 || o.Beta != 0 {
				continue
			}
			if steps = convOf(f, i, o); steps == nil {
				steps = convGradFilterOf(f, i, o)
			}
		case *Col2Im:
			steps = convGradInputOf(f, i, o)
		}
		if steps != nil {
			p.Steps = slices.Replace(p.Steps, i, i+1, steps...)
			i += len(steps) - 1
			changed = true
			f = flowOf(p)
		}
	}
	return changed
}

// columnsOf returns the Im2Col step that makes a matrix operand of all windows, one a row; or -1.
func columnsOf(f *flow, i int, v *View, rows, cols int) int {
	j := f.maker(v.Value)
	if j < 0 || !f.steady(j, i) {
		return -1
	}
	o, ok := f.p.Steps[j].Op.(*Im2Col)
	if !ok || o.N*o.OutH*o.OutW != rows || o.C*o.R*o.S != cols || v.Offset != 0 ||
		!tensor.Packed([]int{1, rows, cols}, v.Strides) || !f.p.Values[v.Value].DType.IsFloat() {
		return -1
	}
	return j
}

// convOf replaces the product of columns and a transposed filter by Conv and a copy.
func convOf(f *flow, i int, o *MatMul) []Step {
	p, s := f.p, &f.p.Steps[i]
	j := columnsOf(f, i, &s.In[0], o.M, o.K)
	filter, ok := flipped(&s.In[1], o.K, o.N)
	if j < 0 || !ok {
		return nil
	}
	w := p.Steps[j].Op.(*Im2Col).Window
	conv := &Conv{w, o.N}
	filter.Strides = Contiguous([]int{o.N, w.C, w.R, w.S})
	y := p.Whole(p.Add(Value{Name: s.Name, DType: p.Values[s.Out[0].Value].DType, Shape: []int{w.N, o.N, w.OutH, w.OutW}}))
	channelsFirst := View{y.Value, 0, []int{y.Strides[0], y.Strides[1], y.Strides[2], y.Strides[3]}}
	to := w.images(&s.Out[0], 1, 2)
	step := Step{Name: s.Name, Op: conv, In: []View{p.Steps[j].In[0], filter}, Out: []View{y}, Stream: s.Stream, After: s.After}
	return []Step{step, copyStep(s, []int{w.N, o.N, w.OutH, w.OutW}, channelsFirst, to, nil)}
}

// flipped returns the filter, one a row, whose transpose is a matrix operand over (1, rows, cols).
func flipped(v *View, rows, cols int) (View, bool) {
	turned := []int{0, v.Strides[2], v.Strides[1]}
	return View{Value: v.Value, Offset: v.Offset}, tensor.Packed([]int{1, cols, rows}, turned)
}

// images returns a matrix operand as images (N, K, OutH, OutW). Its pixels and channels are the
// given axes.
func (w *Window) images(v *View, pixels, channels int) View {
	s := v.Strides[pixels]
	return View{v.Value, v.Offset, []int{s * w.OutH * w.OutW, v.Strides[channels], s * w.OutW, s}}
}

// gradient adds a value for a gradient with k channels that a product reads as a matrix. It returns
// the value's view and the step that copies the gradient there.
func gradient(p *Program, s *Step, w *Window, k int, from View) (View, Step) {
	shape := []int{w.N, k, w.OutH, w.OutW}
	old := &p.Values[from.Value]
	to := p.Whole(p.Add(Value{Name: old.Name, DType: old.DType, Shape: shape}))
	c := copyStep(s, shape, from, to, s.After)
	c.Name = old.Name
	return to, c
}

// convGradFilterOf replaces the product of a transposed gradient and columns by a copy and
// ConvGradFilter.
func convGradFilterOf(f *flow, i int, o *MatMul) []Step {
	p, s := f.p, &f.p.Steps[i]
	j := columnsOf(f, i, &s.In[1], o.K, o.N)
	if j < 0 || !tensor.Packed([]int{1, o.M, o.N}, s.Out[0].Strides) || !sameTypes(p, s) {
		return nil
	}
	w := p.Steps[j].Op.(*Im2Col).Window
	dy, c := gradient(p, s, &w, o.M, w.images(&s.In[0], 2, 1))
	out := View{s.Out[0].Value, s.Out[0].Offset, Contiguous([]int{o.M, w.C, w.R, w.S})}
	return []Step{c, {Name: s.Name, Op: &ConvGradFilter{w, o.M}, In: []View{p.Steps[j].In[0], dy}, Out: []View{out}, Stream: s.Stream, After: s.After}}
}

// convGradInputOf replaces Col2Im of the product of a gradient and the filter by a copy and
// ConvGradInput.
func convGradInputOf(f *flow, i int, o *Col2Im) []Step {
	p, s := f.p, &f.p.Steps[i]
	j := f.maker(s.In[0].Value)
	if j < 0 || !f.steady(j, i) || len(f.readers[s.In[0].Value]) != 1 {
		return nil
	}
	product := &p.Steps[j]
	w := o.Window
	m, ok := product.Op.(*MatMul)
	if !ok || m.Batch != 1 || m.Alpha != 1 || m.Beta != 0 || m.M != w.N*w.OutH*w.OutW || m.N != w.C*w.R*w.S || !sameTypes(p, product) {
		return nil
	}
	whole := []int{w.N, w.OutH, w.OutW, w.C * w.R * w.S}
	if !tensor.Packed([]int{1, m.M, m.N}, product.Out[0].Strides) || !tensor.Packed(whole, s.In[0].Strides) || !tensor.Packed([]int{1, m.K, m.N}, product.In[1].Strides) {
		return nil
	}
	dy, c := gradient(p, s, &w, m.K, w.images(&product.In[0], 1, 2))
	filter := View{product.In[1].Value, product.In[1].Offset, Contiguous([]int{m.K, w.C, w.R, w.S})}
	return []Step{c, {Name: s.Name, Op: &ConvGradInput{w, m.K}, In: []View{dy, filter}, Out: s.Out, Stream: s.Stream, After: s.After}}
}

// sameTypes reports whether all operands of s have one dtype.
func sameTypes(p *Program, s *Step) bool {
	dt := p.Values[s.Out[0].Value].DType
	return !slices.ContainsFunc(s.In, func(v View) bool { return p.Values[v.Value].DType != dt })
}
