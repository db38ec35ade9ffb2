package cudagen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// MostArgs is the largest number of arguments of a kernel.
const MostArgs = 128

// mostBlocks is the largest number of blocks per multiprocessor of a Map that is merged with
// others. Larger Maps gain nothing.
const mostBlocks = 64

// together returns the number of steps from step i on that one kernel does: successive Maps of
// which none uses memory that another writes, or waits for a step that the first does not wait for.
func (g *generator) together(i int) int {
	n, params := 0, map[address]bool{}
	for j := i; j < len(g.p.Steps) && g.mergeable(j); j++ {
		if n > 0 && (!g.waitsNoMore(i, j) || !g.independent(i, j)) {
			break
		}
		for _, a := range g.addresses(j) {
			params[a] = true
		}
		if len(params) > MostArgs {
			break
		}
		n++
	}
	return max(1, n)
}

// mergeable reports whether step i may be merged with others: a small Map without tiles.
func (g *generator) mergeable(i int) bool {
	op, ok := g.p.Steps[i].Op.(*program.Map)
	if !ok || draws(op.Code) || g.check(i) != nil || len(op.Stores) != len(g.p.Steps[i].Out) {
		return false
	}
	count := 1
	for _, d := range op.Space {
		count *= d
	}
	return count > 0 && count <= g.t.SMs*mostBlocks*mapThreads && g.transposition(i, op) == nil
}

// waitsNoMore reports whether step j can start whenever step i can: each step that j waits for is
// one that i waits for, or an earlier one of i's stream, or one that such a step waits for.
func (g *generator) waitsNoMore(i, j int) bool {
	first, s := &g.p.Steps[i], &g.p.Steps[j]
	if s.Stream != first.Stream {
		return false
	}
	for _, dep := range s.After {
		known := slices.Contains(first.After, dep)
		for k := i - 1; k >= 0 && !known; k-- {
			known = g.p.Steps[k].Stream == first.Stream && (k == dep || slices.Contains(g.p.Steps[k].After, dep))
		}
		if !known {
			return false
		}
	}
	return true
}

// independent reports whether step j and steps i to j-1 share no memory that either writes.
func (g *generator) independent(i, j int) bool {
	in, out := g.regions(j)
	for k := i; k < j; k++ {
		earlierIn, earlierOut := g.regions(k)
		if meet(earlierOut, in) || meet(earlierOut, out) || meet(earlierIn, out) {
			return false
		}
	}
	return true
}

// region is the bytes that a view covers, from first to last. Values of the arena count as one
// value.
type region struct {
	value      program.ID // None for the arena
	begin, end int64
}

// regions returns the regions that a Map reads and writes.
func (g *generator) regions(i int) (in, out []region) {
	s := &g.p.Steps[i]
	op, ok := s.Op.(*program.Map)
	if !ok {
		return nil, nil
	}
	for _, v := range s.In {
		in = append(in, g.region(v, op.Space))
	}
	for _, v := range s.Out {
		out = append(out, g.region(v, op.Space))
	}
	return in, out
}

func (g *generator) region(v program.View, space []int) region {
	r, size := g.place(v), int64(g.value(v).DType.Size())
	r.end = r.begin + size
	for d, s := range v.Strides {
		r.reach(int64(s) * int64(space[d]-1) * size)
	}
	return r
}

// reach extends r by a dim whose last element is so many bytes from its first.
func (r *region) reach(bytes int64) {
	r.begin += min(bytes, 0)
	r.end += max(bytes, 0)
}

// place returns the region of a view's first element, without an end.
func (g *generator) place(v program.View) region {
	val := g.value(v)
	r := region{value: v.Value, begin: int64(v.Offset) * int64(val.DType.Size())}
	if val.Place == program.Arena {
		r.value, r.begin = program.None, r.begin+val.Offset
	}
	return r
}

// meet reports whether a region of a overlaps one of b.
func meet(a, b []region) bool {
	for _, r := range a {
		for _, s := range b {
			if r.value == s.value && r.begin < s.end && s.begin < r.end {
				return true
			}
		}
	}
	return false
}

// sameMemory reports whether two views may share memory: of one value, or of values that share a
// part of the arena.
func (g *generator) sameMemory(v, w program.View) bool {
	if v.Value == w.Value {
		return true
	}
	a, b := g.value(v), g.value(w)
	return a.Place == program.Arena && b.Place == program.Arena && a.Offset < b.Offset+b.Bytes() && b.Offset < a.Offset+a.Bytes()
}

// address identifies a parameter of a merged kernel.
type address struct {
	value program.ID
	at    int64
}

func (g *generator) addressOf(v program.View) address {
	return address{v.Value, int64(v.Offset) * int64(g.value(v).DType.Size())}
}

func (g *generator) addresses(i int) []address {
	var all []address
	for _, v := range g.p.Steps[i].In {
		all = append(all, g.addressOf(v))
	}
	for _, v := range g.p.Steps[i].Out {
		all = append(all, g.addressOf(v))
	}
	return all
}

// segment is the part of a merged kernel that does one step.
type segment struct {
	call   string // of the step's function, without the last argument, the block's number
	blocks int
}

// merged generates one kernel for n Maps from step i on. A block finds its segment by its number
// and does the work of a block of the step's own kernel. Segments with equal code share a function,
// whatever their lengths.
func (g *generator) merged(i, n int) error {
	var params []string
	var args []Arg
	number := map[address]int{}
	var segments []segment
	for j := i; j < i+n; j++ {
		op, ok := g.p.Steps[j].Op.(*program.Map)
		if !ok {
			return fmt.Errorf("step %d is no map", j)
		}
		f, err := g.flat(j, op)
		if err != nil {
			return fmt.Errorf("step %d (%s): %w", j, g.p.Steps[j].Name, err)
		}
		var names []string
		for _, a := range f.args {
			v := g.view(a)
			at, ok := number[g.addressOf(v)]
			if !ok {
				at = len(args)
				number[g.addressOf(v)] = at
				args = append(args, a)
				params = append(params, fmt.Sprintf("%s *p%d", ctype(g.value(v).DType), at))
			}
			names = append(names, fmt.Sprintf("p%d", at))
		}
		blocks := (f.count + mapThreads - 1) / mapThreads
		name := g.function("part", f.function())
		segments = append(segments, segment{fmt.Sprintf("%s(%s, %d", name, strings.Join(names, ", "), f.count), blocks})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "extern \"C\" __global__ void __launch_bounds__(%d) %s(%s) {\n", mapThreads, nameMark, strings.Join(params, ", "))
	total := choose(&b, segments, 0, "  ")
	b.WriteString("}\n")
	g.launch(i, Kernel{
		Name: g.function("maps", b.String()), Grid: [3]uint32{uint32(total), 1, 1}, Block: [3]uint32{mapThreads, 1, 1}, Args: args,
	})
	return nil
}

// view returns the view of an In or Out argument.
func (g *generator) view(a Arg) program.View {
	if a.Kind == In {
		return g.p.Steps[a.Step].In[a.Index]
	}
	return g.p.Steps[a.Step].Out[a.Index]
}

// function returns the text of f as a function of its pointers, the number of iterations and the
// number of the block.
func (f *flat) function() string {
	var b strings.Builder
	params := append(slices.Clone(f.params), "int n", "int block")
	fmt.Fprintf(&b, "static __device__ __noinline__ void %s(%s) {\n", nameMark, strings.Join(params, ", "))
	fmt.Fprintf(&b, "%s  const %s i = block * %d + threadIdx.x;\n  if (i < n) {\n", f.lines[atTop].String(), f.index, mapThreads)
	b.WriteString(f.inside() + "  }\n}\n")
	return b.String()
}

// choose writes the search for a block's segment, and returns the number after the last block. The
// first segment starts at block first.
func choose(b *strings.Builder, segments []segment, first int, indent string) int {
	if len(segments) == 1 {
		fmt.Fprintf(b, "%s%s, blockIdx.x - %d);\n", indent, segments[0].call, first)
		return first + segments[0].blocks
	}
	half := len(segments) / 2
	middle := first
	for _, s := range segments[:half] {
		middle += s.blocks
	}
	fmt.Fprintf(b, "%sif (blockIdx.x < %d) {\n", indent, middle)
	choose(b, segments[:half], first, indent+"  ")
	fmt.Fprintf(b, "%s} else {\n", indent)
	last := choose(b, segments[half:], middle, indent+"  ")
	fmt.Fprintf(b, "%s}\n", indent)
	return last
}
