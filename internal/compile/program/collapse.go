package program

import "slices"

// collapseDims shortens the spaces of Maps and Reduces: it drops axes of one element, and merges
// neighbouring axes that all views traverse as one.
func collapseDims(p *Program) {
	for i := range p.Steps {
		s := &p.Steps[i]
		e, ok := elementsOf(s)
		if !ok {
			continue
		}
		c := &collapser{space: slices.Clone(e.space)}
		for _, v := range append(slices.Clone(s.In), s.Out...) {
			c.views = append(c.views, View{v.Value, v.Offset, slices.Clone(v.Strides)})
		}
		if r, ok := s.Op.(*Reduce); ok {
			c.reduced = slices.Clone(r.Reduced)
		}
		c.run()
		n := len(s.In)
		s.In, s.Out = c.views[:n:n], c.views[n:]
		switch o := s.Op.(type) {
		case *Map:
			s.Op = &Map{Space: c.space, Code: o.Code, Stores: o.Stores}
		case *Reduce:
			s.Op = &Reduce{Space: c.space, Reduced: c.reduced, Red: o.Red, Code: o.Code}
		}
	}
}

type collapser struct {
	space   []int
	reduced []bool // of a Reduce
	views   []View
}

func (c *collapser) run() {
	for a := len(c.space) - 1; a >= 0; a-- {
		switch {
		case c.space[a] == 1:
			c.remove(a)
		case a+1 < len(c.space) && c.mergeable(a):
			for k := range c.views {
				c.views[k].Strides[a] = c.views[k].Strides[a+1]
			}
			c.space[a] *= c.space[a+1]
			c.remove(a + 1)
		}
	}
}

// mergeable reports whether in all views axis a continues where axis a+1 ends.
func (c *collapser) mergeable(a int) bool {
	if c.reduced != nil && c.reduced[a] != c.reduced[a+1] {
		return false
	}
	for k := range c.views {
		if s := c.views[k].Strides; s[a] != s[a+1]*c.space[a+1] {
			return false
		}
	}
	return true
}

func (c *collapser) remove(a int) {
	c.space = slices.Delete(c.space, a, a+1)
	if c.reduced != nil {
		c.reduced = slices.Delete(c.reduced, a, a+1)
	}
	for k := range c.views {
		c.views[k].Strides = slices.Delete(c.views[k].Strides, a, a+1)
	}
}
