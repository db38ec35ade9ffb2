package program

import (
	"slices"

	"github.com/symgrad/symgrad/tensor"
)

// NarrowFrom is a Program.Narrow for GPUs, whose products of bf16 take half the time of others and read half as much: smaller
// ones take no longer than the launch that would round for them.
const NarrowFrom = 1 << 26

// narrow rounds the operands of large products of f32 to bf16, each value once for all that read it, as share finds out; what
// makes them writes them so, as fuse finds out. The sums of a product are f32 as before.
func narrow(p *Program) bool {
	if p.Narrow <= 0 {
		return false
	}
	n := &narrower{pk: packer{p: p, at: make([]int, len(p.Steps))}}
	for i := range p.Steps {
		s := p.Steps[i]
		if o, ok := s.Op.(*MatMul); ok && n.wants(&s, o) {
			in, _, _ := p.signature(&s)
			s.In = slices.Clone(s.In)
			for k := range s.In {
				s.In[k] = n.rounded(&s, s.In[k], in[k].Space)
			}
			n.changed = true
		}
		n.pk.put(i, s, nil)
	}
	p.Steps = n.pk.steps
	return n.changed
}

type narrower struct {
	pk      packer
	changed bool
}

// wants reports whether a product is one of f32, and large.
func (n *narrower) wants(s *Step, o *MatMul) bool {
	for _, v := range slices.Concat(s.In, s.Out) {
		if n.pk.p.Values[v.Value].DType != tensor.F32 {
			return false
		}
	}
	return float64(o.Batch)*float64(o.M)*float64(o.N)*float64(o.K) >= float64(n.pk.p.Narrow)
}

// rounded adds the step that rounds what s reads by v, and gives the view of what it makes: of the whole value, if v reaches from
// its first element to its last, so that other views of it may share that.
func (n *narrower) rounded(s *Step, v View, space []int) View {
	p := n.pk.p
	val := &p.Values[v.Value]
	from, to, shape := p.Whole(v.Value), v, slices.Clone(val.Shape)
	if lo, hi := v.bounds(space); lo != 0 || hi != val.Len()-1 {
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
	to.Value = p.Add(Value{Name: val.Name, DType: tensor.BF16, Shape: shape})
	n.pk.steps = append(n.pk.steps, copyStep(s, shape, from, p.Whole(to.Value), n.pk.moved(s.After)))
	return to
}
