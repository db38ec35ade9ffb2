package program

import (
	"slices"

	"github.com/symgrad/symgrad/tensor"
)

// replace puts the forward step where the output product was, and the gradient's steps where its
// first product was.
func (a *attentionOf) replace() {
	p := a.p
	a.byHeads()
	gone := map[int]bool{}
	out := a.result(a.output, a.op.M, gone)
	forward := &Step{Name: joinedName(p.Steps[a.softmax].Name, p.Steps[a.output].Name), Op: &a.op, In: slices.Clone(a.rows[:3]), Out: []View{out}}
	steps := map[int][]Step{a.output: nil}
	if a.bias != nil {
		largest, furthest := a.ofTiles(false), a.ofTiles(true)
		steps[a.output] = []Step{largest, furthest}
		forward.In = append(forward.In, *a.bias, a.packedTiles(largest), a.packedTiles(furthest))
	}
	if a.begin >= 0 {
		rows := a.temp("log sum", a.op.Batch, a.op.Heads, a.op.M)
		forward.Out = append(forward.Out, rows)
		steps[a.begin] = a.backward(out, rows, forward.In[3:], gone)
	}
	steps[a.output] = append(steps[a.output], *forward)
	pk := packer{p: p, at: make([]int, len(p.Steps))}
	for i, s := range p.Steps {
		instead, there := steps[i]
		switch {
		case there:
			last := len(instead) - 1
			for k := range instead {
				instead[k].Stream = s.Stream
			}
			instead[last].After = s.After
			pk.steps = append(pk.steps, instead[:last]...)
			pk.put(i, instead[last], nil)
		case gone[i]:
			pk.at[i] = max(0, len(pk.steps)-1)
		default:
			pk.put(i, s, nil)
		}
	}
	p.Steps = pk.steps
}

// backward returns the steps of the gradient.
func (a *attentionOf) backward(out, rows View, bias []View, gone map[int]bool) []Step {
	o := &a.op
	name := a.p.Steps[a.grad[0]].Name
	space := []int{o.Batch, o.Heads, o.M, o.Depth}
	delta := a.temp("delta", o.Batch, o.Heads, o.M)
	dot := Step{
		Name: name, In: []View{out, a.rows[3]}, Out: []View{{Value: delta.Value, Strides: append(slices.Clone(delta.Strides), 0)}},
		Op: &Reduce{
			Space: space, Reduced: []bool{false, false, false, true}, Red: Sum,
			Code: []Instr{{Op: Load, A: 0}, {Op: Load, A: 1}, {Op: Mul, A: 0, B: 1}},
		},
	}
	grad := Step{Name: name, Op: &AttentionGrad{*o}, In: append(slices.Clone(a.rows[:]), rows, delta)}
	grad.In = append(grad.In, bias...)
	for k, n := range []int{o.M, o.N, o.N} {
		gone[a.grad[k]] = true
		grad.Out = append(grad.Out, a.result(a.grad[k], n, gone))
	}
	return []Step{dot, grad}
}

// byHeads splits the views in rows by heads, into four dims. If a Map has copied an operand to join
// its heads, the view is of the Map's input instead.
func (a *attentionOf) byHeads() {
	o := &a.op
	rows := a.rows[:3]
	if a.begin >= 0 {
		rows = a.rows[:]
	}
	for k := range rows {
		if b, h, _, ok := a.apart(&rows[k], a.length(k)); ok {
			o.Batch, o.Heads = b, h
			break
		}
	}
	for k := range rows {
		b, h, from, ok := a.apart(&rows[k], a.length(k))
		if ok && b == o.Batch && h == o.Heads {
			rows[k] = from
		} else {
			rows[k] = a.split(rows[k])
		}
	}
}

// length returns the number of rows of rows[k].
func (a *attentionOf) length(k int) int {
	if k == 1 || k == 2 {
		return a.op.N
	}
	return a.op.M
}

// split returns a view of matrices as a view with a dim for the heads.
func (a *attentionOf) split(v View) View {
	return View{v.Value, v.Offset, []int{v.Strides[0] * a.op.Heads, v.Strides[0], v.Strides[1], v.Strides[2]}}
}

// apart returns the input of the Map that copied v's value together, as n rows for each head.
func (a *attentionOf) apart(v *View, n int) (batch, heads int, from View, ok bool) {
	i := a.f.maker(v.Value)
	if i < 0 {
		return 0, 0, from, false
	}
	s := &a.p.Steps[i]
	m, isMap := s.Op.(*Map)
	if !isMap || len(m.Code) != 1 || len(s.In) != 1 || len(s.Out) != 1 || len(m.Space) != 4 || m.Space[2] != n || m.Space[3] != a.op.Depth {
		return 0, 0, from, false
	}
	if m.Space[0]*m.Space[1] != a.op.Batch*a.op.Heads { // the Map copied some of the heads only
		return 0, 0, from, false
	}
	packed := tensor.Packed(m.Space, s.Out[0].Strides) && tensor.Packed([]int{m.Space[0] * m.Space[1], n, a.op.Depth}, v.Strides)
	from = s.In[0]
	ok = packed && v.Offset == 0 && a.p.Values[from.Value].DType == tensor.F32 && a.settled(from.Value) && isLines(m.Space, &from)
	return m.Space[0], m.Space[1], from, ok
}

// result returns the view to which product i is to write n rows for each head. If the only reader
// is a Map that copies them, that is the Map's output, and the Map is added to gone.
func (a *attentionOf) result(i, n int, gone map[int]bool) View {
	v := a.p.Steps[i].Out[0]
	out := a.split(v)
	readers := a.f.readers[v.Value]
	if len(readers) != 1 {
		return out
	}
	s := &a.p.Steps[readers[0]]
	m, ok := s.Op.(*Map)
	if !ok || len(m.Code) != 1 || len(s.In) != 1 || len(s.Out) != 1 || !s.In[0].covers(m.Space, a.p.Values[v.Value].Len()) {
		return out
	}
	to := s.Out[0]
	space := []int{a.op.Batch, a.op.Heads, n, a.op.Depth}
	r, ok := routeOf(m.Space, &s.In[0], space, &out)
	if !ok || a.f.maker(to.Value) != readers[0] || a.p.Values[to.Value].DType != tensor.F32 {
		return out
	}
	if w, ok := r.whole(to); ok && isLines(space, &w) {
		gone[readers[0]] = true
		return w
	}
	return out
}

// ofTiles returns the step that finds the largest element of each tile of the bias, or the largest
// absolute value.
func (a *attentionOf) ofTiles(absolute bool) Step {
	const name, n = "bias", AttentionTile
	o := &a.op
	r := &Reduce{Space: []int{o.M / n, n, o.N / n, n}, Reduced: []bool{false, true, false, true}, Red: Max, Code: []Instr{{Op: Load}}}
	if absolute {
		r.Code = append(r.Code, Instr{Op: Abs})
	}
	to := a.temp(name, o.M/n, o.N/n)
	return Step{
		Name: name, Op: r, In: []View{{a.bias.Value, a.bias.Offset, []int{n * o.N, o.N, n, 1}}},
		Out: []View{{Value: to.Value, Strides: []int{o.N / n, 0, 1, 0}}},
	}
}

// packedTiles returns the output of a step of ofTiles.
func (a *attentionOf) packedTiles(s Step) View { return a.p.Whole(s.Out[0].Value) }

func (a *attentionOf) temp(name string, shape ...int) View {
	return a.p.Whole(a.p.Add(Value{Name: name, DType: tensor.F32, Shape: shape}))
}
