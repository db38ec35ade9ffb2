package program

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/symgrad/symgrad/tensor"
)

// String returns a listing with one line a step: number, stream, operation, name, inputs and
// outputs with shape, place and bytes, and the steps of After. A view that is not its whole value
// in C order has [offset: strides].
func (p *Program) String() string {
	var b strings.Builder
	name := p.Name
	if name == "" {
		name = "program"
	}
	constant, outside := p.bytesAt(Constant), p.bytesAt(Outside)
	fmt.Fprintf(&b, "%s: %d steps, %d values; bytes: arena %d, outside %d, constant %d\n", name, len(p.Steps), len(p.Values), p.Arena, outside, constant)
	for i := range p.Steps {
		fmt.Fprintf(&b, "%4d %s\n", i, p.StepString(i))
	}
	return b.String()
}

// bytesAt returns the bytes of all values of a place that some step uses.
func (p *Program) bytesAt(place Place) int64 {
	used := make([]bool, len(p.Values))
	mark := func(v View) {
		if p.has(v.Value) {
			used[v.Value] = true
		}
	}
	for i := range p.Steps {
		for _, v := range p.Steps[i].In {
			mark(v)
		}
		for _, v := range p.Steps[i].Out {
			mark(v)
		}
	}
	var n int64
	for i := range p.Values {
		if used[i] && p.Values[i].Place == place {
			n += p.Values[i].Bytes()
		}
	}
	return n
}

// StepString returns the line of step number i, without the number.
func (p *Program) StepString(i int) string {
	s := &p.Steps[i]
	var b strings.Builder
	fmt.Fprintf(&b, "%-7s ", s.Stream)
	if s.Op == nil {
		b.WriteString("no operation")
	} else {
		b.WriteString(s.Op.String())
	}
	if s.Name != "" {
		fmt.Fprintf(&b, " %q", s.Name)
	}
	in, out, err := p.Operands(s)
	if err != nil || s.Op == nil {
		in, out = make([]Operand, len(s.In)), make([]Operand, len(s.Out))
	}
	b.WriteString(" | ")
	for k, v := range s.In {
		comma(&b, k)
		b.WriteString(p.viewString(v, in[k].Space))
	}
	b.WriteString(" -> ")
	for k, v := range s.Out {
		comma(&b, k)
		b.WriteString(p.viewString(v, out[k].Space))
	}
	if len(s.After) > 0 {
		fmt.Fprintf(&b, " | after %s", joined(s.After, ", "))
	}
	return b.String()
}

func comma(b *strings.Builder, k int) {
	if k > 0 {
		b.WriteString(", ")
	}
}

// viewString formats a view: number and name of the value, dtype, shape, place and bytes.
func (p *Program) viewString(v View, space []int) string {
	if !p.has(v.Value) {
		return fmt.Sprintf("%%%d (no such value)", v.Value)
	}
	val := &p.Values[v.Value]
	var b strings.Builder
	fmt.Fprintf(&b, "%%%d ", v.Value)
	if val.Name != "" {
		b.WriteString(val.Name + " ")
	}
	fmt.Fprintf(&b, "%s%s", val.DType, shapeString(val.Shape))
	if !v.isWhole(space, val.Len()) {
		fmt.Fprintf(&b, "[%d: %s]", v.Offset, joined(v.Strides, " "))
	}
	switch val.Place {
	case Arena:
		fmt.Fprintf(&b, " @%d %dB", val.Offset, val.Bytes())
	case Outside:
		fmt.Fprintf(&b, " outside %dB", val.Bytes())
	case Constant:
		if x, ok := val.scalar(); ok {
			fmt.Fprintf(&b, " const %s", strconv.FormatFloat(x, 'g', 7, 64))
		} else {
			fmt.Fprintf(&b, " const %dB", val.Bytes())
		}
	}
	return b.String()
}

// isWhole reports whether a view visits all of a value of n elements in C order.
func (v *View) isWhole(space []int, n int) bool {
	return v.Offset == 0 && len(v.Strides) == len(space) && lenOf(space) == n && tensor.Packed(space, v.Strides)
}

// has reports whether id is a value of the program.
func (p *Program) has(id ID) bool { return id >= 0 && int(id) < len(p.Values) }

// scalar returns the element of a Constant that has one.
func (v *Value) scalar() (float64, bool) {
	if v.Place != Constant || v.Len() != 1 || len(v.Data) != v.DType.Size() {
		return 0, false
	}
	return Element(v.DType, v.Data, 0), true
}

func shapeString(shape []int) string { return "(" + joined(shape, ", ") + ")" }

func joined(ints []int, sep string) string {
	var b strings.Builder
	for i, n := range ints {
		if i > 0 {
			b.WriteString(sep)
		}
		b.WriteString(strconv.Itoa(n))
	}
	return b.String()
}

// String returns the lower-case name.
func (r Role) String() string { return nameOf(roles[:], int(r), "role") }

// String returns the lower-case name.
func (p Place) String() string { return nameOf(places[:], int(p), "place") }

// String returns the lower-case name.
func (s Stream) String() string { return nameOf(streams[:], int(s), "stream") }

// String returns the lower-case name.
func (s Scalar) String() string { return nameOf(scalars[:], int(s), "scalar") }

// String returns the lower-case name.
func (r Reduction) String() string { return nameOf(reductions[:], int(r), "reduction") }

var (
	roles      = [...]string{"temp", "input", "param", "gradient", "state", "output"}
	places     = [...]string{"arena", "outside", "constant"}
	streams    = [...]string{"compute", "comm", "side"}
	reductions = [...]string{"sum", "max"}
	scalars    = [...]string{
		"load", "const", "rand", "neg", "abs", "sign", "ceil", "floor", "sin", "cos", "exp", "log", "log2", "log1p", "expm1",
		"square", "cube", "sqrt", "rsqrt", "inverse", "tanh", "sigmoid", "softplus", "erf", "to bf16", "to f16",
		"add", "sub", "mul", "product", "div", "pow",
		"maximum", "minimum", "less", "lessequal", "greater", "greaterequal", "equal", "notequal", "select",
	}
)

func nameOf(names []string, i int, kind string) string {
	if i < len(names) {
		return names[i]
	}
	return kind + "(" + strconv.Itoa(i) + ")"
}
