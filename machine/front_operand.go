package machine

import (
	"fmt"
	"math"
	"slices"

	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/tensor"
)

// operand is the value of a node during lowering: a view of a program's value, or one number for
// all elements.
type operand struct {
	view  program.View // over shape; unused for a number
	shape []int
	dtype tensor.DType
	isNum bool
	num   float64
}

func number(v float64, dt tensor.DType, shape []int) operand {
	if dt == tensor.F32 {
		v = float64(float32(v))
	}
	return operand{isNum: true, num: v, dtype: dt, shape: shape}
}

func sizeOf(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func (o *operand) len() int { return sizeOf(o.shape) }

// reshape returns o with another shape of as many elements: a view where strides allow it, else a
// copy.
func (l *lowering) reshape(o operand, shape []int) operand {
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
		c := l.copyOf(o)
		strides = program.Contiguous(shape)
		r.view = program.View{Value: c.view.Value}
	}
	r.view.Strides = strides
	return r
}

// regroup returns strides over another shape for the same elements in the same order. It fails
// where one dimension would need two strides.
func regroup(shape, strides, to []int) ([]int, bool) {
	type run struct{ n, stride int }
	var from []run // dimensions that are not 1, neighbours merged
	for i, n := range shape {
		switch last := len(from) - 1; {
		case n == 1:
		case last >= 0 && from[last].stride == n*strides[i]:
			from[last] = run{from[last].n * n, strides[i]}
		default:
			from = append(from, run{n, strides[i]})
		}
	}
	out := make([]int, len(to))
	k := len(from) - 1
	left := run{1, 0} // rest of the run that is being cut
	for i := len(to) - 1; i >= 0; i-- {
		if to[i] == 1 {
			continue
		}
		if left.n == 1 {
			if k < 0 {
				return nil, false
			}
			left = from[k]
			k--
		}
		if left.n%to[i] != 0 {
			return nil, false
		}
		out[i] = left.stride
		left = run{left.n / to[i], left.stride * to[i]}
	}
	return out, left.n == 1 && k < 0
}

// over returns o as a view over a space: unchanged, repeated or reshaped.
func (l *lowering) over(o operand, space []int) (program.View, error) {
	if o.isNum {
		o = l.stored(o)
	}
	switch {
	case slices.Equal(o.shape, space):
		return o.view, nil
	case o.len() == 1:
		return program.View{Value: o.view.Value, Offset: o.view.Offset, Strides: make([]int, len(space))}, nil
	case o.len() == sizeOf(space):
		return l.reshape(o, space).view, nil
	}
	return program.View{}, fmt.Errorf("an operand of shape %v does not fit %v", o.shape, space)
}

// stored returns a number as an element in memory, repeated over its shape.
func (l *lowering) stored(o operand) operand {
	if !o.isNum {
		return o
	}
	key := numberKey{math.Float64bits(o.num), o.dtype}
	id, ok := l.numbers[key]
	if !ok {
		id = l.p.Add(program.Value{
			Name: fmt.Sprint(o.num), DType: o.dtype, Place: program.Constant, Data: encode(o.dtype, o.num),
		})
		l.numbers[key] = id
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

// permute returns o with its axes reordered: axis i is the old axis axes[i].
func permute(o operand, axes []int) operand {
	r := o
	r.shape = make([]int, len(axes))
	r.view.Strides = make([]int, len(axes))
	for i, a := range axes {
		r.shape[i] = o.shape[a]
		if !o.isNum {
			r.view.Strides[i] = o.view.Strides[a]
		}
	}
	return r
}

// cut returns n elements of o along an axis: from, from+step, ...
func cut(o operand, axis, from, step, n int) operand {
	r := o
	r.shape = slices.Clone(o.shape)
	r.shape[axis] = n
	if o.isNum {
		return r
	}
	r.view.Strides = slices.Clone(o.view.Strides)
	r.view.Offset += from * o.view.Strides[axis]
	r.view.Strides[axis] *= max(step, 1)
	return r
}

// fresh returns a new temporary value for the current node.
func (l *lowering) fresh(dt tensor.DType, shape []int) operand {
	id := l.p.Add(program.Value{Name: l.label, DType: dt, Shape: slices.Clone(shape)})
	return l.whole(id)
}

// whole returns value id with its own shape.
func (l *lowering) whole(id program.ID) operand {
	v := &l.p.Values[id]
	return operand{view: l.p.Whole(id), shape: slices.Clone(v.Shape), dtype: v.DType}
}

// copyOf returns a copy of o in C order.
func (l *lowering) copyOf(o operand) operand {
	to := l.fresh(o.dtype, o.shape)
	l.copyTo(to, o)
	return to
}

// copyTo copies from, of to's shape, to to.
func (l *lowering) copyTo(to, from operand) {
	c := l.newCode(to.shape)
	r := c.load(from)
	l.add(c.mapTo(r, to))
}

// add adds a step for the current node.
func (l *lowering) add(s program.Step) {
	s.Name = l.label
	l.p.Steps = append(l.p.Steps, s)
}

// code builds a Map or Reduce.
type code struct {
	l     *lowering
	space []int
	in    []program.View
	code  []program.Instr
	err   error
}

func (l *lowering) newCode(space []int) *code { return &code{l: l, space: slices.Clone(space)} }

// load returns the register with the elements of o, which fits the space.
func (c *code) load(o operand) int {
	if o.isNum {
		return c.constant(o.num)
	}
	v, err := c.l.over(o, c.space)
	if err != nil {
		c.err = err
		return 0
	}
	for i, in := range c.in {
		if in.Value == v.Value && in.Offset == v.Offset && slices.Equal(in.Strides, v.Strides) {
			return c.do(program.Load, i)
		}
	}
	c.in = append(c.in, v)
	return c.do(program.Load, len(c.in)-1)
}

func (c *code) constant(v float64) int {
	return c.put(program.Instr{Op: program.Const, Value: v})
}

// do returns the register of op applied to registers.
func (c *code) do(op program.Scalar, args ...int) int {
	i := program.Instr{Op: op}
	for k, to := range []*int{&i.A, &i.B, &i.C}[:len(args)] {
		*to = args[k]
	}
	return c.put(i)
}

// put adds an instruction, or finds an equal one.
func (c *code) put(i program.Instr) int {
	if k := slices.Index(c.code, i); k >= 0 {
		return k
	}
	c.code = append(c.code, i)
	return len(c.code) - 1
}

// mapTo returns a Map of the code that stores register r in to.
func (c *code) mapTo(r int, to operand) program.Step {
	return program.Step{
		Op: &program.Map{Space: c.space, Code: c.code, Stores: []int{r}},
		In: c.in, Out: []program.View{to.view},
	}
}

// result adds a Map of the code, whose register r is the value of the current node.
func (c *code) result(r int, dt tensor.DType) (operand, error) {
	if c.err != nil {
		return operand{}, c.err
	}
	to := c.l.fresh(dt, c.space)
	c.l.add(c.mapTo(r, to))
	return to, nil
}
