package cudagen

import (
	"fmt"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// tiles is how blocks share a product of batch times M by K by N.
type tiles struct {
	bm, bn         int
	tilesM, tilesN int
	splits, chunk  int
	count          int // of tiles in all of the batch
}

// sliceK is the length along k that is in shared memory at once.
const sliceK = 16

// tile returns the tiles of a product. It takes smaller tiles if there are fewer large ones than
// multiprocessors, and splits k if that is not enough.
func (g *generator) tile(batch, m, n, k int) tiles {
	s := tiles{bm: 64, bn: 64, splits: 1}
	for s.bm > 16 && m <= s.bm/2 {
		s.bm /= 2
	}
	if n <= 32 {
		s.bn = 32
	}
	if batch*ceilDiv(m, s.bm)*ceilDiv(n, s.bn) < g.t.SMs {
		s.bm, s.bn = min(s.bm, 32), 32
	}
	s.tilesM, s.tilesN = ceilDiv(m, s.bm), ceilDiv(n, s.bn)
	s.count = batch * s.tilesM * s.tilesN
	if most := k / (8 * sliceK); s.count*2 <= g.t.SMs && most > 1 {
		s.splits = min(64, most, ceilDiv(2*g.t.SMs, s.count))
	}
	s.chunk = max(sliceK, ceilDiv(ceilDiv(k, s.splits), sliceK)*sliceK)
	s.splits = max(1, ceilDiv(k, s.chunk))
	return s
}

// product generates the kernel of a product with the tiles of s.
func (g *generator) product(i int, name string, s tiles, m, n, k int, consts []constant) {
	g.use(gemmPart)
	t := &template{kind: name, call: name, threads: s.bm / 4 * s.bn / 4, grid: s.count * s.splits}
	t.wide = wideIndex(m, n, k)
	for _, views := range [][]program.View{g.p.Steps[i].In, g.p.Steps[i].Out} {
		for _, v := range views {
			t.wide = t.wide || wideIndex(g.value(v).Len())
		}
	}
	t.consts = append([]constant{
		{"M", m},
		{"N", n},
		{"K", k},
		{"BM", s.bm},
		{"BN", s.bn},
		{"BK", sliceK},
		{"TilesM", s.tilesM},
		{"TilesN", s.tilesN},
		{"Splits", s.splits},
		{"Chunk", s.chunk},
	}, consts...)
	t.read(g, i, 0, 1)
	t.write(g, i, 0)
	numbers, counters := 0, 0
	if s.splits > 1 {
		numbers, counters = s.count*s.splits*s.bm*s.bn, s.count
	}
	t.split(g, i, numbers, counters)
	g.fixedLaunch(i, t)
}

// matMul generates the kernel of a MatMul that no library does.
func (g *generator) matMul(i int, op *program.MatMul) error {
	s := &g.p.Steps[i]
	if len(s.In) < 2 {
		return fmt.Errorf("%d Ins, want 2", len(s.In))
	}
	for _, v := range []program.View{s.In[0], s.In[1], s.Out[0]} {
		if len(v.Strides) != 3 {
			return fmt.Errorf("a view of %d dimensions, want 3", len(v.Strides))
		}
	}
	if op.Batch*op.M*op.N == 0 {
		return nil
	}
	a, b, c := s.In[0].Strides, s.In[1].Strides, s.Out[0].Strides
	g.product(i, "matMul", g.tile(op.Batch, op.M, op.N, op.K), op.M, op.N, op.K, []constant{
		{"LeftByK", a[2] == 1},
		{"RightByK", b[2] != 1},
		{"LeftBatch", a[0]},
		{"LeftM", a[1]},
		{"LeftK", a[2]},
		{"RightBatch", b[0]},
		{"RightK", b[1]},
		{"RightN", b[2]},
		{"OutBatch", c[0]},
		{"OutM", c[1]},
		{"OutN", c[2]},
		{"Alpha", op.Alpha},
		{"Beta", op.Beta},
	})
	return nil
}

// conv generates the kernel of a convolution, or of a gradient of one, that no library does.
func (g *generator) conv(i int, op program.Op) error {
	switch op := op.(type) {
	case *program.Conv:
		if thin(&op.Window, op.K) {
			g.thinConv(i, op)
			return nil
		}
		g.convProduct(i, "conv", &op.Window, op.K, op.K, op.N*op.OutH*op.OutW, op.C*op.R*op.S)
	case *program.ConvGradInput:
		g.convProduct(i, "convGradInput", &op.Window, op.K, op.C, op.N*op.H*op.W, op.K*op.R*op.S)
	case *program.ConvGradFilter:
		if thin(&op.Window, op.K) {
			g.thinGradFilter(i, op)
			return nil
		}
		g.convProduct(i, "convGradFilter", &op.Window, op.K, op.K, op.C*op.R*op.S, op.N*op.OutH*op.OutW)
	default:
		return fmt.Errorf("%T is no convolution", op)
	}
	return nil
}

// convProduct generates a convolution as a product of M by K by N.
func (g *generator) convProduct(i int, name string, w *program.Window, filters, m, n, k int) {
	if m*n == 0 {
		return
	}
	g.use(convPart)
	var consts []constant
	for _, c := range windowConstants(w) {
		if c.name != "N" { // already a constant of the product
			consts = append(consts, c)
		}
	}
	consts = append(consts,
		constant{"Filters", filters}, constant{"Channels", m}, constant{"Plane", max(1, w.OutH*w.OutW)},
		constant{"LeftByK", name != "convGradInput"}, constant{"RightByK", name == "convGradFilter"})
	if name == "convGradInput" {
		consts[len(consts)-3].value = w.H * w.W
	}
	g.product(i, name, g.tile(1, m, n, k), m, n, k, consts)
}
