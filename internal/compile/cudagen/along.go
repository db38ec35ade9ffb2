package cudagen

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// chain is successive steps along the same rows: each works on one row of axis elements, or its
// single element, at a time. One kernel does them all, a normalization for example, and its threads
// keep their row. Values for the next step stay in registers, and are only written if others read.
type chain struct {
	phases     []phase
	rows, axis int
	lanes      int // threads per row
	width      int // neighbours per thread
}

// phase is one step of a chain.
type phase struct {
	step  int
	op    program.Op
	code  []program.Instr
	n     *nest // kept dims are rows, reduced dims are the elements of a row
	spans []span
	from  []*result // by In: the result of an earlier phase, if it is in registers
	to    []result  // by Out
}

// result is an Out of a phase.
type result struct {
	name string // of its registers; empty if no phase reads them
	dead bool   // no step reads the memory
}

// span is the bytes that an In or Out of a step covers.
type span struct {
	region        // all rows
	row    region // the first row, if there is a pitch
	pitch  int64  // from a row to the next; 0 if it varies
	write  bool
}

const (
	// mostAxis bounds rows if there are few: each step of longer ones fills the device by itself.
	mostAxis = 1 << 13

	// laneElems is the row elements per thread, and mostElems if there are too few threads.
	laneElems, mostElems = 8, 32
)

// along returns the chain of steps from step i, which may have one step only.
func (g *generator) along(i int) chain {
	c := g.lead(i)
	if c.rows < 2 || c.axis < 2 || c.axis > mostAxis && c.rows < g.t.SMs {
		return c
	}
	c.lanes = min(32, ceilPower(c.axis))
	if c.axis > 32*laneElems {
		c.lanes = min(1024, ceilPower(c.axis/laneElems))
	}
	params := map[address]bool{}
	joined := 0 // phases; one after them may belong to a later one that reads it
	for j := i; j < len(g.p.Steps) && c.axis <= c.lanes*mostElems; j++ {
		if j > i && !g.waitsNoMore(i, j) {
			break
		}
		ph, ok := g.phase(j, &c)
		goesOn := ok && (len(c.phases) == 0 || c.goesOn(&ph, joined))
		if !ok || !c.takes(&ph) || !goesOn && joined < len(c.phases) {
			break
		}
		for _, a := range g.addresses(j) {
			params[a] = true
		}
		if len(params) > MostArgs-1 { // one is for the clock
			break
		}
		if c.phases = append(c.phases, ph); goesOn {
			joined = len(c.phases)
		}
	}
	c.phases = c.phases[:joined]
	return c
}

// lead returns an empty chain with the rows of the first step from i on that is not a Map.
func (g *generator) lead(i int) (c chain) {
	for j := i; j < len(g.p.Steps) && g.check(j) == nil; j++ {
		switch op := g.p.Steps[j].Op.(type) {
		case *program.Map:
			continue
		case *program.Reduce:
			n := g.newNest(j, op.Space, op.Reduced)
			c.rows, c.axis = n.count(false), n.count(true)
		case *program.Softmax:
			c.rows, c.axis = op.Outer*op.Inner, op.Axis
		case *program.SoftmaxGrad:
			c.rows, c.axis = op.Outer*op.Inner, op.Axis
		}
		return c
	}
	return c
}

// phase returns step j as a phase of chain c, and whether it runs along c's rows.
func (g *generator) phase(j int, c *chain) (phase, bool) {
	ph := phase{step: j, op: g.p.Steps[j].Op}
	if g.check(j) != nil || !g.arranged(&ph, c.rows) || ph.n.count(false) != c.rows || len(ph.n.outs) == 0 {
		return ph, false
	}
	if axis := ph.n.count(true); axis != c.axis && (axis != 1 || !isMap(ph.op)) {
		return ph, false
	}
	s := &g.p.Steps[j]
	for k := range ph.n.ins {
		ph.spans = append(ph.spans, g.span(ph.n, &ph.n.ins[k], s.In[k], false))
	}
	for k := range ph.n.outs {
		ph.spans = append(ph.spans, g.span(ph.n, &ph.n.outs[k], s.Out[k], true))
	}
	return ph, true
}

func isMap(op program.Op) bool {
	_, ok := op.(*program.Map)
	return ok
}

func isReduce(op program.Op) bool {
	_, ok := op.(*program.Reduce)
	return ok
}

// arranged sets the nest and the code of a phase, and reports whether its step runs by rows.
func (g *generator) arranged(ph *phase, rows int) bool {
	packed := func(outer, axis, inner, ins int) bool {
		ph.n = g.newNest(ph.step, []int{outer, axis, inner}, []bool{false, true, false})
		for k := range ins {
			ph.code = append(ph.code, program.Instr{Op: program.Load, A: k})
		}
		return inner == 1
	}
	switch op := ph.op.(type) {
	case *program.Map:
		ph.n, ph.code = g.newNest(ph.step, op.Space, nil), op.Code
		return len(op.Stores) == len(ph.n.outs) && g.transposition(ph.step, op) == nil && ph.n.cut(rows) && ph.n.outs[0].near(ph.n)
	case *program.Reduce:
		ph.n, ph.code = g.newNest(ph.step, op.Space, op.Reduced), op.Code
		return len(op.Code) > 0 && (op.Red == program.Sum || op.Red == program.Max) && ph.n.reducesLast() && ph.n.byRow(ph.n.lead())
	case *program.Softmax:
		return packed(op.Outer, op.Axis, op.Inner, 1)
	case *program.SoftmaxGrad:
		return packed(op.Outer, op.Axis, op.Inner, 2)
	}
	return false
}

// cut makes rows rows of the first dims of a Map and their elements of the rest, if it can.
func (n *nest) cut(rows int) bool {
	for d := 0; d < len(n.dims); d++ {
		size := n.dims[d].size
		switch {
		case rows == 1:
			n.dims[d].reduced = true
		case rows%size == 0:
			rows /= size
		case size%rows == 0: // the first part of this dim is rows too
			rest := size / rows
			n.dims[d].size = rows
			n.dims = slices.Insert(n.dims, d+1, dim{rest, true})
			n.each(func(a *access) { a.strides = slices.Insert(a.strides, d, a.strides[d]*rest) })
			rows = 1
			d++
		default:
			return false
		}
	}
	return rows == 1
}

// reducesLast reports whether the reduced dims come after the kept ones.
func (n *nest) reducesLast() bool {
	kept := slices.IndexFunc(n.dims, func(d dim) bool { return d.reduced })
	return kept < 0 || !slices.ContainsFunc(n.dims[kept:], func(d dim) bool { return !d.reduced })
}

// near reports whether neighbours in a row are closer together in a than rows are.
func (a *access) near(n *nest) bool {
	row, column := 0, 0 // least strides
	for d, s := range a.strides {
		least := &row
		if n.dims[d].reduced {
			least = &column
		}
		if s = abs(s); s != 0 && (*least == 0 || s < *least) {
			*least = s
		}
	}
	return column == 0 || row == 0 || column < row
}

// span returns the span of view v, whose access is a.
func (g *generator) span(n *nest, a *access, v program.View, write bool) span {
	size := int64(a.dtype.Size())
	s := span{write: write, row: g.place(v)}
	s.row.end = s.row.begin + size
	s.region = s.row
	even, inner := true, 0 // the dim of rows after d, if any
	for d := len(n.dims) - 1; d >= 0; d-- {
		reach := int64(a.strides[d]) * int64(n.dims[d].size-1) * size
		s.region.reach(reach)
		switch {
		case n.dims[d].reduced:
			s.row.reach(reach)
			continue
		case inner == 0:
			s.pitch = int64(a.strides[d]) * size
		default:
			even = even && a.strides[d] == a.strides[inner]*n.dims[inner].size
		}
		inner = d
	}
	if !even || s.pitch < 0 {
		s.pitch = 0
	}
	return s
}

// takes reports whether ph can run row by row after the phases of c: memory that they share, and
// that one of them writes, belongs to the same row in both.
func (c *chain) takes(ph *phase) bool {
	for k := range c.phases {
		for _, x := range c.phases[k].spans {
			for _, y := range ph.spans {
				if (x.write || y.write) && meet([]region{x.region}, []region{y.region}) && !x.sameRows(&y) {
					return false
				}
			}
		}
	}
	return true
}

// goesOn reports whether ph reads memory that one of the first n phases of c writes.
func (c *chain) goesOn(ph *phase, n int) bool {
	for k := range c.phases[:n] {
		for _, x := range c.phases[k].spans {
			for _, y := range ph.spans {
				if x.write && !y.write && meet([]region{x.region}, []region{y.region}) {
					return true
				}
			}
		}
	}
	return false
}

// sameRows reports whether each row of x overlaps only the row of y with its number.
func (x *span) sameRows(y *span) bool {
	return x.pitch == y.pitch && max(x.row.end, y.row.end)-min(x.row.begin, y.row.begin) <= x.pitch
}

// settle orders the nests of c for the kernel, and finds the results that stay in registers.
func (g *generator) settle(c *chain) {
	c.width = max(1, min(8, c.axis/c.lanes))
	for k := range c.phases {
		c.width = c.phases[k].walk(c.width)
	}
	for k := range c.phases {
		c.phases[k].from, c.phases[k].to = make([]*result, len(c.phases[k].n.ins)), make([]result, len(c.phases[k].n.outs))
		for j := range c.phases[k].from {
			c.phases[k].from[j] = g.kept(c, k, j)
		}
	}
	for k := range c.phases {
		for j := range c.phases[k].to {
			c.phases[k].to[j].dead = g.dead(c, k, j)
		}
	}
}

// walk orders the nest of ph as the kernel walks it. It returns the number of neighbours per
// thread, up to most. Rows keep their order, so that they have equal numbers in all phases.
func (ph *phase) walk(most int) int {
	n, lead := ph.n, &ph.n.outs[0]
	if isReduce(ph.op) {
		lead = n.lead()
	}
	n.order(func(d int) int {
		if lead == nil || !n.dims[d].reduced {
			return 0
		}
		return abs(lead.strides[d])
	})
	n.join(draws(ph.code))
	switch {
	case n.count(true) == 1:
		return most
	case !isReduce(ph.op):
		return n.width(n.outs, most)
	case lead == nil:
		return 1
	}
	return n.width([]access{*n.lead()}, most)
}

// kept returns the Out of an earlier phase that equals In j of phase k, element by element. It
// returns nil if there is none, or if that memory was written again since.
func (g *generator) kept(c *chain, k, j int) *result {
	in := &c.phases[k]
	reads := &in.spans[j]
	for l := k - 1; l >= 0; l-- {
		out := &c.phases[l]
		for m := len(out.n.outs) - 1; m >= 0; m-- {
			wrote := &out.spans[len(out.n.ins)+m]
			if !meet([]region{reads.region}, []region{wrote.region}) {
				continue
			}
			v, w := g.p.Steps[in.step].In[j], g.p.Steps[out.step].Out[m]
			if v.Value != w.Value || !in.n.walks(&in.n.ins[j], out.n, &out.n.outs[m]) || out.overwrites() {
				return nil
			}
			out.to[m].name = fmt.Sprintf("f%d_%d", l, m)
			return &out.to[m]
		}
	}
	return nil
}

// overwrites reports whether ph has one number per row and writes memory that it reads. One thread
// of a row writes, and others may read later.
func (ph *phase) overwrites() bool {
	ins, outs := ph.spans[:len(ph.n.ins)], ph.spans[len(ph.n.ins):]
	return ph.n.count(true) == 1 && slices.ContainsFunc(outs, func(out span) bool {
		for j := range ins {
			if ph.from[j] == nil && meet([]region{ins[j].region}, []region{out.region}) {
				return true
			}
		}
		return false
	})
}

// walks reports whether a in n and b in o are the same elements, row by row. Both need one stride
// for rows and one within rows.
func (n *nest) walks(a *access, o *nest, b *access) bool {
	simple := func(n *nest, a *access) (row, column int, ok bool) {
		rows := slices.IndexFunc(n.dims, func(d dim) bool { return d.reduced })
		if rows < 0 {
			rows = len(n.dims)
		}
		row, ok = linear(n.dims[:rows], a.strides[:rows])
		column, more := linear(n.dims[rows:], a.strides[rows:])
		return row, column, ok && more
	}
	row, column, ok := simple(n, a)
	otherRow, otherColumn, other := simple(o, b)
	return ok && other && a.offset == b.offset && row == otherRow && column == otherColumn
}

// linear returns the stride of one counter over all dims, if there is one; 0 without dims.
func linear(dims []dim, strides []int) (stride int, ok bool) {
	for d := range dims {
		if d+1 < len(dims) && strides[d] != strides[d+1]*dims[d+1].size {
			return 0, false
		}
		stride = strides[d]
	}
	return stride, true
}

// dead reports whether Out j of phase k need not be written. It is a temporary of the program, no
// step outside the chain uses it, and the phases that read it have it in registers.
func (g *generator) dead(c *chain, k, j int) bool {
	id := g.p.Steps[c.phases[k].step].Out[j].Value
	if v := &g.p.Values[id]; v.Place != program.Arena || v.Role != program.Temp {
		return false
	}
	of := func(v program.View) bool { return v.Value == id }
	first := c.phases[0].step
	for i := range g.p.Steps {
		s := &g.p.Steps[i]
		if i < first || i >= first+len(c.phases) {
			if slices.ContainsFunc(s.In, of) || slices.ContainsFunc(s.Out, of) {
				return false
			}
			continue
		}
		for in, v := range s.In {
			if ph := &c.phases[i-first]; v.Value == id && ph.from[in] == nil && loads(ph.code, in) {
				return false
			}
		}
	}
	return true
}
