package program

import "github.com/symgrad/symgrad/tensor"

// Pack adds copies around steps whose operands are not in the form that the operation demands.
// Optimize includes it; without Optimize, call it before Plan. Errors: ErrInvalid.
func Pack(p *Program) error {
	if err := check(p); err != nil {
		return err
	}
	pk := &packer{p: p, at: make([]int, len(p.Steps))}
	for i := range p.Steps {
		s := p.Steps[i]
		in, out, err := p.Operands(&s)
		if err != nil {
			return err
		}
		s.In, s.Out = append([]View(nil), s.In...), append([]View(nil), s.Out...)
		for k := range in {
			if !in[k].meets(&s.In[k]) {
				s.In[k] = pk.copyIn(&s, s.In[k], in[k].Space)
			}
		}
		var behind []Step
		for k := range out {
			if !out[k].meets(&s.Out[k]) {
				behind = append(behind, pk.copyOut(&s, k, out[k].Space))
			}
		}
		pk.put(i, s, behind)
	}
	p.Steps = pk.steps
	return nil
}

// meets reports whether a view has the form that the operand demands.
func (o *Operand) meets(v *View) bool {
	return (!o.Packed || tensor.Packed(o.Space, v.Strides)) && (!o.Matrix || isMatrix(o.Space, v.Strides)) && (!o.Lines || isLines(o.Space, v))
}

type packer struct {
	p     *Program
	steps []Step
	at    []int // new index of each old step, for After
}

// put adds step i and the steps that follow it. Steps that wait for i wait for the last of them.
func (pk *packer) put(i int, s Step, behind []Step) {
	after := make([]int, len(s.After))
	for k, j := range s.After {
		after[k] = pk.at[j]
	}
	s.After = after
	pk.steps = append(pk.steps, s)
	pk.steps = append(pk.steps, behind...)
	pk.at[i] = len(pk.steps) - 1
}

// copyIn adds a step that copies a view into a packed value, and returns that value's view.
func (pk *packer) copyIn(s *Step, v View, space []int) View {
	to := pk.temp(v.Value, space)
	pk.steps = append(pk.steps, copyStep(s, space, v, to, pk.moved(s.After)))
	return to
}

// copyOut makes s write a packed value, and returns the step that copies it to the old Out. If s is
// a product that accumulates, a copy of the old contents precedes it.
func (pk *packer) copyOut(s *Step, k int, space []int) Step {
	v := s.Out[k]
	to := pk.temp(v.Value, space)
	if m, ok := s.Op.(*MatMul); ok && m.Beta != 0 {
		pk.steps = append(pk.steps, copyStep(s, space, v, to, pk.moved(s.After)))
	}
	s.Out[k] = to
	return copyStep(s, space, to, v, nil)
}

func (pk *packer) moved(after []int) []int {
	all := make([]int, len(after))
	for k, j := range after {
		all[k] = pk.at[j]
	}
	return all
}

// temp returns the whole of a new value over space, of the dtype of value id.
func (pk *packer) temp(id ID, space []int) View {
	old := &pk.p.Values[id]
	return pk.p.Whole(pk.p.Add(Value{Name: old.Name, DType: old.DType, Shape: append([]int(nil), space...)}))
}

// copyStep returns a Map that copies an operand of s, on the stream of s.
func copyStep(s *Step, space []int, from, to View, after []int) Step {
	return Step{
		Name:   s.Name,
		Op:     &Map{Space: append([]int(nil), space...), Code: []Instr{{Op: Load}}, Stores: []int{0}},
		In:     []View{from},
		Out:    []View{to},
		Stream: s.Stream,
		After:  after,
	}
}
