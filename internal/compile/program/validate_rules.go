package program

import (
	"slices"

	"github.com/symgrad/symgrad/tensor"
)

// steps checks dtypes, packing, places and overlaps of each step, and After.
func (c *checker) steps() {
	for i := range c.p.Steps {
		s := &c.p.Steps[i]
		in, out, err := c.p.Operands(s)
		if err != nil {
			continue // reported by shapes
		}
		for k := range in {
			c.demand(i, operandName("in", k), &s.In[k], in[k])
		}
		for k := range out {
			c.demand(i, operandName("out", k), &s.Out[k], out[k])
			c.written(i, k, out[k])
		}
		c.overlaps(i, in, out)
		c.dtypes(i)
		if s.Stream > Side {
			c.add("%s is on no known stream: %d", c.step(i), s.Stream)
		}
		for _, j := range s.After {
			switch {
			case j < 0 || j >= i:
				c.add("%s is after step %d, which is not before it", c.step(i), j)
			case c.p.Steps[j].Stream == s.Stream:
				c.add("%s is after step %d, which is on its own stream", c.step(i), j)
			}
		}
	}
}

func (c *checker) demand(i int, name string, v *View, o Operand) {
	if o.Packed && !tensor.Packed(o.Space, v.Strides) {
		c.add("%s: %s, %s, has strides %v over %s; it is to be packed: see Pack", c.step(i), name, c.value(v.Value), v.Strides, shapeString(o.Space))
	}
	if o.Matrix && !isMatrix(o.Space, v.Strides) {
		c.add("%s: %s, %s, has strides %v over %s; one of the last two is to be 1: see Pack", c.step(i), name, c.value(v.Value), v.Strides, shapeString(o.Space))
	}
	if o.Lines && !isLines(o.Space, v) {
		c.add("%s: %s, %s, has strides %v over %s from %d on; the last is to be 1, the others multiples of %d: see Pack", c.step(i), name, c.value(v.Value), v.Strides, shapeString(o.Space), v.Offset, lineStep)
	}
	val := &c.p.Values[v.Value]
	col, ok := c.p.Steps[i].Op.(*Collective)
	switch {
	case !ok || v.Value < 0:
	case col.parted() == partIn && name == operandName("in", 0), col.parted() == partOut && name == operandName("out", 0):
		if v.Offset < 0 || v.Offset+col.Part > val.Len() || v.Offset%col.Part != 0 {
			c.add("%s: %s is %d elements from %d on of %s: no part", c.step(i), name, col.Part, v.Offset, c.value(v.Value))
		}
	case col.Whole > 0 && name != operandName("in", 1): // a whole vector, but a part of the value
	case lenOf(o.Space) != val.Len():
		c.add("%s: %s is a part of %s; collectives take whole values", c.step(i), name, c.value(v.Value))
	}
}

// written checks an Out: it is not a constant, and each element is stored once.
func (c *checker) written(i, k int, o Operand) {
	s := &c.p.Steps[i]
	v := &s.Out[k]
	if c.p.Values[v.Value].Place == Constant {
		c.add("%s: out %d is a constant, %s", c.step(i), k, c.value(v.Value))
	}
	if v.Value == c.p.Clock && c.p.Values[v.Value].DType == tensor.U64 && c.p.Values[v.Value].Place == Outside {
		c.add("%s: out %d is the clock, %s", c.step(i), k, c.value(v.Value))
	}
	space := o.Space
	switch r := s.Op.(type) {
	case *Reduce:
		space = c.reduced(i, r.Reduced, space, v)
	case *Integer:
		if r.Reduced != nil {
			space = c.reduced(i, r.Reduced, space, v)
		}
	}
	if !isInjective(space, v.Strides) {
		c.add("%s: out %d, %s, has strides %v over %s, which meet", c.step(i), k, c.value(v.Value), v.Strides, shapeString(space))
	}
}

// reduced returns the space of the elements that a reduction stores: reduced axes have one element.
func (c *checker) reduced(i int, reduced []bool, space []int, v *View) []int {
	kept := append([]int(nil), space...)
	for a := range kept {
		if a >= len(reduced) || !reduced[a] {
			continue
		}
		if v.Strides[a] != 0 && kept[a] != 1 {
			c.add("%s: out 0, %s, has stride %d on axis %d, which is reduced", c.step(i), c.value(v.Value), v.Strides[a], a)
		}
		kept[a] = 1
	}
	return kept
}

// overlaps checks that no Out shares elements with another Out, or with an In unless the operation
// works in place.
func (c *checker) overlaps(i int, in, out []Operand) {
	s := &c.p.Steps[i]
	for k := range s.Out {
		o := &s.Out[k]
		for j := range s.Out[:k] {
			if s.Out[j].Value == o.Value && !disjoint(out[j].Space, &s.Out[j], out[k].Space, o) {
				c.add("%s: out %d and out %d share elements of %s", c.step(i), j, k, c.value(o.Value))
			}
		}
		for j := range s.In {
			v := &s.In[j]
			if v.Value == o.Value && !inPlace(s, j, k, out[k].Space) && !disjoint(in[j].Space, v, out[k].Space, o) {
				c.add("%s: in %d and out %d share elements of %s", c.step(i), j, k, c.value(o.Value))
			}
		}
	}
}

// inPlace reports whether In number in and Out number out of s, views of one value, may be the same
// memory.
func inPlace(s *Step, in, out int, space []int) bool {
	switch o := s.Op.(type) {
	case *Map:
		return sameView(space, &s.In[in], &s.Out[out])
	case *Collective:
		return o.parted() != noPart && in == 0 || sameView(space, &s.In[in], &s.Out[out])
	case *SparseCrossEntropy:
		return in == 0 && out == 1 && sameView(space, &s.In[in], &s.Out[out])
	case *BatchNorm:
		return in >= 1 && out == in+2 && sameView(space, &s.In[in], &s.Out[out])
	case *Call:
		return true // the function decides
	}
	return false
}

// dtypes checks that the operands of a step have one dtype. Map and Reduce convert.
func (c *checker) dtypes(i int) {
	s := &c.p.Steps[i]
	switch s.Op.(type) {
	case *Map, *Call:
		return
	case *Reduce:
		if dt := c.p.Values[s.Out[0].Value].DType; !dt.IsFloat() {
			c.add("%s: out 0, %s, is not floating-point", c.step(i), c.value(s.Out[0].Value))
		}
		return
	case *Integer:
		c.integers(i)
		return
	}
	dt := c.p.Values[s.In[0].Value].DType
	if !anyType(s.Op) && !dt.IsFloat() {
		c.add("%s: in 0, %s, is not floating-point", c.step(i), c.value(s.In[0].Value))
	}
	for k := 1; k < len(s.In); k++ {
		if got := c.p.Values[s.In[k].Value].DType; got != dt && !otherIn(s.Op, k) {
			c.add("%s: in %d, %s, is not %s as in 0 is", c.step(i), k, c.value(s.In[k].Value), dt)
		}
	}
	for k := range s.Out {
		got := c.p.Values[s.Out[k].Value].DType
		if got != dt && !(got == tensor.F32 && dt.Size() == 2 && wideOut(s.Op, k)) {
			c.add("%s: out %d, %s, is not %s as in 0 is", c.step(i), k, c.value(s.Out[k].Value), dt)
		}
	}
}

// anyType reports whether an operation only moves elements, or leaves arithmetic to a group.
func anyType(op Op) bool {
	switch op.(type) {
	case *Collective, *Gather:
		return true
	}
	return false
}

// integers checks that an Integer reads integers of one dtype and stores integers.
func (c *checker) integers(i int) {
	s := &c.p.Steps[i]
	for k, v := range s.In {
		if dt := c.p.Values[v.Value].DType; dt.IsFloat() || dt != c.p.Values[s.In[0].Value].DType {
			c.add("%s: in %d, %s, is not an integer of the dtype of in 0", c.step(i), k, c.value(v.Value))
		}
	}
	if v := s.Out[0]; c.p.Values[v.Value].DType.IsFloat() {
		c.add("%s: out 0, %s, is not an integer", c.step(i), c.value(v.Value))
	}
}

// otherIn reports whether In number k may have another dtype: indices, and f32 operands of
// BatchNorm, Attention and SparseCrossEntropy.
func otherIn(op Op, k int) bool {
	switch op.(type) {
	case *Gather, *GatherGrad:
		return k == 1
	case *BatchNorm, *SparseCrossEntropy:
		return k >= 1
	case *BatchNormGrad:
		return k >= 2
	case *Attention:
		return k >= 3
	case *AttentionGrad:
		return k >= 4
	}
	return false
}

// wideOut reports whether Out number k may be f32 where In number 0 is f16 or bf16: sums and
// statistics.
func wideOut(op Op, k int) bool {
	switch op.(type) {
	case *MatMul, *ConvGradFilter, *Attention, *AttentionGrad:
		return true
	case *CrossEntropy, *SparseCrossEntropy:
		return k == 0
	case *BatchNorm:
		return k >= 1
	}
	return false
}

// hazards checks that each value is written before it is read, and that streams wait for each other
// where they touch the same value.
func (c *checker) hazards() {
	c.unwritten()
	o := orderOf(c.p)
	if !slices.ContainsFunc(o.stream, func(s Stream) bool { return s != o.stream[0] }) {
		return
	}
	touches := make([][]touch, len(c.p.Values))
	for i := range c.p.Steps {
		for _, v := range c.p.Steps[i].In {
			c.race(o, touches[v.Value], touch{i, false}, v.Value)
			touches[v.Value] = append(touches[v.Value], touch{i, false})
		}
		for _, v := range c.p.Steps[i].Out {
			c.race(o, touches[v.Value], touch{i, true}, v.Value)
			touches[v.Value] = append(touches[v.Value], touch{i, true})
		}
	}
}

type touch struct {
	step  int
	write bool
}

// race reports the last earlier touch of a value, on another stream, that a new one does not wait
// for.
func (c *checker) race(o *order, earlier []touch, t touch, id ID) {
	for k := len(earlier) - 1; k >= 0; k-- {
		e := earlier[k]
		if e.step != t.step && (e.write || t.write) && !o.before(e.step, t.step) {
			c.add("%s does not wait for %s, and both touch %s", c.step(t.step), c.step(e.step), c.value(id))
			return
		}
	}
}

// unwritten reports reads of arena values that no step has written.
func (c *checker) unwritten() {
	written := make([]bool, len(c.p.Values))
	for i := range c.p.Steps {
		s := &c.p.Steps[i]
		read := func(name string, v View) {
			val := &c.p.Values[v.Value]
			if val.Place == Arena && !val.early() && !written[v.Value] && val.Len() > 0 {
				c.add("%s: %s, %s, is read before anything is written to it", c.step(i), name, c.value(v.Value))
				written[v.Value] = true // report once
			}
		}
		for k, v := range s.In {
			read(operandName("in", k), v)
		}
		if m, ok := s.Op.(*MatMul); ok && m.Beta != 0 {
			read("out 0", s.Out[0])
		}
		for _, v := range s.Out {
			written[v.Value] = true
		}
	}
	for i := range c.p.Values {
		if v := &c.p.Values[i]; v.Place == Arena && v.Role == Output && !written[i] && v.Len() > 0 {
			c.add("%s is an output, and no step writes it", c.value(ID(i)))
		}
	}
}
