package cudagen

import "github.com/symgrad/symgrad/internal/compile/program"

// channels is how blocks share channels of n*spatial elements each.
type channels struct {
	width, lanes  int // channels of a block, threads of a channel
	groups        int // of channels
	splits, chunk int // blocks for the same channels, elements of each
}

// share returns the channels for c channels of n*spatial elements. One block does all of a channel,
// both passes, if that leaves few multiprocessors idle or there is little work.
func (g *generator) share(n, c, spatial int) channels {
	s := channels{width: 1, splits: 1}
	each := n * spatial
	if spatial < 32 {
		s.width = min(32, ceilPower(c))
	}
	s.lanes = max(64/s.width, min(512/s.width, ceilPower(ceilDiv(each, 4))))
	s.groups = ceilDiv(c, s.width)
	if s.groups*2 < g.t.SMs && each > 16*s.lanes {
		s.splits = min(64, ceilDiv(2*g.t.SMs, s.groups), ceilDiv(each, 8*s.lanes))
	}
	s.chunk = ceilDiv(each, s.splits)
	s.splits = ceilDiv(each, s.chunk)
	return s
}

// constants returns the constants of a kernel by channels.
func (s channels) constants(n, c, spatial int) []constant {
	return []constant{
		{"C", c},
		{"Spatial", spatial},
		{"Count", n * spatial},
		{"Width", s.width},
		{"Lanes", s.lanes},
		{"Splits", s.splits},
		{"Chunk", s.chunk},
	}
}

// batchNorm generates the kernels of a BatchNorm.
func (g *generator) batchNorm(i int, op *program.BatchNorm) {
	total := op.N * op.C * op.Spatial
	if total == 0 {
		return
	}
	g.use(normPart)
	wide := wideIndex(total)
	if !op.Training {
		t := g.elements(i, "batchNormFixed", total, wide, op.C, op.Spatial)
		t.consts = append(t.consts, constant{"Epsilon", op.Epsilon})
		t.read(g, i, 0, 1, 2)
		t.write(g, i, 0, 1, 2)
		g.fixedLaunch(i, t)
		return
	}
	s := g.share(op.N, op.C, op.Spatial)
	t := &template{kind: "batchNorm", call: "batchNorm", threads: s.width * s.lanes, grid: s.groups * s.splits, wide: wide}
	t.consts = append(s.constants(op.N, op.C, op.Spatial),
		constant{"Momentum", op.Momentum}, constant{"Epsilon", op.Epsilon}, constant{"Unbias", op.Unbias})
	t.read(g, i, 0, 1, 2)
	t.write(g, i, 0, 1, 2, 3, 4)
	t.split(g, i, s.splits*op.C*2, s.groups)
	g.fixedLaunch(i, t)
	if s.splits > 1 {
		t = g.elements(i, "normalize", total, wide, op.C, op.Spatial)
		t.read(g, i, 0)
		t.write(g, i, 0, 1, 2)
		g.fixedLaunch(i, t)
	}
}

// batchNormGrad generates the kernels of a BatchNormGrad.
func (g *generator) batchNormGrad(i int, op *program.BatchNormGrad) {
	total := op.N * op.C * op.Spatial
	if total == 0 {
		return
	}
	g.use(normPart)
	wide := wideIndex(total)
	if !op.Training {
		t := g.elements(i, "batchNormGradFixed", total, wide, op.C, op.Spatial)
		t.read(g, i, 0, 1, 2, 3)
		t.write(g, i, 0)
		g.fixedLaunch(i, t)
		return
	}
	s := g.share(op.N, op.C, op.Spatial)
	t := &template{kind: "batchNormGrad", call: "batchNormGrad", threads: s.width * s.lanes, grid: s.groups * s.splits, wide: wide}
	t.consts = s.constants(op.N, op.C, op.Spatial)
	t.read(g, i, 0, 1, 2, 3)
	t.write(g, i, 0)
	t.split(g, i, (s.splits+1)*op.C*2, s.groups)
	totals := t.args[len(t.args)-2]
	g.fixedLaunch(i, t)
	if s.splits == 1 {
		return
	}
	t = g.elements(i, "normalizeGrad", total, wide, op.C, op.Spatial)
	t.consts = append(t.consts, constant{"Each", op.N * op.Spatial})
	t.read(g, i, 0, 1, 2, 3)
	t.write(g, i, 0)
	size := int64(4)
	if g.wide(i) {
		size = 8
	}
	totals.Offset += size * int64(s.splits*op.C*2)
	t.params = append(t.params, "const "+g.real(i)+" *totals")
	t.args = append(t.args, totals)
	g.fixedLaunch(i, t)
}

// elements returns a kernel with a thread for each of count elements, in channels.
func (g *generator) elements(i int, name string, count int, wide bool, c, spatial int) *template {
	t := &template{kind: name, call: name, threads: 256, wide: wide}
	t.grid = g.blocks(count, t.threads)
	t.consts = []constant{{"Count", count}, {"Grid", t.grid}, {"C", c}, {"Spatial", spatial}}
	return t
}
