package cudagen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// chainText builds the kernel of a chain. A thread has turns times width elements of its row,
// lanes*width apart.
type chainText struct {
	g *generator
	c *chain

	params []string
	args   []Arg
	number map[address]int // of the parameter for an address
	clock  bool

	kept strings.Builder // declarations of registers
	text strings.Builder
}

// alongRows generates the kernel of a chain.
func (g *generator) alongRows(c *chain) error {
	g.settle(c)
	threads := rowThreads(c.lanes)
	w := &chainText{g: g, c: c, number: map[address]int{}}
	for k := range c.phases {
		if k > 0 {
			fmt.Fprintf(&w.text, "  meet<%d>();\n", c.lanes)
		}
		if err := w.phase(&c.phases[k]); err != nil {
			return fmt.Errorf("step %d (%s): %w", c.phases[k].step, g.p.Steps[c.phases[k].step].Name, err)
		}
	}
	index := "s32"
	if slices.ContainsFunc(c.phases, func(ph phase) bool { return !ph.n.small() }) {
		index = "s64"
	}
	text := fmt.Sprintf("extern \"C\" __global__ void __launch_bounds__(%d) %s(%s) {\n", threads, nameMark, strings.Join(w.params, ", ")) +
		fmt.Sprintf("  const %s o = %sblockIdx.x * %d + threadIdx.x / %d;\n", index, wideCast(index), threads/c.lanes, c.lanes) +
		fmt.Sprintf("  const int lane = threadIdx.x %% %d;\n", c.lanes) + w.kept.String() + w.text.String() + "}\n"
	g.launch(c.phases[0].step, Kernel{
		Name: g.function("along", text), Grid: [3]uint32{uint32(ceilDiv(c.rows, threads/c.lanes)), 1, 1},
		Block: [3]uint32{uint32(threads), 1, 1}, Args: w.args,
	})
	return nil
}

// phase writes the code of one step.
func (w *chainText) phase(ph *phase) error {
	b := w.body(ph, ph.code)
	if err := b.emit(); err != nil {
		return err
	}
	w.begin(ph, b)
	switch op := ph.op.(type) {
	case *program.Map:
		for j, r := range op.Stores {
			if r < 0 || r >= len(op.Code) {
				return fmt.Errorf("out %d is register %d of %d", j, r, len(op.Code))
			}
			w.store(b, ph, j, func(to string) string { return b.set(to, j, r) })
		}
		w.rows(b)
	case *program.Reduce:
		w.reduce(b, ph, reductionName(op.Red))
	case *program.Softmax:
		w.softmax(b, ph, fmt.Sprintf("softmaxOf<%d, %t>", w.c.lanes, op.Log), fmt.Sprintf("Max::none<%s>()", b.real), "x")
	case *program.SoftmaxGrad:
		w.softmax(b, ph, fmt.Sprintf("softmaxGradOf<%d, %t>", w.c.lanes, op.Log), "0", "y", "x")
	}
	w.text.WriteString("  }\n")
	return nil
}

// body returns the body of a phase, with some code.
func (w *chainText) body(ph *phase, code []program.Instr) *body {
	b := &body{n: ph.n, code: code, real: w.g.real(ph.step), index: "s32", width: 1, from: map[int]string{}}
	if !ph.n.small() {
		b.index = "s64"
	}
	if ph.n.count(true) > 1 {
		b.width = w.c.width
	}
	for j, r := range ph.from {
		if r != nil {
			b.from[j] = r.name
		}
	}
	b.kept, b.loop = ph.n.group(false, "o", "d"), ph.n.group(true, "e", "c")
	return b
}

// begin opens the block of a phase and writes its pointers, under the names that b uses, and its
// top-level code.
func (w *chainText) begin(ph *phase, b *body) {
	fmt.Fprintf(&w.text, "  { // %s\n", ph.op)
	s := &w.g.p.Steps[ph.step]
	for j, v := range s.In {
		if b.from[j] == "" && loads(b.code, j) {
			fmt.Fprintf(&w.text, "  const %s *a%d = %s;\n", ctype(w.g.value(v).DType), j, w.parameter(w.g.in(ph.step, j)))
		}
	}
	for j, v := range s.Out {
		dt := ctype(w.g.value(v).DType)
		if !ph.to[j].dead {
			fmt.Fprintf(&w.text, "  %s *b%d = %s;\n", dt, j, w.parameter(w.g.out(ph.step, j)))
		}
		switch name := ph.to[j].name; {
		case name == "":
		case isReduce(ph.op), ph.n.count(true) == 1:
			fmt.Fprintf(&w.kept, "  %s %s;\n", dt, name)
		default:
			fmt.Fprintf(&w.kept, "  Vec<%s, %d> %s[%d];\n", dt, b.width, name, w.turns(b))
		}
	}
	if b.clock && !w.clock {
		w.g.use(randPart)
		w.clock = true
		w.params = append(w.params, "const u64 *clock")
		w.args = append(w.args, Arg{Kind: Clock, Step: ph.step})
	}
	w.text.WriteString(b.lines[atTop].String())
}

// turns returns the number of turns of a thread for a row.
func (w *chainText) turns(b *body) int { return ceilDiv(w.c.axis, w.c.lanes*b.width) }

// element returns a thread's element of turn t in an array of all its elements.
func (b *body) element(array string) string {
	return fmt.Sprintf("%s[%s + %s]", array, times("t", b.width), b.neighbour())
}

// store writes Out j of a phase to registers, memory or both. set returns the assignment.
func (w *chainText) store(b *body, ph *phase, j int, set func(to string) string) {
	a, to := &ph.n.outs[j], ph.to[j]
	if ph.n.count(true) == 1 {
		if to.name != "" {
			fmt.Fprintf(&b.after, "    %s\n", set(to.name))
		}
		if !to.dead {
			fmt.Fprintf(&b.after, "    if (lane == 0) %s\n", set(fmt.Sprintf("b%d[%s]", j, b.offset(a))))
		}
		return
	}
	b.add(atLoop, "Vec<%s, %d> w%d;", ctype(a.dtype), b.width, j)
	b.add(b.innermost(), "%s", set(fmt.Sprintf("w%d.x[%s]", j, b.neighbour())))
	if to.name != "" {
		fmt.Fprintf(&b.after, "    %s[t] = w%d;\n", to.name, j)
	}
	if !to.dead && b.width == 1 {
		fmt.Fprintf(&b.after, "    b%d[%s] = w%d.x[0];\n", j, b.offset(a), j)
	} else if !to.dead {
		fmt.Fprintf(&b.after, "    store<%d>(b%d + %s, w%d);\n", b.width, j, b.offset(a), j)
	}
}

// rows writes the code of a thread for its row: all turns, or a single one if the row has one
// value.
func (w *chainText) rows(b *body) {
	turn := b.turn()
	fmt.Fprintf(&w.text, "  if (o < %d) {\n%s%s", w.c.rows, b.kept.coordinates(b.index, "    "), b.lines[atKept].String())
	if b.n.count(true) == 1 {
		w.text.WriteString(turn + "  }\n")
		return
	}
	fmt.Fprintf(&w.text, "#pragma unroll\n    for (int t = 0; t < %d; t++) {\n      const int i = t * %d + lane;\n", w.turns(b), w.c.lanes)
	if turns := w.c.axis / b.width; turns%w.c.lanes != 0 {
		fmt.Fprintf(&w.text, "      if (i >= %d) break;\n", turns)
	}
	fmt.Fprintf(&w.text, "      const %s e = %s;\n%s    }\n  }\n", b.index, times("i", b.width), deeper(turn))
}

// reduce writes the reduction of a row, which all of its lanes receive.
func (w *chainText) reduce(b *body, ph *phase, name string) {
	w.text.WriteString(b.sums(name))
	b.join(name)
	w.rows(b)
	w.text.WriteString(b.joined(name) + fmt.Sprintf("  x = across<%s, %d>(x);\n", name, w.c.lanes))
	if to := ph.to[0].name; to != "" {
		fmt.Fprintf(&w.text, "  put(%s, x);\n", to)
	}
	if !ph.to[0].dead {
		to := sum(b.kept.terms(&ph.n.outs[0]))
		fmt.Fprintf(&w.text, "  if (lane == 0 && o < %d) {\n%s    put(b0[%s], x);\n  }\n", w.c.rows, b.kept.coordinates(b.index, "    "), to)
	}
}

// softmax writes a call of function on a thread's part of a row: an array for each In, padded with
// none. The last array receives the result.
func (w *chainText) softmax(b *body, ph *phase, function, none string, arrays ...string) {
	w.g.use(rowsPart)
	n := w.turns(b) * b.width
	for j, x := range arrays {
		fmt.Fprintf(&w.text, "  %s %s[%d];\n#pragma unroll\n  for (int k = 0; k < %d; k++) %s[k] = %s;\n", b.real, x, n, n, x, none)
		b.add(b.innermost(), "%s = r%d;", b.element(x), j)
	}
	w.rows(b)
	fmt.Fprintf(&w.text, "  %s(%s);\n", function, strings.Join(arrays, ", "))
	b = w.body(ph, nil)
	w.store(b, ph, 0, func(to string) string { return fmt.Sprintf("put(%s, %s);", to, b.element("x")) })
	w.rows(b)
}

// parameter returns the name of the parameter for a, and adds it if needed.
func (w *chainText) parameter(a Arg) string {
	v := w.g.view(a)
	at, ok := w.number[w.g.addressOf(v)]
	if !ok {
		at = len(w.args)
		w.number[w.g.addressOf(v)] = at
		kind := "%s *p%d"
		if !w.written(a) {
			kind = "const %s *__restrict__ p%d"
		}
		w.params = append(w.params, fmt.Sprintf(kind, ctype(w.g.value(v).DType), at))
		w.args = append(w.args, a)
	}
	return fmt.Sprintf("p%d", at)
}

// written reports whether a phase of the chain writes the value of a, or memory that it shares.
func (w *chainText) written(a Arg) bool {
	return slices.ContainsFunc(w.c.phases, func(ph phase) bool {
		return slices.ContainsFunc(w.g.p.Steps[ph.step].Out, func(o program.View) bool { return w.g.sameMemory(w.g.view(a), o) })
	})
}
