package cudagen

import "github.com/symgrad/symgrad/internal/compile/program"

// gather generates the kernel of a Gather.
func (g *generator) gather(i int, op *program.Gather) {
	total := op.Outer * op.Count * op.Inner
	if total == 0 {
		return
	}
	g.use(gatherPart)
	from, to := g.access("a0", g.p.Steps[i].In[0]), g.access("b0", g.p.Steps[i].Out[0])
	wide := 1
	for w := 8; w > 1; w /= 2 {
		if op.Inner%w == 0 && w*from.dtype.Size() <= 16 && aligned(&from, w) && aligned(&to, w) {
			wide = w
			break
		}
	}
	t := &template{kind: "gather", call: "gatherRows", threads: 256, wide: wideIndex(total, op.Outer*op.Axis*op.Inner)}
	t.grid = g.blocks(total/wide, t.threads)
	t.consts = []constant{
		{"Axis", op.Axis},
		{"Inner", op.Inner},
		{"Indices", op.Count},
		{"Wide", wide},
		{"Count", total / wide},
		{"Grid", t.grid},
	}
	t.read(g, i, 0, 1)
	t.write(g, i, 0)
	t.fault(i)
	g.fixedLaunch(i, t)
}

// aligned reports whether packed rows, of a multiple of w elements, can be moved w elements at a
// time.
func aligned(a *access, w int) bool { return a.offset%int64(w*a.dtype.Size()) == 0 }

// gatherGrad generates the kernels of a GatherGrad. Each block scans all indices. With at most as
// many rows as indices each row has a block. Otherwise each index has one, after a kernel that
// zeros all rows.
func (g *generator) gatherGrad(i int, op *program.GatherGrad) {
	total := op.Outer * op.Axis * op.Inner
	if total == 0 {
		return
	}
	g.use(gatherPart)
	byRow := op.Axis <= op.Count
	if !byRow {
		z := &template{kind: "zeros", call: "zeros", threads: 256, wide: wideIndex(total)}
		z.grid = g.blocks(total, z.threads)
		z.consts = []constant{{"Count", total}, {"Grid", z.grid}}
		z.write(g, i, 0)
		g.fixedLaunch(i, z)
		if op.Count == 0 {
			return
		}
	}
	const threads = 256
	columns := min(64, ceilPower(op.Inner))
	groups := op.Axis
	if !byRow {
		groups = op.Count
	}
	t := &template{kind: "gatherGrad", call: "gatherGradRows", threads: threads, wide: wideIndex(total, op.Outer*op.Count*op.Inner)}
	t.grid = op.Outer * groups * ceilDiv(op.Inner, columns)
	t.consts = []constant{
		{"Axis", op.Axis},
		{"Inner", op.Inner},
		{"Indices", op.Count},
		{"Groups", groups},
		{"Columns", columns},
		{"Lanes", threads / columns},
		{"ByRow", byRow},
	}
	t.read(g, i, 0, 1)
	t.write(g, i, 0)
	t.fault(i)
	g.fixedLaunch(i, t)
}
