package draft

import (
	"slices"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// Code builds a Map or a Reduce.
type Code struct {
	b      *Builder
	Space  []int
	In     []program.View
	Instrs []program.Instr
	Err    error
}

// Load returns the register with the elements of o, which fits the space.
func (c *Code) Load(o Operand) int {
	if o.IsNum {
		return c.Constant(o.Num)
	}
	v, err := c.b.Over(o, c.Space)
	if err != nil {
		c.Err = err
		return 0
	}
	for i, in := range c.In {
		if in.Value == v.Value && in.Offset == v.Offset && slices.Equal(in.Strides, v.Strides) {
			return c.Do(program.Load, i)
		}
	}
	c.In = append(c.In, v)
	return c.Do(program.Load, len(c.In)-1)
}

// Constant returns the register of a number.
func (c *Code) Constant(v float64) int {
	return c.Put(program.Instr{Op: program.Const, Value: v})
}

// Do returns the register of op applied to registers.
func (c *Code) Do(op program.Scalar, args ...int) int {
	i := program.Instr{Op: op}
	for k, to := range []*int{&i.A, &i.B, &i.C}[:len(args)] {
		*to = args[k]
	}
	return c.Put(i)
}

// Put adds an instruction, or finds an equal one.
func (c *Code) Put(i program.Instr) int {
	if k := slices.Index(c.Instrs, i); k >= 0 {
		return k
	}
	c.Instrs = append(c.Instrs, i)
	return len(c.Instrs) - 1
}

// MapTo returns a Map of the code that stores register r in to.
func (c *Code) MapTo(r int, to Operand) program.Step {
	return program.Step{
		Op: &program.Map{Space: c.Space, Code: c.Instrs, Stores: []int{r}},
		In: c.In, Out: []program.View{to.View},
	}
}

// Result adds a Map of the code, and returns the value of register r.
func (c *Code) Result(r int, dt tensor.DType) (Operand, error) {
	if c.Err != nil {
		return Operand{}, c.Err
	}
	to := c.b.Fresh(dt, c.Space)
	c.b.Add(c.MapTo(r, to))
	return to, nil
}

// ReduceTo adds a Reduce of the code's last register to a whole value, which lacks the reduced
// axes.
func (c *Code) ReduceTo(reduced []bool, red program.Reduction, to Operand) (Operand, error) {
	if c.Err != nil {
		return Operand{}, c.Err
	}
	c.b.Add(program.Step{
		Op: &program.Reduce{Space: c.Space, Reduced: reduced, Red: red, Code: c.Instrs},
		In: c.In, Out: []program.View{ReducedView(to, reduced)},
	})
	return to, nil
}

// ReducedView returns a whole value, which lacks the reduced axes, as a view over the space of a
// reduction.
func ReducedView(to Operand, reduced []bool) program.View {
	out := program.View{Value: to.View.Value, Strides: make([]int, len(reduced))}
	k := 0
	for a := range reduced {
		if !reduced[a] {
			out.Strides[a] = to.View.Strides[k]
			k++
		}
	}
	return out
}

// SumTo adds a step that sums the last register of the code, over the whole space, into element at
// of a vector.
func (c *Code) SumTo(to Operand, at int) error {
	if c.Err != nil {
		return c.Err
	}
	c.b.Add(program.Step{
		Op: &program.Reduce{Space: c.Space, Reduced: []bool{true}, Red: program.Sum, Code: c.Instrs},
		In: c.In, Out: []program.View{{Value: to.View.Value, Offset: at, Strides: []int{0}}},
	})
	return nil
}

// SumAlong adds a step that sums register r over some axes of the space into an operand over the
// other axes.
func (c *Code) SumAlong(to Operand, r int, reduced ...bool) error {
	if c.Err != nil {
		return c.Err
	}
	if r != len(c.Instrs)-1 { // the last register is reduced
		none := c.Constant(0)
		c.Instrs = append(c.Instrs, program.Instr{Op: program.Add, A: r, B: none})
	}
	strides := make([]int, len(reduced))
	for a, k := 0, 0; a < len(reduced); a++ {
		if !reduced[a] {
			strides[a] = to.View.Strides[k]
			k++
		}
	}
	c.b.Add(program.Step{
		Op:  &program.Reduce{Space: slices.Clone(c.Space), Reduced: reduced, Code: c.Instrs},
		In:  c.In,
		Out: []program.View{{Value: to.View.Value, Offset: to.View.Offset, Strides: strides}},
	})
	return nil
}

// Store adds a Map that stores registers in operands of its space.
func (c *Code) Store(to []Operand, r ...int) error {
	if c.Err != nil {
		return c.Err
	}
	s := program.Step{Op: &program.Map{Space: c.Space, Code: c.Instrs, Stores: r}, In: c.In}
	for _, o := range to {
		s.Out = append(s.Out, o.View)
	}
	c.b.Add(s)
	return nil
}
