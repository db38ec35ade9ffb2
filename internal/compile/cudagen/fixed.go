package cudagen

import (
	"fmt"
	"strings"
)

// constant is a number or type in a kernel's template.
type constant struct {
	name  string
	value any // int, bool, float64, or a type as a string
}

// template is a kernel that is a function of the kernels folder with constants.
type template struct {
	kind     string // of the function's name in the text
	call     string // the function template
	consts   []constant
	grid     int
	threads  int
	shared   int      // bytes of dynamic shared memory of a block
	resident int      // if not 0, blocks per multiprocessor for which the compiler saves registers
	params   []string // with types
	args     []Arg
	wide     bool // whether sizes need 64 bits
}

// fixedLaunch adds the kernel of t to the text and its launch to step i.
func (g *generator) fixedLaunch(i int, t *template) {
	var b strings.Builder
	fmt.Fprintf(&b, "struct %sShape {\n  typedef %s A;\n", nameMark, g.real(i))
	index := "s32"
	if t.wide {
		index = "s64"
	}
	fmt.Fprintf(&b, "  typedef %s I;\n  static constexpr int Threads = %d;\n", index, t.threads)
	for _, c := range t.consts {
		switch v := c.value.(type) {
		case string:
			fmt.Fprintf(&b, "  typedef %s %s;\n", v, c.name)
		case bool:
			fmt.Fprintf(&b, "  static constexpr bool %s = %t;\n", c.name, v)
		case float64:
			fmt.Fprintf(&b, "  static constexpr double %s = %s;\n", c.name, literal(v, true))
		case int:
			kind := "int"
			if v >= 1<<31 {
				kind = "s64"
			}
			fmt.Fprintf(&b, "  static constexpr %s %s = %d;\n", kind, c.name, v)
		}
	}
	names := make([]string, len(t.params))
	for j, p := range t.params {
		names[j] = p[strings.LastIndexAny(p, " *")+1:]
	}
	bounds := fmt.Sprint(t.threads)
	if t.resident > 0 {
		bounds += fmt.Sprintf(", %d", t.resident)
	}
	fmt.Fprintf(&b, "};\nextern \"C\" __global__ void __launch_bounds__(%s) %s(%s) {\n  %s<%sShape>(%s);\n}\n",
		bounds, nameMark, strings.Join(t.params, ", "), t.call, nameMark, strings.Join(names, ", "))
	g.launch(i, Kernel{
		Name: g.function(t.kind, b.String()), Grid: [3]uint32{uint32(t.grid), 1, 1}, Block: [3]uint32{uint32(t.threads), 1, 1},
		Shared: uint32(t.shared), Args: t.args,
	})
}

// read adds Ins of step i to the parameters.
func (t *template) read(g *generator, i int, ins ...int) {
	for _, j := range ins {
		t.params = append(t.params, g.readOnly(i, j))
		t.args = append(t.args, g.in(i, j))
	}
}

// write adds Outs of step i to the parameters.
func (t *template) write(g *generator, i int, outs ...int) {
	for _, j := range outs {
		t.params = append(t.params, fmt.Sprintf("%s *b%d", ctype(g.value(g.p.Steps[i].Out[j]).DType), j))
		t.args = append(t.args, g.out(i, j))
	}
}

// split adds scratch memory for work that several blocks share: numbers of the type of arithmetic,
// and counters.
func (t *template) split(g *generator, i, numbers, counters int) {
	size := int64(4)
	if g.wide(i) {
		size = 8
	}
	t.params = append(t.params, g.real(i)+" *part", "u32 *counts")
	t.args = append(t.args,
		Arg{Kind: Scratch, Step: i, Offset: g.scratch(i, size*int64(max(1, numbers)))},
		Arg{Kind: Scratch, Step: i, Offset: g.scratch(i, 4*int64(max(1, counters)))})
}

// fault adds the fault words and the step's number to the parameters.
func (t *template) fault(i int) {
	t.params = append(t.params, "u64 *words", "u64 step")
	t.args = append(t.args, Arg{Kind: Fault, Step: i}, Arg{Kind: Number, Step: i, Offset: int64(i)})
}

// wideIndex reports whether an index below one of n needs 64 bits.
func wideIndex(n ...int) bool {
	for _, x := range n {
		if x >= 1<<30 {
			return true
		}
	}
	return false
}

// ceilDiv returns a / b, rounded up.
func ceilDiv(a, b int) int { return (a + b - 1) / b }
