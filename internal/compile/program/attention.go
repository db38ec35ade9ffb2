package program

import (
	"slices"

	"github.com/symgrad/symgrad/tensor"
)

// attention recognises a transformer's attention, two products around a softmax, and its gradient,
// four more products. Attention and AttentionGrad need no memory for the scores of all pairs. The
// pass requires Narrow, as the kernels multiply bf16, and sizes that Narrow calls large. Copies
// that join or split heads are removed.
func attention(p *Program) bool {
	changed := false
	for i := 0; p.Narrow > 0 && p.NarrowTo != tensor.F16 && i < len(p.Steps); i++ {
		if op, ok := p.Steps[i].Op.(*Softmax); !ok || op.Log || op.Inner != 1 {
			continue
		}
		a := &attentionOf{p: p, f: flowOf(p), softmax: i}
		if a.isForward() && a.isBackward() {
			a.replace()
			changed, i = true, -1
		}
	}
	return changed
}

// attentionOf has the steps of an attention.
type attentionOf struct {
	p       *Program
	f       *flow
	op      Attention // of one head
	softmax int
	output  int     // the product of probabilities and values
	probs   ID      // probabilities: result of the softmax
	rows    [4]View // queries, keys, values, and the gradient of the output; each (Batch, M or N, Depth)
	bias    *View   // (M, N)
	grad    [3]int  // the products for the gradients of queries, keys and values
	begin   int     // the first step of the gradient, or -1
}

// Row lengths for which kernels have registers: powers of 2 in this range.
const (
	leastDepth = 32
	mostDepth  = 128
)

// isForward finds the steps from the product of queries and keys to the output.
func (a *attentionOf) isForward() bool {
	s := &a.p.Steps[a.softmax]
	a.probs = s.Out[0].Value
	if a.f.maker(a.probs) != a.softmax {
		return false
	}
	a.output = slices.IndexFunc(a.f.readers[a.probs], func(j int) bool {
		m, ok := a.p.Steps[j].Op.(*MatMul)
		return ok && a.p.Steps[j].In[0].Value == a.probs && a.p.Steps[j].In[0].Strides[2] == 1 && m.Beta == 0 && m.Alpha == 1
	})
	if a.output < 0 {
		return false
	}
	a.output = a.f.readers[a.probs][a.output]
	o := &a.p.Steps[a.output]
	m, _ := o.Op.(*MatMul)
	a.op = Attention{Batch: m.Batch, Heads: 1, M: m.M, N: m.K, Depth: m.N, Scale: 1}
	a.rows[2] = o.In[1]
	op, _ := s.Op.(*Softmax)
	return a.fits() && a.isByRows(op.Outer, op.Axis, &s.In[0], &s.Out[0]) && a.isAll(&o.In[0], false) &&
		a.f.maker(o.Out[0].Value) == a.output && a.lead(s.In[0])
}

// fits reports whether kernels exist for the sizes, and whether the work is large.
func (a *attentionOf) fits() bool {
	o := &a.op
	depth := o.Depth >= leastDepth && o.Depth <= mostDepth && o.Depth&(o.Depth-1) == 0
	return depth && o.M%AttentionTile == 0 && o.N%AttentionTile == 0 &&
		float64(o.Batch)*float64(o.M)*float64(o.N)*float64(o.Depth) >= float64(a.p.Narrow)
}

// isAll reports whether a view is all scores of its value, in order, or transposed for each head.
func (a *attentionOf) isAll(v *View, transposed bool) bool {
	space, of := []int{a.op.Batch, a.op.M, a.op.N}, *v
	if transposed {
		of = v.turned()
	}
	return len(v.Strides) == 3 && tensor.Packed(space, of.Strides) && a.isWhole(v)
}

// isByRows reports whether a softmax or its gradient runs along the rows of all scores, in order.
func (a *attentionOf) isByRows(outer, axis int, views ...*View) bool {
	for _, v := range views {
		if !tensor.Packed([]int{outer, axis, 1}, v.Strides) || !a.isWhole(v) {
			return false
		}
	}
	return outer == a.op.Batch*a.op.M && axis == a.op.N
}

func (a *attentionOf) isWhole(v *View) bool {
	val := &a.p.Values[v.Value]
	return v.Offset == 0 && val.Len() == a.op.Batch*a.op.M*a.op.N && val.DType == tensor.F32
}

// turned returns a view of matrices with rows and columns exchanged.
func (v *View) turned() View {
	return View{v.Value, v.Offset, []int{v.Strides[0], v.Strides[2], v.Strides[1]}}
}

// lead traces the input of the softmax back to the product of queries and keys.
func (a *attentionOf) lead(v View) bool {
	for {
		i := a.f.maker(v.Value)
		if i < 0 || len(a.f.readers[v.Value]) != 1 || !a.isWhole(&v) {
			return false
		}
		s := &a.p.Steps[i]
		switch o := s.Op.(type) {
		case *MatMul:
			a.rows[0], a.rows[1] = s.In[0], s.In[1].turned()
			a.op.Scale *= o.Alpha
			same := o.Batch == a.op.Batch && o.M == a.op.M && o.N == a.op.N && o.K == a.op.Depth
			return same && o.Beta == 0 && a.op.Scale > 0 && a.isAll(&s.Out[0], false) && a.areLines(a.rows[:3])
		case *Map:
			from, ok := a.added(s, o)
			if !ok {
				from, ok = a.scaled(s, v.Value)
			}
			if !ok {
				return false
			}
			v = from
		default:
			return false
		}
	}
}

// areLines reports whether kernels can read views of f32 once rounded to bf16, and whether their
// values are settled.
func (a *attentionOf) areLines(views []View) bool {
	for _, v := range views {
		if a.p.Values[v.Value].DType != tensor.F32 || !a.settled(v.Value) || !isLines([]int{a.op.Batch, a.op.M + a.op.N, a.op.Depth}, &v) {
			return false
		}
	}
	return true
}

// settled reports whether a value is the same at each read.
func (a *attentionOf) settled(id ID) bool { return len(a.f.writers[id]) == 0 || a.f.maker(id) >= 0 }

// added returns the scores to which a Map adds a bias. It accepts one bias, added after the scale.
func (a *attentionOf) added(s *Step, m *Map) (View, bool) {
	if !isSum(m) || len(s.In) != 2 || len(s.Out) != 1 || a.bias != nil || a.op.Scale != 1 || !slices.Equal(m.Space, []int{a.op.Batch, a.op.M, a.op.N}) || !a.isAll(&s.Out[0], false) {
		return View{}, false
	}
	for k := range s.In {
		v, bias := s.In[k], s.In[1-k]
		once := bias.Strides[0] == 0 || a.op.Batch == 1
		if once && a.isAll(&v, false) && a.f.maker(v.Value) >= 0 && tensor.Packed(m.Space[1:], bias.Strides[1:]) &&
			a.p.Values[bias.Value].DType == tensor.F32 && a.settled(bias.Value) {
			a.bias = &View{bias.Value, bias.Offset, bias.Strides[1:]}
			return v, true
		}
	}
	return View{}, false
}

// scaled returns the scores that a Map multiplies by a constant into value id.
func (a *attentionOf) scaled(s *Step, id ID) (View, bool) {
	if len(s.In) != 1 || len(s.Out) != 1 || s.Out[0].Value != id {
		return View{}, false
	}
	c, ok := linear(a.p, s, s.In[0].Value, 1)
	m, _ := s.Op.(*Map)
	if !ok || m == nil || !tensor.Packed(m.Space, s.In[0].Strides) || !tensor.Packed(m.Space, s.Out[0].Strides) || !a.isWhole(&s.Out[0]) {
		return View{}, false
	}
	a.op.Scale *= c
	return s.In[0], true
}

// isBackward finds the gradient, if present. It fails if any other step reads the probabilities,
// because these would have to be in memory.
func (a *attentionOf) isBackward() bool {
	a.begin = -1
	readers := a.f.readers[a.probs]
	if len(readers) == 1 {
		return true
	}
	if len(readers) != 3 {
		return false
	}
	soft := -1
	a.grad = [3]int{-1, -1, -1}
	for _, j := range readers {
		switch o := a.p.Steps[j].Op.(type) {
		case *SoftmaxGrad:
			soft = j
		case *MatMul:
			if j != a.output && a.isGrad(j, o, a.probs, true) {
				a.grad[2], a.rows[3] = j, a.p.Steps[j].In[1]
			}
		}
	}
	if soft < 0 || a.grad[2] < 0 || !a.areLines(a.rows[3:]) {
		return false
	}
	return a.ofProbs(soft) && a.ofScores(soft) && a.output < a.begin
}

// isGrad reports whether step j is the product of value id, which has the form of the scores, with
// rows.
func (a *attentionOf) isGrad(j int, o *MatMul, id ID, transposed bool) bool {
	s := &a.p.Steps[j]
	rows, sum := a.op.M, a.op.N
	if transposed {
		rows, sum = sum, rows
	}
	return o.Beta == 0 && o.Alpha == 1 && o.Batch == a.op.Batch && o.M == rows && o.K == sum && o.N == a.op.Depth && s.In[0].Value == id &&
		s.In[1].Value != id && a.isAll(&s.In[0], transposed) && a.f.maker(s.Out[0].Value) == j
}

// ofProbs checks that the softmax's gradient comes from the product of the output's gradient with
// the values.
func (a *attentionOf) ofProbs(soft int) bool {
	s := &a.p.Steps[soft]
	op, _ := s.Op.(*SoftmaxGrad)
	if op.Log || s.In[0].Value != a.probs || s.In[1].Value == a.probs || !a.isByRows(op.Outer, op.Axis, &s.In[0], &s.In[1], &s.Out[0]) {
		return false
	}
	i := a.f.maker(s.In[1].Value)
	if i < 0 || len(a.f.readers[s.In[1].Value]) != 1 {
		return false
	}
	d := &a.p.Steps[i]
	o, ok := d.Op.(*MatMul)
	if !ok || o.Beta != 0 || o.Alpha != 1 || o.Batch != a.op.Batch || o.M != a.op.M || o.N != a.op.N || o.K != a.op.Depth || !a.isAll(&d.Out[0], false) {
		return false
	}
	a.begin = min(i, a.grad[2])
	values := d.In[1].turned()
	return a.same(&d.In[0], &a.rows[3], a.op.M) && a.same(&values, &a.rows[2], a.op.N)
}

// ofScores finds the products that make the gradients of queries and keys from the softmax's
// gradient, which has the scale of the scores.
func (a *attentionOf) ofScores(soft int) bool {
	id, scale := a.p.Steps[soft].Out[0].Value, 1.0
	if a.f.maker(id) != soft {
		return false
	}
	if readers := a.f.readers[id]; len(readers) == 1 {
		s, before := &a.p.Steps[readers[0]], a.op.Scale
		if len(s.Out) != 1 {
			return false
		}
		a.op.Scale = 1
		_, ok := a.scaled(s, s.Out[0].Value)
		scale, a.op.Scale = a.op.Scale, before
		if id = s.Out[0].Value; !ok || a.f.maker(id) != readers[0] {
			return false
		}
	}
	if float32(scale) != float32(a.op.Scale) || len(a.f.readers[id]) != 2 {
		return false
	}
	for _, j := range a.f.readers[id] {
		o, ok := a.p.Steps[j].Op.(*MatMul)
		switch {
		case !ok:
			return false
		case a.isGrad(j, o, id, false) && a.same(&a.p.Steps[j].In[1], &a.rows[1], a.op.N):
			a.grad[0] = j
		case a.isGrad(j, o, id, true) && a.same(&a.p.Steps[j].In[1], &a.rows[0], a.op.M):
			a.grad[1] = j
		}
	}
	return a.grad[0] >= 0 && a.grad[1] >= 0
}

func (a *attentionOf) same(v, w *View, rows int) bool {
	return sameView([]int{a.op.Batch, rows, a.op.Depth}, v, w)
}
