package cudagen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// dim is one loop of a nest.
type dim struct {
	size    int
	reduced bool
}

// access is how the address of an In or Out changes with the dims of a nest. For Rand it is the
// number of the element.
type access struct {
	name    string       // of the pointer; empty for Rand's
	dtype   tensor.DType // Invalid for Rand's
	offset  int64        // bytes, from an address that is aligned to 16
	strides []int        // elements, by dim
}

// nest is an index space in the form of a kernel's loops. Dims of one element are dropped, kept
// dims come before reduced ones, the fastest dim is last, and neighbours are joined if all accesses
// allow it.
type nest struct {
	dims  []dim
	ins   []access
	outs  []access
	index access // strides of the space itself
}

// newNest returns the nest of a space; reduced may be nil.
func (g *generator) newNest(i int, space []int, reduced []bool) *nest {
	s := &g.p.Steps[i]
	n := &nest{index: access{strides: program.Contiguous(space)}}
	for d, size := range space {
		n.dims = append(n.dims, dim{size, reduced != nil && reduced[d]})
	}
	for j, v := range s.In {
		n.ins = append(n.ins, g.access(fmt.Sprintf("a%d", j), v))
	}
	for j, v := range s.Out {
		n.outs = append(n.outs, g.access(fmt.Sprintf("b%d", j), v))
	}
	n.drop()
	return n
}

func (g *generator) access(name string, v program.View) access {
	dt := g.value(v).DType
	return access{name, dt, int64(v.Offset) * int64(dt.Size()), slices.Clone(v.Strides)}
}

// each calls f for every access.
func (n *nest) each(f func(a *access)) {
	for i := range n.ins {
		f(&n.ins[i])
	}
	for i := range n.outs {
		f(&n.outs[i])
	}
	f(&n.index)
}

// drop removes dims of one element.
func (n *nest) drop() {
	for d := len(n.dims) - 1; d >= 0; d-- {
		if n.dims[d].size == 1 {
			n.remove(d)
		}
	}
}

func (n *nest) remove(d int) {
	n.dims = slices.Delete(n.dims, d, d+1)
	n.each(func(a *access) { a.strides = slices.Delete(a.strides, d, d+1) })
}

// order sorts the dims: kept ones before reduced ones, then by before, the largest first.
func (n *nest) order(before func(d int) int) {
	perm := make([]int, len(n.dims))
	keys := make([]int, len(n.dims))
	for d := range perm {
		perm[d], keys[d] = d, before(d)
	}
	slices.SortStableFunc(perm, func(x, y int) int {
		if n.dims[x].reduced != n.dims[y].reduced {
			if n.dims[y].reduced {
				return -1
			}
			return 1
		}
		return keys[y] - keys[x]
	})
	old := slices.Clone(n.dims)
	for d, from := range perm {
		n.dims[d] = old[from]
	}
	n.each(func(a *access) {
		strides := slices.Clone(a.strides)
		for d, from := range perm {
			a.strides[d] = strides[from]
		}
	})
}

// join merges neighbouring dims if the strides of all accesses allow it. index counts if rand.
func (n *nest) join(rand bool) {
	for d := len(n.dims) - 2; d >= 0; d-- {
		if n.dims[d].reduced != n.dims[d+1].reduced {
			continue
		}
		ok := true
		n.each(func(a *access) {
			if a.name != "" || rand {
				ok = ok && a.strides[d] == a.strides[d+1]*n.dims[d+1].size
			}
		})
		if ok {
			n.dims[d+1].size *= n.dims[d].size
			n.remove(d)
		}
	}
}

// count returns the number of elements over the reduced dims, or over the kept ones.
func (n *nest) count(reduced bool) int {
	c := 1
	for _, d := range n.dims {
		if d.reduced == reduced {
			c *= d.size
		}
	}
	return c
}

// small reports whether 32 bits hold every index and, with room for a step, every count.
func (n *nest) small() bool {
	const most = 1 << 30
	ok := true
	n.each(func(a *access) {
		reach := 0
		for d, s := range a.strides {
			reach += abs(s) * (n.dims[d].size - 1)
		}
		ok = ok && reach < most
	})
	return ok && n.count(true)*n.count(false) < most
}

// width returns the number of neighbours along the last dim that a thread takes at once, up to
// most. They must be contiguous and aligned in all of lead: the Outs of a Map, or the In of a
// Reduce that varies most.
func (n *nest) width(lead []access, most int) int {
	if len(n.dims) == 0 {
		return 1
	}
	last := n.dims[len(n.dims)-1].size
	for v := 8; v > 1; v /= 2 {
		if v > most || last%v != 0 {
			continue
		}
		ok, size := true, 0
		for i := range lead {
			ok = ok && lead[i].vector(v)
			size = max(size, lead[i].dtype.Size())
		}
		if ok && v*size <= 32 && (v < 8 || size <= 2) {
			return v
		}
	}
	return 1
}

// vector reports whether v neighbours along the last dim are contiguous and aligned.
func (a *access) vector(v int) bool {
	d := len(a.strides) - 1
	if a.name == "" || d < 0 || a.strides[d] != 1 {
		return false
	}
	size := int64(a.dtype.Size())
	align := min(16, int64(v)*size)
	if a.offset%align != 0 {
		return false
	}
	for _, s := range a.strides[:d] {
		if int64(s)*size%align != 0 {
			return false
		}
	}
	return true
}

// group is the dims of a nest that one counter covers.
type group struct {
	n       *nest
	from    int // dims from from up to, not including, to
	to      int
	counter string // of elements
	prefix  string // of coordinates
	needed  []bool // by dim of the group
	split   bool   // only coordinates, no counter
}

func (n *nest) group(reduced bool, counter, prefix string) *group {
	g := &group{n: n, counter: counter, prefix: prefix}
	g.from = slices.IndexFunc(n.dims, func(d dim) bool { return d.reduced == reduced })
	if g.from < 0 {
		g.from = 0
	}
	for g.to = g.from; g.to < len(n.dims) && n.dims[g.to].reduced == reduced; {
		g.to++
	}
	g.needed = make([]bool, g.to-g.from)
	return g
}

// fixed reports whether a is constant over the group.
func (g *group) fixed(a *access) bool {
	return !slices.ContainsFunc(a.strides[g.from:g.to], func(s int) bool { return s != 0 })
}

// terms returns the offset of a over the group, as terms of a sum.
func (g *group) terms(a *access) []string {
	if g.fixed(a) {
		return nil
	}
	strides := a.strides[g.from:g.to]
	linear := true
	for d := 0; d < len(strides)-1; d++ {
		linear = linear && strides[d] == strides[d+1]*g.n.dims[g.from+d+1].size
	}
	if linear && !g.split {
		return []string{times(g.counter, strides[len(strides)-1])}
	}
	var terms []string
	for d, s := range strides {
		if s != 0 {
			g.needed[d] = true
			terms = append(terms, times(fmt.Sprintf("%s%d", g.prefix, d), s))
		}
	}
	return terms
}

// coordinates returns the statements that compute the coordinates which terms has used.
func (g *group) coordinates(index, indent string) string {
	var b strings.Builder
	rest := 1
	for d := len(g.needed) - 1; d >= 0; d-- {
		size := g.n.dims[g.from+d].size
		if g.needed[d] {
			e := g.counter
			if rest > 1 {
				e = fmt.Sprintf("%s / %d", e, rest)
			}
			if d > 0 {
				e = fmt.Sprintf("%s %% %d", e, size)
			}
			fmt.Fprintf(&b, "%sconst %s %s%d = %s;\n", indent, index, g.prefix, d, e)
		}
		rest *= size
	}
	return b.String()
}

// times returns "x" or "x * s".
func times(x string, s int) string {
	if s == 1 {
		return x
	}
	return fmt.Sprintf("%s * %d", x, s)
}

// sum joins terms with plus signs; "0" for none.
func sum(terms []string) string {
	if len(terms) == 0 {
		return "0"
	}
	return strings.Join(terms, " + ")
}

func abs(x int) int {
	if x < 0 {
		return -x
	}
	return x
}
