package program

import "fmt"

// share lets steps that would compute the same as an earlier one use its results.
func share(p *Program) bool {
	changed := false
	f := flowOf(p)
	first := map[string]int{}
	for j := 0; j < len(p.Steps); j++ {
		key, ok := shareKey(f, j)
		if !ok {
			continue
		}
		i, again := first[key]
		if !again || !f.steady(i, j) {
			first[key] = j
			continue
		}
		for k, v := range p.Steps[j].Out {
			rename(p, v.Value, p.Steps[i].Out[k].Value)
		}
		p.drop(j)
		f = flowOf(p)
		j--
		changed = true
	}
	return changed
}

// shareKey is the same for steps that compute the same from the same memory, into values of one form of which they are
// the makers.
func shareKey(f *flow, i int) (string, bool) {
	s := &f.p.Steps[i]
	switch s.Op.(type) {
	case *Collective, *Call: // they do more than compute
		return "", false
	}
	if !f.madeOnly(i) {
		return "", false
	}
	key := fmt.Sprintf("%#v %v", s.Op, s.In)
	for _, v := range s.Out {
		val := &f.p.Values[v.Value]
		key += fmt.Sprintf(" %v %d %v %d", val.DType, val.Len(), v.Strides, v.Offset)
	}
	return key, true
}

// rename makes all steps read another value of the same elements, in the same order.
func rename(p *Program, from, to ID) {
	for i := range p.Steps {
		s := &p.Steps[i]
		var in []View
		for k := range s.In {
			if s.In[k].Value != from {
				continue
			}
			if in == nil {
				in = append(in, s.In...)
				s.In = in
			}
			switch s.Op.(type) {
			case *Collective, *Call: // their views are of the value's own shape
				in[k] = p.Whole(to)
			default:
				in[k].Value = to
			}
		}
	}
}
