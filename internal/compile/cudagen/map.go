package cudagen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// mapThreads is the threads per block of a Map.
const mapThreads = 256

// flat is a Map as a loop over elements with one counter.
type flat struct {
	body
	params []string // with types
	args   []Arg
	count  int // turns of the loop, over all threads
}

// mapStep generates the kernel of a Map.
func (g *generator) mapStep(i int, op *program.Map) error {
	if done, err := g.tiled(i, op); done || err != nil {
		return err
	}
	f, err := g.flat(i, op)
	if err != nil || f.count == 0 {
		return err
	}
	blocks := g.blocks(f.count, mapThreads)
	var b strings.Builder
	fmt.Fprintf(&b, "extern \"C\" __global__ void __launch_bounds__(%d) %s(%s) {\n", mapThreads, nameMark, strings.Join(f.params, ", "))
	b.WriteString(f.lines[atTop].String())
	first := fmt.Sprintf("%s i = blockIdx.x * %d + threadIdx.x", f.index, mapThreads)
	if f.index == "s64" {
		first = fmt.Sprintf("s64 i = (s64)blockIdx.x * %d + threadIdx.x", mapThreads)
	}
	if blocks*mapThreads >= f.count {
		fmt.Fprintf(&b, "  const %s;\n  if (i < %d) {\n", first, f.count)
	} else {
		fmt.Fprintf(&b, "  for (%s; i < %d; i += %d) {\n", first, f.count, blocks*mapThreads)
	}
	b.WriteString(f.inside() + "  }\n}\n")
	g.launch(i, Kernel{
		Name: g.function("map", b.String()), Grid: [3]uint32{uint32(blocks), 1, 1}, Block: [3]uint32{mapThreads, 1, 1}, Args: f.args,
	})
	return nil
}

// inside returns the body of the loop over i.
func (f *flat) inside() string {
	return fmt.Sprintf("    const %s e = %s;\n%s", f.index, times("i", f.width), f.turn())
}

// mostTurns is the number of turns of a thread, if blocks with so few turns fill the device. A
// block occupies its multiprocessor until it ends, even if a kernel of higher priority waits, such
// as a collective.
const mostTurns = 4

// blocks returns the grid for count turns: as many blocks as the device holds at once, and more if
// threads would take many turns, unless blocks are to stay.
func (g *generator) blocks(count, threads int) int {
	once, resident := ceilDiv(count, threads), g.t.SMs*max(1, g.t.MaxThreads/threads)
	blocks := max(1, min(once, resident))
	if g.t.Stay {
		return blocks
	}
	return max(blocks, ceilDiv(once, mostTurns))
}

// flat generates the code of a Map.
func (g *generator) flat(i int, op *program.Map) (*flat, error) {
	if len(op.Stores) != len(g.p.Steps[i].Out) {
		return nil, fmt.Errorf("%d stores for %d Outs", len(op.Stores), len(g.p.Steps[i].Out))
	}
	n := g.newNest(i, op.Space, nil)
	if n.count(false) == 0 || len(n.outs) == 0 {
		return &flat{}, nil
	}
	n.order(func(d int) int { return abs(n.outs[0].strides[d]) })
	n.join(draws(op.Code))
	f := &flat{body: body{n: n, code: op.Code, real: g.real(i), index: "s32"}}
	if !n.small() {
		f.index = "s64"
	}
	f.width = n.width(n.outs, g.most(n.count(false)))
	f.count = n.count(false) / f.width
	f.loop = n.group(false, "e", "c")
	if err := f.emit(); err != nil {
		return nil, err
	}
	if err := f.storeAll(op); err != nil {
		return nil, err
	}
	if r, ok := f.keeper(g, i, op); ok {
		f.add(atTop, "if (r%d != 0) return;", r)
	}
	f.params, f.args = g.pointers(i, op.Code, f.clock)
	return f, nil
}

// most returns the largest number of elements per thread. With few elements more threads matter
// more than wide accesses.
func (g *generator) most(count int) int { return max(1, min(8, count/(g.t.SMs*128))) }

// draws reports whether code has random numbers.
func draws(code []program.Instr) bool {
	return slices.ContainsFunc(code, func(c program.Instr) bool { return c.Op == program.Rand })
}

// pointers returns the parameters of step i and their arguments: the Ins that code loads, the Outs,
// and the clock for random numbers.
func (g *generator) pointers(i int, code []program.Instr, clock bool) (params []string, args []Arg) {
	s := &g.p.Steps[i]
	for j := range s.In {
		if slices.ContainsFunc(code, func(c program.Instr) bool { return c.Op == program.Load && c.A == j }) {
			params = append(params, g.readOnly(i, j))
			args = append(args, g.in(i, j))
		}
	}
	for j, v := range s.Out {
		params = append(params, fmt.Sprintf("%s *b%d", ctype(g.value(v).DType), j))
		args = append(args, g.out(i, j))
	}
	if clock {
		g.use(randPart)
		params = append(params, "const u64 *clock")
		args = append(args, Arg{Kind: Clock, Step: i})
	}
	return params, args
}

// readOnly returns the parameter for In j of step i.
func (g *generator) readOnly(i, j int) string {
	dt := ctype(g.value(g.p.Steps[i].In[j]).DType)
	if g.aliased(i, j) {
		return fmt.Sprintf("const %s *a%d", dt, j)
	}
	return fmt.Sprintf("const %s *__restrict__ a%d", dt, j)
}

// keeper returns the register of a Map whose nonzero value leaves the memory unchanged, if there is
// one and it is equal for all elements: Select(register, old value, anything), in place. Then
// threads return at once, and a Map over all gradients for a rare case costs one launch.
func (f *flat) keeper(g *generator, i int, op *program.Map) (int, bool) {
	if len(op.Stores) != 1 || op.Code[op.Stores[0]].Op != program.Select {
		return 0, false
	}
	c := op.Code[op.Stores[0]]
	if f.where[c.A] != atTop || op.Code[c.B].Op != program.Load {
		return 0, false
	}
	from, to := &g.p.Steps[i].In[op.Code[c.B].A], &g.p.Steps[i].Out[0]
	if from.Value != to.Value || from.Offset != to.Offset || !slices.Equal(from.Strides, to.Strides) {
		return 0, false
	}
	return c.A, true
}
