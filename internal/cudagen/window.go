package cudagen

import "github.com/symgrad/symgrad/internal/program"

// windowConstants is the numbers of a window.
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

// elementwise is a kernel of one thread for each of count elements of Out 0 of step i.
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

// pool makes the kernel of a pooling, or of its gradient.
func (g *generator) pool(i int, name string, w *program.Window, grad bool) {
	g.use(poolPart)
	large, small := w.N*w.C*w.H*w.W, w.N*w.C*w.OutH*w.OutW
	count := small
	if grad {
		count = large
	}
	g.elementwise(i, name, count, wideIndex(large, small), windowConstants(w))
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
