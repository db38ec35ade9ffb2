package program

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/tensor"
)

// entropy recognises -mean(sum(y * log softmax(x))) and its gradient as gorgonia.Grad makes them.
// The product of y and a log softmax is summed and multiplied by a constant; the gradient comes
// from y times that constant. CrossEntropy computes both at once, from y times the negated
// constant. It rounds less often.
func entropy(p *Program) bool {
	changed := false
	for i := 0; i < len(p.Steps); i++ {
		if e, ok := newEntropy(p, i); ok && e.replace() {
			changed = true
		}
	}
	return changed
}

// Wrong returns the error for a label of a row, counted from 0, that is no class and not ignored.
func (o *SparseCrossEntropy) Wrong(row int, label float64) error {
	return fmt.Errorf("row %d has target %.0f, want 0 to %d, or %d for a row that does not count",
		o.First+row, label, o.Classes-1, o.Ignore)
}

// entropyOf has the steps of a cross-entropy.
type entropyOf struct {
	f              *flow
	p              *Program
	op             *Softmax
	softmax        int
	product        int   // y * log softmax
	grad, scaled   int   // SoftmaxGrad, and the Map that makes its dy; or -1
	chain          []int // from the sums to the loss
	factors        []float64
	targets, value View // In of product: y, and the log softmax
}

func newEntropy(p *Program, i int) (*entropyOf, bool) {
	s := &p.Steps[i]
	op, ok := s.Op.(*Softmax)
	if !ok || !op.Log || op.Inner != 1 {
		return nil, false
	}
	f := flowOf(p)
	out := s.Out[0].Value
	e := &entropyOf{f: f, p: p, op: op, softmax: i, product: -1, grad: -1, scaled: -1}
	if f.maker(out) != i || len(f.readers[out]) > 2 {
		return nil, false
	}
	for _, r := range f.readers[out] {
		switch p.Steps[r].Op.(type) {
		case *Map:
			e.product = r
		case *SoftmaxGrad:
			e.grad = r
		default:
			return nil, false
		}
	}
	both := e.grad >= 0
	if e.product < 0 || both != (len(f.readers[out]) == 2) {
		return nil, false
	}
	return e, e.isProduct() && e.follow() && e.isGradient()
}

// isProduct reports whether the product is exactly y * log softmax, element by element in C order.
func (e *entropyOf) isProduct() bool {
	s := &e.p.Steps[e.product]
	m, _ := s.Op.(*Map)
	if len(s.In) != 2 || len(s.Out) != 1 || len(m.Code) != 3 || m.Code[m.Stores[0]].Op != Mul || e.f.maker(s.Out[0].Value) != e.product {
		return false
	}
	e.value, e.targets = s.In[0], s.In[1]
	if e.value.Value != e.p.Steps[e.softmax].Out[0].Value {
		e.value, e.targets = e.targets, e.value
	}
	root := m.Code[m.Stores[0]]
	loads := m.Code[root.A].Op == Load && m.Code[root.B].Op == Load && m.Code[root.A].A != m.Code[root.B].A
	return loads && e.value.Offset == 0 && lenOf(m.Space) == e.op.Outer*e.op.Axis && tensor.Packed(m.Space, e.value.Strides) &&
		e.targets.Value != e.value.Value && e.p.Values[e.targets.Value].DType.IsFloat() &&
		!e.f.writtenBetween(e.p.Steps[e.softmax].In[0].Value, e.softmax, e.product)
}

// follow traces the sums of the product, and the constants that multiply them, to the loss.
func (e *entropyOf) follow() bool {
	id, x := e.p.Steps[e.product].Out[0].Value, 1.0
	for e.f.maker(id) >= 0 && len(e.f.readers[id]) == 1 {
		r := e.f.readers[id][0]
		s := &e.p.Steps[r]
		y, ok := linear(e.p, s, id, x)
		if !ok {
			break
		}
		x, id = y, s.Out[0].Value
		if e.p.Values[id].Len() == 1 {
			e.chain, e.factors = append(e.chain, r), append(e.factors, x)
		}
	}
	return len(e.chain) > 0
}

// linear returns the factor x of value id after step s, if s only sums all of id or multiplies it
// by a constant.
func linear(p *Program, s *Step, id ID, x float64) (float64, bool) {
	el, ok := elementsOf(s)
	if !ok || len(s.In) != 1 || len(s.Out) != 1 || !s.In[0].covers(el.space, p.Values[id].Len()) {
		return 0, false
	}
	if r, ok := s.Op.(*Reduce); ok {
		return x, r.Red == Sum && len(r.Code) == 1
	}
	f32 := single(p, s)
	regs := make([]float64, len(el.code))
	factor := make([]bool, len(el.code)) // registers that are a multiple of the load
	for r, in := range el.code {
		switch in.Op {
		case Load:
			regs[r], factor[r] = x, true
			continue
		case Const:
			regs[r] = in.Value
			continue
		case Neg:
			factor[r] = factor[in.A]
		case Mul:
			factor[r] = factor[in.A] != factor[in.B]
		case Div:
			factor[r] = factor[in.A] && !factor[in.B]
		default:
			return 0, false
		}
		if !factor[r] {
			return 0, false
		}
		regs[r] = in.Op.Eval(f32, regs[in.A], regs[in.B], 0)
	}
	return regs[el.roots[0]], factor[el.roots[0]]
}

// isGradient reports whether the gradient is that of a value in the chain, and ends the chain
// there. The gradient must come after the product, where CrossEntropy will make both; otherwise a
// reader of it could precede CrossEntropy.
func (e *entropyOf) isGradient() bool {
	if e.grad < 0 {
		return true
	}
	s := &e.p.Steps[e.grad]
	op, _ := s.Op.(*SoftmaxGrad)
	if e.grad < e.product || !op.Log || op.Outer != e.op.Outer || op.Axis != e.op.Axis || op.Inner != 1 || s.In[0].Offset != 0 {
		return false
	}
	e.scaled = e.f.maker(s.In[1].Value)
	whole := []int{op.Outer, op.Axis, op.Inner}
	if e.scaled < 0 || s.In[1].Offset != 0 || !tensor.Packed(whole, s.In[0].Strides) || !tensor.Packed(whole, s.In[1].Strides) {
		return false
	}
	c, ok := e.scale()
	if !ok {
		return false
	}
	for k, x := range e.factors {
		if x == c {
			e.chain, e.factors = e.chain[:k+1], e.factors[:k+1]
			return true
		}
	}
	return false
}

// scale returns the constant that multiplies y for the gradient.
func (e *entropyOf) scale() (float64, bool) {
	s := &e.p.Steps[e.scaled]
	m, ok := s.Op.(*Map)
	product, _ := e.p.Steps[e.product].Op.(*Map)
	if !ok || len(s.In) != 1 || len(s.Out) != 1 || !slices.Equal(m.Space, product.Space) || !sameView(m.Space, &s.In[0], &e.targets) ||
		!tensor.Packed(m.Space, s.Out[0].Strides) ||
		e.f.writtenBetween(e.targets.Value, min(e.product, e.scaled), max(e.product, e.scaled)) {
		return 0, false
	}
	for r, in := range m.Code { // y * c, or -y
		if in.Op != Load && in.Op != Const && r != m.Stores[0] {
			return 0, false
		}
	}
	f32 := single(e.p, s)
	root := m.Code[m.Stores[0]]
	switch {
	case root.Op == Neg:
		return -1, true
	case root.Op == Mul && m.Code[root.A].Op == Const && m.Code[root.B].Op == Load:
		return Mul.Eval(f32, m.Code[root.A].Value, 1, 0), true
	case root.Op == Mul && m.Code[root.B].Op == Const && m.Code[root.A].Op == Load:
		return Mul.Eval(f32, m.Code[root.B].Value, 1, 0), true
	}
	return 0, false
}

// replace replaces the product by a Map that makes the targets, and CrossEntropy.
func (e *entropyOf) replace() bool {
	p := e.p
	last := e.chain[len(e.chain)-1]
	x, loss := p.Steps[e.softmax].In[0], p.Steps[last].Out[0]
	dt := p.Values[x.Value].DType
	if !(e.factors[len(e.factors)-1] < 0) { // targets are not negative
		return false
	}
	if e.f.touchedBetween(loss.Value, e.product, last) || p.Values[loss.Value].DType != dt {
		return false
	}
	rows := []int{e.op.Outer, e.op.Axis}
	x.Strides, loss.Strides = x.Strides[:2:2], nil // over (Outer, Axis): x may be transposed or a part of a value
	old := p.Steps[e.product]
	out, gone := []View{loss}, []int{last}
	if e.grad >= 0 {
		dx := p.Steps[e.grad].Out[0]
		if e.f.touchedBetween(dx.Value, e.product, e.grad) || dx.Value == x.Value {
			return false
		}
		dx.Strides = dx.Strides[:2:2]
		out, gone = append(out, dx), append(gone, e.grad)
	}
	m, _ := old.Op.(*Map)
	targets := p.Whole(p.Add(Value{Name: "targets", DType: dt, Shape: rows}))
	scale := &Map{Space: m.Space, Code: []Instr{{Op: Load}, {Op: Const, Value: -e.factors[len(e.factors)-1]}, {Op: Mul, A: 0, B: 1}}, Stores: []int{2}}
	to := View{Value: targets.Value, Strides: Contiguous(m.Space)}
	steps := []Step{
		{Name: "targets", Op: scale, In: []View{e.targets}, Out: []View{to}, Stream: old.Stream, After: old.After},
		{Name: joinedName(p.Steps[e.softmax].Name, p.Steps[last].Name), Op: &CrossEntropy{e.op.Outer, e.op.Axis}, In: []View{x, targets}, Out: out, Stream: old.Stream, After: old.After},
	}
	for k := range gone {
		gone[k]++ // one place later, as the product becomes two steps
	}
	p.Steps = slices.Replace(p.Steps, e.product, e.product+1, steps...)
	p.drop(gone...)
	return true
}
