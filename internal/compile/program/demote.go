package program

import (
	"cmp"
	"slices"

	"github.com/symgrad/symgrad/tensor"
)

// NarrowFrom is the Program.Narrow for GPUs. A large bf16 product takes half the time of an f32
// product and reads half the bytes. A smaller one takes no longer than the launch that rounds for
// it.
const NarrowFrom = 1 << 26

// demote rounds the operands of attention and of large f32 products to NarrowTo. A value is
// rounded once for all its readers (eliminateCommon), by the step that makes it where possible
// (fuse). Accumulation stays in f32. So do results that the caller or a parameter's update reads;
// results that only feed later steps become narrow.
func demote(p *Program) bool {
	if p.Narrow <= 0 {
		return false
	}
	n := &narrower{
		pk: packer{p: p, at: make([]int, len(p.Steps))}, flow: flowOf(p),
		to: cmp.Or(p.NarrowTo, tensor.BF16), of: map[ID]ID{}, round: map[ID]bool{}, only: map[ID]bool{}, kept: map[ID]bool{},
	}
	for i := range p.Steps {
		n.choose(i)
	}
	for i := range p.Steps {
		n.step(i)
	}
	p.Steps = n.pk.steps
	return n.changed
}

type narrower struct {
	pk      packer
	to      tensor.DType // the narrow dtype
	flow    *flow        // of the program before the pass
	of      map[ID]ID    // the narrow copy of a value
	round   map[ID]bool  // values to round after their maker
	only    map[ID]bool  // values that exist in the narrow dtype only
	kept    map[ID]bool  // results of isKept, or false while it runs
	changed bool
}

// wants returns how many Ins and Outs of a step are to be narrow: those of attention and of a large
// f32 product.
func (n *narrower) wants(s *Step) (in, out int) {
	switch o := s.Op.(type) {
	case *MatMul:
		if float64(o.Batch)*float64(o.M)*float64(o.N)*float64(o.K) >= float64(n.pk.p.Narrow) {
			in, out = 2, 1
		}
	case *Attention:
		in, out = 3, 1
	case *AttentionGrad:
		in, out = 4, 3
	}
	for _, v := range slices.Concat(s.In[:in], s.Out[:out]) {
		if n.pk.p.Values[v.Value].DType != tensor.F32 {
			return 0, 0
		}
	}
	return in, out
}

// choose decides which operands and results of step i are rounded where they are made.
func (n *narrower) choose(i int) {
	p := n.pk.p
	s := &p.Steps[i]
	ins, outs := n.wants(s)
	if ins == 0 {
		return
	}
	n.changed = true
	in, _, _ := p.signature(s)
	for k, v := range s.In[:ins] {
		if n.flow.maker(v.Value) < 0 || !isWhole(p, &v, in[k].Space) {
			continue
		}
		n.round[v.Value] = true
		n.only[v.Value] = n.only[v.Value] || n.readBy(v.Value, isReduce)
	}
	for _, v := range s.Out[:outs] {
		if id := v.Value; n.flow.maker(id) == i && !n.isKept(id) && n.readBy(id, goesByRows) {
			n.round[id], n.only[id] = true, true
		}
	}
}

// readBy reports whether every reader of a value wants it narrow or satisfies said.
func (n *narrower) readBy(id ID, said func(op Op) bool) bool {
	for _, j := range n.flow.readers[id] {
		if s := &n.pk.p.Steps[j]; !said(s.Op) && !n.rounds(s, id) {
			return false
		}
	}
	return true
}

// rounds reports whether a step reads a value in the narrow dtype only.
func (n *narrower) rounds(s *Step, id ID) bool {
	in, _ := n.wants(s)
	return slices.ContainsFunc(s.In[:in], func(v View) bool { return v.Value == id }) &&
		!slices.ContainsFunc(s.In[in:], func(v View) bool { return v.Value == id })
}

// isKept reports whether a value, or a value that Maps compute from it, is exchanged, passed to a
// host function or read after the run.
func (n *narrower) isKept(id ID) bool {
	if kept, known := n.kept[id]; known {
		return kept
	}
	n.kept[id] = n.flow.maker(id) < 0
	for _, j := range n.flow.readers[id] {
		s := &n.pk.p.Steps[j]
		switch s.Op.(type) {
		case *Collective, *Call:
			n.kept[id] = true
		case *Map:
			for _, v := range s.Out {
				n.kept[id] = n.isKept(v.Value) || n.kept[id]
			}
		}
	}
	return n.kept[id]
}

// step adds step i, between the steps that widen its inputs and those that round its results.
func (n *narrower) step(i int) {
	p := n.pk.p
	s := p.Steps[i]
	ins, outs := n.wants(&s)
	in, _, _ := p.signature(&s)
	s.In, s.Out = slices.Clone(s.In), slices.Clone(s.Out)
	for k := range s.In {
		v := &s.In[k]
		id, there := n.of[v.Value]
		wants := k < ins
		switch {
		case there && (wants || n.only[v.Value] && (converts(s.Op) || k == 0 && takesLogits(s.Op))):
			v.Value = id
		case wants:
			*v = n.rounded(&s, *v, in[k].Space)
		case n.only[v.Value]:
			v.Value = n.widened(&s, v.Value)
		}
	}
	var behind []Step
	for k := range s.Out {
		v := &s.Out[k]
		if !n.round[v.Value] {
			continue
		}
		id := n.like(v.Value, n.to)
		if n.of[v.Value] = id; (k < outs || k == 1 && takesLogits(s.Op)) && n.only[v.Value] {
			v.Value = id
			continue
		}
		behind = append(behind, copyStep(&s, p.Values[id].Shape, p.Whole(v.Value), p.Whole(id), nil))
	}
	n.pk.put(i, s, behind)
}

// like adds a value of dtype dt that is otherwise like id.
func (n *narrower) like(id ID, dt tensor.DType) ID {
	val := &n.pk.p.Values[id]
	return n.pk.p.Add(Value{Name: val.Name, DType: dt, Shape: slices.Clone(val.Shape)})
}

// widened adds the step that converts the narrow copy of a value to f32 for s alone. It is right
// before s, so that both can be fused.
func (n *narrower) widened(s *Step, id ID) ID {
	p := n.pk.p
	wide := n.like(id, tensor.F32)
	n.pk.steps = append(n.pk.steps, copyStep(s, p.Values[wide].Shape, p.Whole(n.of[id]), p.Whole(wide), n.pk.moved(s.After)))
	return wide
}

// rounded adds the step that rounds the elements that s reads through v, and returns the view of
// the result. If v reaches from the first element of its value to the last, the whole value is
// rounded, so that other views can share it.
func (n *narrower) rounded(s *Step, v View, space []int) View {
	p := n.pk.p
	val := &p.Values[v.Value]
	from, to, shape := p.Whole(v.Value), v, slices.Clone(val.Shape)
	if !isWhole(p, &v, space) {
		from, shape = v, slices.Clone(space)
		for d := range space {
			if v.Strides[d] == 0 {
				shape[d] = 1
			}
		}
		to = View{Strides: Contiguous(shape)}
		for d := range space {
			if v.Strides[d] == 0 {
				to.Strides[d] = 0
			}
		}
	}
	to.Value = p.Add(Value{Name: val.Name, DType: n.to, Shape: shape})
	n.pk.steps = append(n.pk.steps, copyStep(s, shape, from, p.Whole(to.Value), n.pk.moved(s.After)))
	return to
}

// isWhole reports whether a view reaches from a value's first element to its last.
func isWhole(p *Program, v *View, space []int) bool {
	lo, hi := v.bounds(space)
	return lo == 0 && hi == p.Values[v.Value].Len()-1
}

func isReduce(op Op) bool {
	_, ok := op.(*Reduce)
	return ok
}

// converts reports whether a step takes operands of any dtype.
func converts(op Op) bool {
	_, isMap := op.(*Map)
	return isMap || isReduce(op)
}

// takesLogits reports whether a step reads In 0, and stores Out 1, in the narrow dtype by itself.
func takesLogits(op Op) bool {
	_, ok := op.(*SparseCrossEntropy)
	return ok
}

// goesByRows reports whether a step converts, or can run row by row together with a step that
// converts for it.
func goesByRows(op Op) bool {
	switch op.(type) {
	case *Softmax, *SoftmaxGrad:
		return true
	}
	return converts(op) || takesLogits(op)
}
