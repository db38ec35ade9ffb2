package program

import (
	"errors"
	"fmt"
	"strings"
)

// ErrInvalid is returned by Validate, Plan, Pack and Optimize when a program breaks the rules of
// this package.
var ErrInvalid = errors.New("invalid program")

// Validate checks all rules of this package. It is cheap, and each program is checked before it is
// loaded. Errors: ErrInvalid with all findings, each with step, operand and value.
func Validate(p *Program) error {
	c := &checker{p: p}
	c.values()
	c.shapes()
	if len(c.found) == 0 {
		c.steps()
		c.hazards()
		c.placement()
	}
	return c.err()
}

// check verifies the assumptions of the passes: operands are complete, and views are inside values.
func check(p *Program) error {
	c := &checker{p: p}
	c.values()
	c.shapes()
	return c.err()
}

// maxFindings is the most findings in an error; the first ones usually explain the rest.
const maxFindings = 20

type checker struct {
	p     *Program
	found []string
	more  int
}

func (c *checker) err() error {
	if len(c.found) == 0 {
		return nil
	}
	name := c.p.Name
	if name == "" {
		name = "program"
	}
	text := strings.Join(c.found, "\n")
	if c.more > 0 {
		text += fmt.Sprintf("\nand %d more", c.more)
	}
	return fmt.Errorf("%w: %s: %s", ErrInvalid, name, text)
}

func (c *checker) add(format string, args ...any) {
	if len(c.found) == maxFindings {
		c.more++
		return
	}
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

// step describes step i.
func (c *checker) step(i int) string {
	s := &c.p.Steps[i]
	op := "no operation"
	if s.Op != nil {
		op = s.Op.String()
	}
	if s.Name == "" {
		return fmt.Sprintf("step %d (%s)", i, op)
	}
	return fmt.Sprintf("step %d %q (%s)", i, s.Name, op)
}

// value describes a value.
func (c *checker) value(id ID) string {
	if !c.p.has(id) {
		return fmt.Sprintf("value %d", id)
	}
	v := &c.p.Values[id]
	return fmt.Sprintf("value %d %q %s%s", id, v.Name, v.DType, shapeString(v.Shape))
}

// values checks each value by itself.
func (c *checker) values() {
	for i := range c.p.Values {
		id, v := ID(i), &c.p.Values[i]
		if !v.DType.Valid() {
			c.add("%s has no dtype", c.value(id))
		}
		for _, d := range v.Shape {
			if d < 0 {
				c.add("%s has a negative dimension", c.value(id))
			}
		}
		switch {
		case v.Place > Constant:
			c.add("%s has an unknown place: %d", c.value(id), v.Place)
		case v.Place == Constant && int64(len(v.Data)) != v.Bytes():
			c.add("%s is a constant of %d bytes, but has data of %d", c.value(id), v.Bytes(), len(v.Data))
		case v.Place == Constant && v.Role != Temp:
			c.add("%s is a constant and has role %s; constants are temp", c.value(id), v.Role)
		case v.Place != Constant && v.Data != nil:
			c.add("%s has data but is not a constant", c.value(id))
		case v.Role > Output:
			c.add("%s has an unknown role: %d", c.value(id), v.Role)
		}
	}
	if id := c.p.Clock; id != None {
		// The zero ID of a Program without a clock is valid if no step needs it; rand checks the
		// clock itself.
		if !c.p.has(id) && len(c.p.Values) > 0 {
			c.add("the clock is value %d of %d", id, len(c.p.Values))
		}
	}
}

// shapes checks that each step has the operands of its operation, as views inside their values.
func (c *checker) shapes() {
	for i := range c.p.Steps {
		s := &c.p.Steps[i]
		if s.Op == nil {
			c.add("%s has no Op", c.step(i))
			continue
		}
		c.sizes(i)
		if c.strangers(i) {
			continue
		}
		in, out, err := c.p.Operands(s)
		if err != nil {
			c.add("%s: %v", c.step(i), err)
			continue
		}
		for k := range in {
			c.inside(i, operandName("in", k), &s.In[k], in[k])
		}
		for k := range out {
			c.inside(i, operandName("out", k), &s.Out[k], out[k])
		}
	}
}

// strangers reports whether step i has views of unknown values.
func (c *checker) strangers(i int) bool {
	s := &c.p.Steps[i]
	strange := false
	for k, v := range s.In {
		if !c.p.has(v.Value) {
			c.add("%s: in %d is value %d of %d", c.step(i), k, v.Value, len(c.p.Values))
			strange = true
		}
	}
	for k, v := range s.Out {
		if !c.p.has(v.Value) {
			c.add("%s: out %d is value %d of %d", c.step(i), k, v.Value, len(c.p.Values))
			strange = true
		}
	}
	return strange
}

func operandName(kind string, k int) string { return fmt.Sprintf("%s %d", kind, k) }

func (c *checker) inside(i int, name string, v *View, o Operand) {
	val := &c.p.Values[v.Value]
	if len(v.Strides) != len(o.Space) {
		c.add("%s: %s, %s, has %d strides over space %s", c.step(i), name, c.value(v.Value), len(v.Strides), shapeString(o.Space))
		return
	}
	for _, d := range o.Space {
		if d < 0 {
			c.add("%s: %s, %s, has a negative dimension in space %s", c.step(i), name, c.value(v.Value), shapeString(o.Space))
			return
		}
	}
	if lo, hi := v.bounds(o.Space); hi >= lo && (lo < 0 || hi >= val.Len()) {
		c.add("%s: %s, %s, touches elements %d to %d of %d", c.step(i), name, c.value(v.Value), lo, hi, val.Len())
	}
}
