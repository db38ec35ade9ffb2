package program

import (
	"cmp"
	"slices"
)

// placement checks, after Plan, that values that are in use at the same time share no bytes.
func (c *checker) placement() {
	if c.p.Arena == 0 {
		return
	}
	pl := newPlanner(c.p)
	var live []ID
	for i := range c.p.Values {
		v := &c.p.Values[i]
		if v.Place != Arena || v.Bytes() == 0 || !pl.spans[i].touched() {
			continue
		}
		if v.Offset < 0 || v.Offset+v.Bytes() > c.p.Arena || v.Offset%int64(v.DType.Size()) != 0 {
			c.add("%s is at %d in an arena of %d bytes", c.value(ID(i)), v.Offset, c.p.Arena)
		}
		live = append(live, ID(i))
	}
	slices.SortStableFunc(live, func(a, b ID) int { return cmp.Compare(c.p.Values[a].Offset, c.p.Values[b].Offset) })
	follows := c.followers(pl)
	for k, a := range live {
		end := c.p.Values[a].Offset + c.p.Values[a].Bytes()
		for _, b := range live[k+1:] {
			if c.p.Values[b].Offset >= end {
				break
			}
			if !pl.apart(a, b) && !follows[[2]ID{a, b}] && !follows[[2]ID{b, a}] {
				c.add("%s at %d and %s at %d share bytes while both are in use: run Plan after the last change", c.value(a), c.p.Values[a].Offset, c.value(b), c.p.Values[b].Offset)
			}
		}
	}
}

// followers returns the pairs of values at one offset where a Map overwrites the first by the
// second, element by element.
func (c *checker) followers(pl *planner) map[[2]ID]bool {
	pairs := map[[2]ID]bool{}
	for i := range c.p.Steps {
		s := &c.p.Steps[i]
		for out := range s.Out {
			for in := range s.In {
				a, b := s.In[in].Value, s.Out[out].Value
				if c.p.Values[a].Offset == c.p.Values[b].Offset && pl.reuses(i, out, in) {
					pairs[[2]ID{a, b}] = true
				}
			}
		}
	}
	return pairs
}
