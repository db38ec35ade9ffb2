package cudagen

import (
	"slices"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// windowConstants returns the constants of a window.
func windowConstants(w *program.Window) []constant {
	return []constant{
		{"N", w.N},
		{"C", w.C},
		{"H", w.H},
		{"W", w.W},
		{"R", w.R},
		{"S", w.S},
		{"PadH", w.PadH},
		{"PadW", w.PadW},
		{"StrideH", w.StrideH},
		{"StrideW", w.StrideW},
		{"DilationH", w.DilationH},
		{"DilationW", w.DilationW},
		{"OutH", w.OutH},
		{"OutW", w.OutW},
	}
}

// elementwise generates a kernel with a thread for each of count elements of Out 0 of step i.
func (g *generator) elementwise(i int, name string, count int, wide bool, consts []constant) {
	if count == 0 {
		return
	}
	t := &template{kind: name, call: name, threads: 256, wide: wide}
	t.grid = g.blocks(count, t.threads)
	t.consts = append(consts, constant{"Count", count}, constant{"Grid", t.grid})
	for j := range g.p.Steps[i].In {
		t.read(g, i, j)
	}
	t.write(g, i, 0)
	g.fixedLaunch(i, t)
}

// pool generates the kernel of a pooling, or of its gradient.
func (g *generator) pool(i int, name string, w *program.Window, grad bool) {
	g.use(poolPart)
	large, small := w.N*w.C*w.H*w.W, w.N*w.C*w.OutH*w.OutW
	count := small
	if grad {
		count = large
	}
	g.elementwise(i, name, count, wideIndex(large, small), windowConstants(w))
}

// maxPool generates the kernel of a MaxPool.
func (g *generator) maxPool(i int, w *program.Window) {
	if !apart(w) {
		g.pool(i, "maxPool", w, false)
		return
	}
	adjacent, vector := g.adjacent(i, w)
	g.windowsApart(i, "maxPoolApart", w, w.N*w.C*w.OutH*w.OutW/adjacent, adjacent, vector, 0)
}

// maxPoolGrad generates the kernel of a MaxPoolGrad. If y is the maxima of x, it does not read y.
func (g *generator) maxPoolGrad(i int, w *program.Window) {
	in := g.p.Steps[i].In
	if !apart(w) || g.value(in[0]).DType != g.value(in[1]).DType {
		g.pool(i, "maxPoolGrad", w, true)
		return
	}
	adjacent, vector := g.adjacent(i, w)
	cells := ceilDiv(w.H, w.R) * ceilDiv(w.W, adjacent*w.S)
	g.windowsApart(i, "maxPoolGradApart", w, w.N*w.C*cells, adjacent, vector, 0, 2)
}

// apart reports whether windows do not overlap, are inside the image without gaps, and fit in the
// registers of a thread.
func apart(w *program.Window) bool {
	return w.StrideH == w.R && w.StrideW == w.S && w.PadH == 0 && w.PadW == 0 && w.DilationH == 1 && w.DilationW == 1 &&
		w.OutH*w.R <= w.H && w.OutW*w.S <= w.W && w.R*w.S <= 16
}

// adjacent returns the number of adjacent windows per thread, and whether their rows are vectors of
// up to 16 bytes in all operands of step i.
func (g *generator) adjacent(i int, w *program.Window) (int, bool) {
	s := &g.p.Steps[i]
	for v := 8; v > 0; v /= 2 {
		row := v * w.S
		if w.W != w.OutW*w.S || w.OutW%v != 0 || row&(row-1) != 0 || row*w.R > 32 {
			continue
		}
		ok := true
		for _, view := range slices.Concat(s.In, s.Out) {
			a := g.access("", view)
			ok = ok && aligned(&a, row) && row*a.dtype.Size() <= 16
		}
		if ok {
			return v, true
		}
	}
	return 1, false
}

// windowsApart generates a kernel of count threads for windows that do not overlap, from some Ins
// of step i.
func (g *generator) windowsApart(i int, name string, w *program.Window, count, adjacent int, vector bool, ins ...int) {
	if count == 0 {
		return
	}
	g.use(poolPart)
	t := &template{kind: name, call: name, threads: 256, wide: wideIndex(w.N * w.C * w.H * w.W)}
	t.grid = ceilDiv(count, t.threads) // not as many as run at once: that number depends on registers
	t.consts = append(windowConstants(w), constant{"Beside", adjacent}, constant{"Vector", vector}, constant{"Count", count})
	t.read(g, i, ins...)
	t.write(g, i, 0)
	g.fixedLaunch(i, t)
}

func (g *generator) im2col(i int, op *program.Im2Col) {
	g.use(windowPart)
	count := op.N * op.OutH * op.OutW * op.C * op.R * op.S
	g.elementwise(i, "im2col", count, wideIndex(count, op.N*op.C*op.H*op.W), windowConstants(&op.Window))
}

func (g *generator) col2im(i int, op *program.Col2Im) {
	g.use(windowPart)
	count := op.N * op.C * op.H * op.W
	g.elementwise(i, "col2im", count, wideIndex(count, op.N*op.OutH*op.OutW*op.C*op.R*op.S), windowConstants(&op.Window))
}
