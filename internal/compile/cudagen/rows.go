package cudagen

import "github.com/symgrad/symgrad/internal/compile/program"

// softmax generates the kernel of a Softmax or SoftmaxGrad.
func (g *generator) softmax(i int, name string, outer, axis, inner int, log bool) {
	rows := outer * inner
	if rows*axis == 0 {
		return
	}
	g.use(rowsPart)
	t := &template{kind: name, wide: wideIndex(rows * axis)}
	lanes, keep := 1, 0
	if inner == 1 {
		lanes, keep = lanesOf(rows, axis, g.t.SMs)
		t.call, t.threads = name+"Rows", rowThreads(lanes)
	} else {
		t.call, t.threads = name+"Columns", 128
	}
	t.grid = ceilDiv(rows, t.threads/lanes)
	t.consts = []constant{
		{"Rows", rows},
		{"Axis", axis},
		{"Inner", inner},
		{"Log", log},
		{"Lanes", lanes},
		{"Keep", keep},
	}
	t.read(g, i, 0)
	if name == "softmaxGrad" {
		t.read(g, i, 1)
	}
	t.write(g, i, 0)
	g.fixedLaunch(i, t)
}

// lanesOf returns the threads per row, a power of 2, and the numbers that each keeps in registers;
// 0 if they are too many.
func lanesOf(rows, axis, sms int) (lanes, keep int) {
	lanes = min(32, ceilPower(axis))
	if axis > 1024 || axis > 256 && rows < sms*4 {
		lanes = min(1024, max(64, ceilPower(axis/8)))
	}
	if keep = ceilDiv(axis, lanes); keep > 32 {
		keep = 0
	}
	return lanes, keep
}

// rowThreads returns the threads per block with lanes threads per row. A block has several rows, or
// one if a row has more lanes than a warp.
func rowThreads(lanes int) int {
	if lanes > 32 {
		return lanes
	}
	return 128
}

// crossEntropy generates the kernel of a CrossEntropy. If it is small it has one block, so that no
// blocks need to combine.
func (g *generator) crossEntropy(i int, op *program.CrossEntropy) {
	g.use(rowsPart)
	grad := len(g.p.Steps[i].Out) > 1
	lanes, _ := lanesOf(op.Rows, op.Classes, g.t.SMs)
	t := &template{kind: "crossEntropy", call: "crossEntropy", threads: rowThreads(lanes), wide: wideIndex(op.Rows * op.Classes)}
	t.grid = max(1, min(ceilDiv(op.Rows, t.threads/lanes), 4*g.t.SMs))
	if op.Rows*lanes <= 4096 {
		t.grid = 1
		if lanes <= 32 {
			t.threads = 1024
		}
	}
	t.consts = []constant{{"Rows", op.Rows}, {"Axis", op.Classes}, {"Lanes", lanes}, {"Blocks", t.grid}, {"Grad", grad}}
	t.read(g, i, 0, 1)
	t.write(g, i, 0)
	if grad {
		t.write(g, i, 1)
	} else {
		t.nothing(i, "u8 *b1")
	}
	t.split(g, i, t.grid, 1)
	g.fixedLaunch(i, t)
}

// sparseCrossEntropy generates the kernel of a SparseCrossEntropy, with the blocks of crossEntropy.
func sparseCrossEntropy(g *generator, i int, op *program.SparseCrossEntropy) {
	g.use(rowsPart)
	grad := len(g.p.Steps[i].Out) > 1
	lanes, _ := lanesOf(op.Rows, op.Classes, g.t.SMs)
	t := &template{kind: "sparseEntropy", call: "sparseCrossEntropy", threads: rowThreads(lanes), wide: wideIndex(op.Rows * op.Classes)}
	t.grid = max(1, min(ceilDiv(op.Rows, t.threads/lanes), 4*g.t.SMs))
	t.consts = []constant{
		{"Rows", op.Rows},
		{"Axis", op.Classes},
		{"Lanes", lanes},
		{"Blocks", t.grid},
		{"Grad", grad},
		{"Wide", entropyWidth(g, i, op)},
		{"Ignore", op.Ignore},
		{"Smooth", op.Smoothing != 0},
		{"Smoothing", op.Smoothing},
		{"Scale", op.Scale},
	}
	t.read(g, i, 0, 1, 2)
	t.write(g, i, 0)
	if grad {
		t.write(g, i, 1)
	} else {
		t.nothing(i, "u8 *b1")
	}
	t.split(g, i, t.grid, 1)
	t.fault(i)
	g.fixedLaunch(i, t)
}

// entropyWidth returns the elements of a row that a thread loads and stores at once.
func entropyWidth(g *generator, i int, op *program.SparseCrossEntropy) int {
	s := &g.p.Steps[i]
	for w := 8; w > 1; w /= 2 {
		fits := op.Classes%w == 0
		for _, v := range append([]program.View{s.In[0]}, s.Out[1:]...) {
			a := g.access("", v)
			fits = fits && w*a.dtype.Size() <= 16 && aligned(&a, w)
		}
		if fits {
			return w
		}
	}
	return 1
}
