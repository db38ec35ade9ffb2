// Package draft builds programs: operands are views of values or numbers, and steps are added to a
// program under construction.
package draft

import (
	"fmt"
	"math"
	"slices"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// Builder adds steps to a program under construction.
type Builder struct {
	Program *program.Program
	Label   string // name of the steps and values that are added
	numbers map[numberKey]program.ID
}

// New returns a builder of an empty program.
func New(name string) *Builder {
	return &Builder{Program: &program.Program{Name: name, Clock: program.None}, numbers: map[numberKey]program.ID{}}
}

// Reshape returns o with another shape of as many elements: a view where strides allow it, else a
// copy.
func (b *Builder) Reshape(o Operand, shape []int) Operand {
	if slices.Equal(o.Shape, shape) {
		return o
	}
	r := o
	r.Shape = slices.Clone(shape)
	if o.IsNum {
		return r
	}
	strides, ok := regroup(o.Shape, o.View.Strides, shape)
	if !ok {
		c := b.CopyOf(o)
		strides = program.Contiguous(shape)
		r.View = program.View{Value: c.View.Value}
	}
	r.View.Strides = strides
	return r
}

// Over returns o as a view over a space: unchanged, repeated or reshaped.
func (b *Builder) Over(o Operand, space []int) (program.View, error) {
	if o.IsNum {
		o = b.Stored(o)
	}
	switch {
	case slices.Equal(o.Shape, space):
		return o.View, nil
	case o.Len() == 1:
		return program.View{Value: o.View.Value, Offset: o.View.Offset, Strides: make([]int, len(space))}, nil
	case o.Len() == SizeOf(space):
		return b.Reshape(o, space).View, nil
	}
	return program.View{}, fmt.Errorf("an operand of shape %v does not fit %v", o.Shape, space)
}

// Stored returns a number as an element in memory, repeated over its shape.
func (b *Builder) Stored(o Operand) Operand {
	if !o.IsNum {
		return o
	}
	key := numberKey{math.Float64bits(o.Num), o.DType}
	id, ok := b.numbers[key]
	if !ok {
		id = b.Program.Add(program.Value{
			Name: fmt.Sprint(o.Num), DType: o.DType, Place: program.Constant, Data: encode(o.DType, o.Num),
		})
		b.numbers[key] = id
	}
	o.IsNum = false
	o.View = program.View{Value: id, Strides: make([]int, len(o.Shape))}
	return o
}

// numberKey identifies a number in memory by its bits, because 0 differs from -0.
type numberKey struct {
	bits  uint64
	dtype tensor.DType
}

// Fresh returns a new temporary value.
func (b *Builder) Fresh(dt tensor.DType, shape []int) Operand {
	id := b.Program.Add(program.Value{Name: b.Label, DType: dt, Shape: slices.Clone(shape)})
	return b.Whole(id)
}

// Whole returns value id with its own shape.
func (b *Builder) Whole(id program.ID) Operand {
	v := &b.Program.Values[id]
	return Operand{View: b.Program.Whole(id), Shape: slices.Clone(v.Shape), DType: v.DType}
}

// CopyOf returns a copy of o in C order.
func (b *Builder) CopyOf(o Operand) Operand {
	to := b.Fresh(o.DType, o.Shape)
	b.CopyTo(to, o)
	return to
}

// CopyTo copies from, of to's shape, to to.
func (b *Builder) CopyTo(to, from Operand) {
	c := b.NewCode(to.Shape)
	r := c.Load(from)
	b.Add(c.MapTo(r, to))
}

// Add adds a step with the label as its name.
func (b *Builder) Add(s program.Step) {
	s.Name = b.Label
	b.Program.Steps = append(b.Program.Steps, s)
}

// Readers returns the number of steps that read a value.
func (b *Builder) Readers(id program.ID) int {
	n := 0
	for i := range b.Program.Steps {
		if slices.ContainsFunc(b.Program.Steps[i].In, func(v program.View) bool { return v.Value == id }) {
			n++
		}
	}
	return n
}

// IsForeign reports whether a Call or a Collective, whose views have the value's own shape, writes
// a value.
func (b *Builder) IsForeign(id program.ID) bool {
	for i := range b.Program.Steps {
		switch b.Program.Steps[i].Op.(type) {
		case *program.Call, *program.Collective:
			if slices.ContainsFunc(b.Program.Steps[i].Out, func(v program.View) bool { return v.Value == id }) {
				return true
			}
		}
	}
	return false
}

// WholeOf returns o as a whole value, a copy if needed.
func (b *Builder) WholeOf(o Operand) Operand {
	o = b.Stored(o)
	v := &b.Program.Values[o.View.Value]
	if o.View.Offset == 0 && v.Len() == o.Len() && slices.Equal(o.View.Strides, program.Contiguous(o.Shape)) && v.Place != program.Constant {
		return b.Whole(o.View.Value)
	}
	return b.CopyOf(o)
}

// Claimable reports whether an operand is all of a temporary value, so that the value can be the
// output's memory.
func (b *Builder) Claimable(o Operand) bool {
	if !b.IsWhole(o) {
		return false
	}
	v := &b.Program.Values[o.View.Value]
	return v.Place == program.Arena && v.Role == program.Temp
}

// IsWhole reports whether an operand is all of a value, in C order.
func (b *Builder) IsWhole(o Operand) bool {
	return !o.IsNum && o.View.Offset == 0 && b.Program.Values[o.View.Value].Len() == o.Len() &&
		slices.Equal(o.View.Strides, program.Contiguous(o.Shape))
}

// ReadSince reports whether a step after the first writer of value from, and before step i, reads
// value of. That is another bucket with the same memory as this one.
func (b *Builder) ReadSince(of, from program.ID, i int) bool {
	first := slices.IndexFunc(b.Program.Steps, func(s program.Step) bool {
		return slices.ContainsFunc(s.Out, func(v program.View) bool { return v.Value == from })
	})
	return slices.ContainsFunc(b.Program.Steps[max(first, 0):i], func(s program.Step) bool {
		return slices.ContainsFunc(s.In, func(v program.View) bool { return v.Value == of })
	})
}

// Shift replaces value from by value to, at an offset, in all steps.
func (b *Builder) Shift(from, to program.ID, offset int) {
	for i := range b.Program.Steps {
		s := &b.Program.Steps[i]
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

// Drop removes the marked steps.
func (b *Builder) Drop(marked []bool) {
	kept := b.Program.Steps[:0]
	for i, s := range b.Program.Steps {
		if !marked[i] {
			kept = append(kept, s)
		}
	}
	b.Program.Steps = kept
}

// encode returns numbers as bytes of a dtype.
func encode(dt tensor.DType, values ...float64) []byte {
	data := make([]byte, len(values)*dt.Size())
	for i, v := range values {
		program.SetElement(dt, data, i, v)
	}
	return data
}

// NewCode returns code that runs for each element of a space.
func (b *Builder) NewCode(space []int) *Code { return &Code{b: b, Space: slices.Clone(space)} }

// Zero sets element at of a vector to 0: the sum of an empty piece.
func (b *Builder) Zero(to Operand, at int) {
	m := b.NewCode(nil)
	b.Add(m.MapTo(m.Constant(0), Operand{View: program.View{Value: to.View.Value, Offset: at}}))
}
