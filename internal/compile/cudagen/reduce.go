package cudagen

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// shape is how threads share a reduction: lanes threads per result, width results per block, and
// splits blocks for the same results. In a row shape the lanes of a result are neighbours. In a
// column shape the results are.
type shape struct {
	row                  bool
	lanes, width, splits int
}

// reduceStep generates the kernel of a Reduce.
func (g *generator) reduceStep(i int, op *program.Reduce) error {
	if op.Red != program.Sum && op.Red != program.Max {
		return fmt.Errorf("unknown reduction %d", op.Red)
	}
	if len(op.Code) == 0 {
		return fmt.Errorf("a reduction of no register")
	}
	n := g.newNest(i, op.Space, op.Reduced)
	lead := n.lead()
	row := n.byRow(lead)
	n.arrange(lead, row)
	n.join(draws(op.Code))
	if n.count(false) == 0 {
		return nil
	}
	b := &body{n: n, code: op.Code, real: g.real(i), index: "s32", width: 1}
	if !n.small() {
		b.index = "s64"
	}
	if row && lead != nil && n.count(true) > 0 {
		b.width = n.width([]access{*lead}, g.most(n.count(true)*n.count(false)))
	}
	b.kept, b.loop = n.group(false, "o", "d"), n.group(true, "e", "c")
	if err := b.emit(); err != nil {
		return err
	}
	s := g.shape(n.count(false), n.count(true)/b.width, row)
	g.reduceKernel(i, op, b, s)
	return nil
}

// lead returns the In that varies most, or nil.
func (n *nest) lead() *access {
	var lead *access
	most := 0
	for j := range n.ins {
		c := 1
		for d, s := range n.ins[j].strides {
			if s != 0 {
				c *= n.dims[d].size
			}
		}
		if c > most {
			lead, most = &n.ins[j], c
		}
	}
	return lead
}

// byRow reports whether neighbours in memory are reduced.
func (n *nest) byRow(lead *access) bool {
	if lead == nil || n.count(false) == 1 {
		return true
	}
	row, least := true, 0
	for d, s := range lead.strides {
		if s = abs(s); s != 0 && (least == 0 || s < least) {
			row, least = n.dims[d].reduced, s
		}
	}
	return row
}

// arrange orders the dims so that neighbouring threads read neighbours, and, where there is a
// choice, write neighbours.
func (n *nest) arrange(lead *access, row bool) {
	n.order(func(d int) int {
		if row && !n.dims[d].reduced || lead == nil {
			return abs(n.outs[0].strides[d])
		}
		return abs(lead.strides[d])
	})
}

// shape returns the shape for kept results of turns turns each.
func (g *generator) shape(kept, turns int, row bool) shape {
	s := shape{row: row, width: 1, splits: 1}
	if row {
		s.lanes = min(32, ceilPower(turns))
		if threads := 256; kept*s.lanes < g.t.SMs*512 && turns > 128 {
			s.lanes = max(64, min(threads, ceilPower(turns/4)))
		}
		if s.lanes <= 32 {
			s.width = min(256/s.lanes, ceilPower(kept))
			if s.width*s.lanes < 32 {
				s.width = 32 / s.lanes
			}
		}
	} else {
		s.width = min(32, ceilPower(kept))
		s.lanes = max(32/s.width, min(1024/s.width, 32, ceilPower((turns+3)/4)))
	}
	blocks := (kept + s.width - 1) / s.width
	if most := turns / (s.lanes * 8); blocks*2 <= g.t.SMs && most > 1 {
		s.splits = min(most, 2*g.t.SMs/blocks)
	}
	return s
}

// ceilPower returns the least power of 2 that is at least n.
func ceilPower(n int) int {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}

// reduceKernel generates the kernel and adds its launch.
func (g *generator) reduceKernel(i int, op *program.Reduce, b *body, s shape) {
	params, args := g.pointers(i, op.Code, b.clock)
	kept := b.n.count(false)
	groups := (kept + s.width - 1) / s.width
	if s.splits > 1 {
		size := int64(4)
		if b.real == "double" {
			size = 8
		}
		params = append(params, b.real+" *part", "u32 *counts")
		args = append(args,
			Arg{Kind: Scratch, Step: i, Offset: g.scratch(i, size*int64(s.splits*kept))},
			Arg{Kind: Scratch, Step: i, Offset: g.scratch(i, 4*int64(groups))})
	}
	threads := s.lanes * s.width
	var t strings.Builder
	fmt.Fprintf(&t, "extern \"C\" __global__ void __launch_bounds__(%d) %s(%s) {\n", threads, nameMark, strings.Join(params, ", "))
	t.WriteString(b.lines[atTop].String())
	t.WriteString(b.reduceText(op.Red, s))
	t.WriteString("}\n")
	g.launch(i, Kernel{
		Name: g.function("reduce", t.String()), Grid: [3]uint32{uint32(groups * s.splits), 1, 1},
		Block: [3]uint32{uint32(threads), 1, 1}, Args: args,
	})
}

// reduceText returns the kernel's code after the top-level statements.
func (b *body) reduceText(red program.Reduction, s shape) string {
	name := reductionName(red)
	kept, turns := b.n.count(false), b.n.count(true)/b.width
	group, split := "blockIdx.x", ""
	if s.splits > 1 {
		group, split = fmt.Sprintf("blockIdx.x / %d", s.splits), fmt.Sprintf("  const int split = blockIdx.x %% %d;\n", s.splits)
	}
	thread, lane := fmt.Sprintf("threadIdx.x / %d", s.lanes), fmt.Sprintf("threadIdx.x %% %d", s.lanes)
	all := fmt.Sprintf("across<%s, %d>", name, s.lanes)
	if !s.row {
		thread, lane = fmt.Sprintf("threadIdx.x %% %d", s.width), fmt.Sprintf("threadIdx.x / %d", s.width)
		all = fmt.Sprintf("down<%s, %d, %d>", name, s.lanes, s.width)
	}
	var t strings.Builder
	fmt.Fprintf(&t, "%s  const %s o = %s(%s) * %d + %s;\n  const int lane = %s;\n", split, b.index, wideCast(b.index), group, s.width, thread, lane)
	t.WriteString(b.sums(name))
	fmt.Fprintf(&t, "  if (o < %d) {\n", kept)
	b.join(name)
	turn := b.turn()
	t.WriteString(b.kept.coordinates(b.index, "    ") + b.lines[atKept].String())
	t.WriteString("#pragma unroll 4\n")
	if s.splits > 1 {
		chunk := (turns + s.splits - 1) / s.splits
		fmt.Fprintf(&t, "    for (%s i = %ssplit * %d + lane; i < min(%s%d, (%ssplit + 1) * %d); i += %d) {\n",
			b.index, wideCast(b.index), chunk, wideCast(b.index), turns, wideCast(b.index), chunk, s.lanes)
	} else {
		fmt.Fprintf(&t, "    for (%s i = lane; i < %d; i += %d) {\n", b.index, turns, s.lanes)
	}
	fmt.Fprintf(&t, "      const %s e = %s;\n%s    }\n  }\n", b.index, times("i", b.width), deeper(turn))
	fmt.Fprintf(&t, "%s  x = %s(x);\n", b.joined(name), all)
	if s.splits > 1 {
		fmt.Fprintf(&t, "  if (lane == 0 && o < %d) part[split * %s(%d) + o] = x;\n", kept, b.index, kept)
		fmt.Fprintf(&t, "  if (!lastOf(counts + %s, %d)) return;\n  x = %s::none<%s>();\n", group, s.splits, name, b.real)
		fmt.Fprintf(&t, "  if (o < %d)\n    for (int i = lane; i < %d; i += %d) x = %s::join(x, part[i * %s(%d) + o]);\n  x = %s(x);\n",
			kept, s.splits, s.lanes, name, b.index, kept, all)
	}
	out := &b.n.outs[0]
	fmt.Fprintf(&t, "  if (lane == 0 && o < %d) {\n", kept)
	to := sum(b.kept.terms(out))
	fmt.Fprintf(&t, "%s    put(b0[%s], x);\n  }\n", b.kept.coordinates(b.index, "    "), to)
	return t.String()
}

// reductionName returns the name of a reduction in the text.
func reductionName(red program.Reduction) string {
	if red == program.Max {
		return "Max"
	}
	return "Sum"
}

// sums returns the statements that declare a thread's part of a reduction, empty at first: one
// number for each of the V neighbours.
func (b *body) sums(name string) string {
	return fmt.Sprintf("  %s sums[%d];\n#pragma unroll\n  for (int k = 0; k < %d; k++) sums[k] = %s::none<%s>();\n", b.real, b.width, b.width, name, b.real)
}

// join adds the last register to a thread's part, in each turn.
func (b *body) join(name string) {
	k := b.neighbour()
	b.add(b.innermost(), "sums[%s] = %s::join(sums[%s], r%d);", k, name, k, len(b.code)-1)
}

// joined returns the statements that reduce a thread's part to x.
func (b *body) joined(name string) string {
	return fmt.Sprintf("  %s x = sums[0];\n#pragma unroll\n  for (int k = 1; k < %d; k++) x = %s::join(x, sums[k]);\n", b.real, b.width, name)
}

func wideCast(index string) string {
	if index == "s64" {
		return "(s64)"
	}
	return ""
}

// deeper indents text by one level. Directives stay.
func deeper(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if l != "" && l[0] != '#' {
			lines[i] = "  " + l
		}
	}
	return strings.Join(lines, "\n")
}
