package machine

import (
	"slices"

	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/tensor"
)

// code builds a Map or Reduce.
type code struct {
	b     *builder
	space []int
	in    []program.View
	code  []program.Instr
	err   error
}

func (b *builder) newCode(space []int) *code { return &code{b: b, space: slices.Clone(space)} }

// load returns the register with the elements of o, which fits the space.
func (c *code) load(o operand) int {
	if o.isNum {
		return c.constant(o.num)
	}
	v, err := c.b.over(o, c.space)
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

// result adds a Map of the code, and returns the value of register r.
func (c *code) result(r int, dt tensor.DType) (operand, error) {
	if c.err != nil {
		return operand{}, c.err
	}
	to := c.b.fresh(dt, c.space)
	c.b.add(c.mapTo(r, to))
	return to, nil
}

// reduceTo adds a Reduce of the code's last register to a whole value, which lacks the reduced
// axes.
func (c *code) reduceTo(reduced []bool, red program.Reduction, to operand) (operand, error) {
	if c.err != nil {
		return operand{}, c.err
	}
	c.b.add(program.Step{
		Op: &program.Reduce{Space: c.space, Reduced: reduced, Red: red, Code: c.code},
		In: c.in, Out: []program.View{reducedView(to, reduced)},
	})
	return to, nil
}

// reducedView returns a whole value, which lacks the reduced axes, as a view over the space of a
// reduction.
func reducedView(to operand, reduced []bool) program.View {
	out := program.View{Value: to.view.Value, Strides: make([]int, len(reduced))}
	k := 0
	for a := range reduced {
		if !reduced[a] {
			out.Strides[a] = to.view.Strides[k]
			k++
		}
	}
	return out
}

// zero sets element at of a vector to 0: the sum of an empty piece.
func (b *builder) zero(to operand, at int) {
	m := b.newCode(nil)
	b.add(m.mapTo(m.constant(0), operand{view: program.View{Value: to.view.Value, Offset: at}}))
}

// sumTo adds a step that sums the last register of the code, over the whole space, into element at
// of a vector.
func (c *code) sumTo(to operand, at int) error {
	if c.err != nil {
		return c.err
	}
	c.b.add(program.Step{
		Op: &program.Reduce{Space: c.space, Reduced: []bool{true}, Red: program.Sum, Code: c.code},
		In: c.in, Out: []program.View{{Value: to.view.Value, Offset: at, Strides: []int{0}}},
	})
	return nil
}

// sumAlong adds a step that sums register r over some axes of the space into an operand over the
// other axes.
func (c *code) sumAlong(to operand, r int, reduced ...bool) error {
	if c.err != nil {
		return c.err
	}
	if r != len(c.code)-1 { // the last register is reduced
		none := c.constant(0)
		c.code = append(c.code, program.Instr{Op: program.Add, A: r, B: none})
	}
	strides := make([]int, len(reduced))
	for a, k := 0, 0; a < len(reduced); a++ {
		if !reduced[a] {
			strides[a] = to.view.Strides[k]
			k++
		}
	}
	c.b.add(program.Step{
		Op:  &program.Reduce{Space: slices.Clone(c.space), Reduced: reduced, Code: c.code},
		In:  c.in,
		Out: []program.View{{Value: to.view.Value, Offset: to.view.Offset, Strides: strides}},
	})
	return nil
}

// store adds a Map that stores registers in operands of its space.
func (c *code) store(to []operand, r ...int) error {
	if c.err != nil {
		return c.err
	}
	s := program.Step{Op: &program.Map{Space: c.space, Code: c.code, Stores: r}, In: c.in}
	for _, o := range to {
		s.Out = append(s.Out, o.view)
	}
	c.b.add(s)
	return nil
}
