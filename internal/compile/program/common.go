package program

import "fmt"

// eliminateCommon replaces the results of a step by those of an earlier step that computes the
// same.
func eliminateCommon(p *Program) bool {
	changed := false
	f := flowOf(p)
	first := map[string]int{}
	for j := range p.Steps {
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
			f.rename(v.Value, p.Steps[i].Out[k].Value)
		}
		f.remove(j)
		changed = true
	}
	f.finish()
	return changed
}

// shareKey returns a key that is equal for steps with the same operation, inputs and form of
// outputs. The step must be the maker of its outputs.
func shareKey(f *flow, i int) (string, bool) {
	s := &f.p.Steps[i]
	switch s.Op.(type) {
	case *Collective, *Call: // they have effects of their own
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
