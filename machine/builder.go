package machine

import (
	"fmt"
	"math"
	"slices"

	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/tensor"
)

// builder adds steps to a program under construction.
type builder struct {
	p       *program.Program
	label   string // name of the steps and values that are added
	numbers map[numberKey]program.ID
}

// newBuilder returns a builder of an empty program.
func newBuilder(name string) *builder {
	return &builder{p: &program.Program{Name: name, Clock: program.None}, numbers: map[numberKey]program.ID{}}
}

// reshape returns o with another shape of as many elements: a view where strides allow it, else a
// copy.
func (b *builder) reshape(o operand, shape []int) operand {
	if slices.Equal(o.shape, shape) {
		return o
	}
	r := o
	r.shape = slices.Clone(shape)
	if o.isNum {
		return r
	}
	strides, ok := regroup(o.shape, o.view.Strides, shape)
	if !ok {
		c := b.copyOf(o)
		strides = program.Contiguous(shape)
		r.view = program.View{Value: c.view.Value}
	}
	r.view.Strides = strides
	return r
}

// over returns o as a view over a space: unchanged, repeated or reshaped.
func (b *builder) over(o operand, space []int) (program.View, error) {
	if o.isNum {
		o = b.stored(o)
	}
	switch {
	case slices.Equal(o.shape, space):
		return o.view, nil
	case o.len() == 1:
		return program.View{Value: o.view.Value, Offset: o.view.Offset, Strides: make([]int, len(space))}, nil
	case o.len() == sizeOf(space):
		return b.reshape(o, space).view, nil
	}
	return program.View{}, fmt.Errorf("an operand of shape %v does not fit %v", o.shape, space)
}

// stored returns a number as an element in memory, repeated over its shape.
func (b *builder) stored(o operand) operand {
	if !o.isNum {
		return o
	}
	key := numberKey{math.Float64bits(o.num), o.dtype}
	id, ok := b.numbers[key]
	if !ok {
		id = b.p.Add(program.Value{
			Name: fmt.Sprint(o.num), DType: o.dtype, Place: program.Constant, Data: encode(o.dtype, o.num),
		})
		b.numbers[key] = id
	}
	o.isNum = false
	o.view = program.View{Value: id, Strides: make([]int, len(o.shape))}
	return o
}

// numberKey identifies a number in memory by its bits, because 0 differs from -0.
type numberKey struct {
	bits  uint64
	dtype tensor.DType
}

// fresh returns a new temporary value.
func (b *builder) fresh(dt tensor.DType, shape []int) operand {
	id := b.p.Add(program.Value{Name: b.label, DType: dt, Shape: slices.Clone(shape)})
	return b.whole(id)
}

// whole returns value id with its own shape.
func (b *builder) whole(id program.ID) operand {
	v := &b.p.Values[id]
	return operand{view: b.p.Whole(id), shape: slices.Clone(v.Shape), dtype: v.DType}
}

// copyOf returns a copy of o in C order.
func (b *builder) copyOf(o operand) operand {
	to := b.fresh(o.dtype, o.shape)
	b.copyTo(to, o)
	return to
}

// copyTo copies from, of to's shape, to to.
func (b *builder) copyTo(to, from operand) {
	c := b.newCode(to.shape)
	r := c.load(from)
	b.add(c.mapTo(r, to))
}

// add adds a step with the label as its name.
func (b *builder) add(s program.Step) {
	s.Name = b.label
	b.p.Steps = append(b.p.Steps, s)
}

// readers returns the number of steps that read a value.
func (b *builder) readers(id program.ID) int {
	n := 0
	for i := range b.p.Steps {
		if slices.ContainsFunc(b.p.Steps[i].In, func(v program.View) bool { return v.Value == id }) {
			n++
		}
	}
	return n
}

// isForeign reports whether a Call or a Collective, whose views have the value's own shape, writes
// a value.
func (b *builder) isForeign(id program.ID) bool {
	for i := range b.p.Steps {
		switch b.p.Steps[i].Op.(type) {
		case *program.Call, *program.Collective:
			if slices.ContainsFunc(b.p.Steps[i].Out, func(v program.View) bool { return v.Value == id }) {
				return true
			}
		}
	}
	return false
}

// wholeOf returns o as a whole value, a copy if needed.
func (b *builder) wholeOf(o operand) operand {
	o = b.stored(o)
	v := &b.p.Values[o.view.Value]
	if o.view.Offset == 0 && v.Len() == o.len() && slices.Equal(o.view.Strides, program.Contiguous(o.shape)) && v.Place != program.Constant {
		return b.whole(o.view.Value)
	}
	return b.copyOf(o)
}

// claimable reports whether an operand is all of a temporary value, so that the value can be the
// output's memory.
func (b *builder) claimable(o operand) bool {
	if !b.isWhole(o) {
		return false
	}
	v := &b.p.Values[o.view.Value]
	return v.Place == program.Arena && v.Role == program.Temp
}

// isWhole reports whether an operand is all of a value, in C order.
func (b *builder) isWhole(o operand) bool {
	return !o.isNum && o.view.Offset == 0 && b.p.Values[o.view.Value].Len() == o.len() &&
		slices.Equal(o.view.Strides, program.Contiguous(o.shape))
}

// readSince reports whether a step after the first writer of value from, and before step i, reads
// value of. That is another bucket with the same memory as this one.
func (b *builder) readSince(of, from program.ID, i int) bool {
	first := slices.IndexFunc(b.p.Steps, func(s program.Step) bool {
		return slices.ContainsFunc(s.Out, func(v program.View) bool { return v.Value == from })
	})
	return slices.ContainsFunc(b.p.Steps[max(first, 0):i], func(s program.Step) bool {
		return slices.ContainsFunc(s.In, func(v program.View) bool { return v.Value == of })
	})
}

// shift replaces value from by value to, at an offset, in all steps.
func (b *builder) shift(from, to program.ID, offset int) {
	for i := range b.p.Steps {
		s := &b.p.Steps[i]
		s.In, s.Out = shifted(s.In, from, to, offset), shifted(s.Out, from, to, offset)
	}
}

func shifted(views []program.View, from, to program.ID, offset int) []program.View {
	if !slices.ContainsFunc(views, func(v program.View) bool { return v.Value == from }) {
		return views
	}
	views = slices.Clone(views) // steps may share a slice of views
	for k := range views {
		if views[k].Value == from {
			views[k].Value = to
			views[k].Offset += offset
		}
	}
	return views
}

// drop removes the marked steps.
func (b *builder) drop(marked []bool) {
	kept := b.p.Steps[:0]
	for i, s := range b.p.Steps {
		if !marked[i] {
			kept = append(kept, s)
		}
	}
	b.p.Steps = kept
}
