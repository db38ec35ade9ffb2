package cudagen

import (
	"slices"

	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/tensor"
)

// A convolution is thin if a pixel of y reads at most thinWindow elements. Then y, or dy, is nearly
// all of the data, and a kernel that keeps the window in registers takes about as long as moving
// them. Libraries and products by tiles take several times as long.
const thinWindow = 32

// mostPlane is the elements of a plane of x or y whose places the kernels count in 32 bits.
const mostPlane = 1 << 29

// seen is how many elements of x a pixel of y looks at, with the holes of a dilation counted.
func seen(w *program.Window) int {
	return w.C * (w.DilationH*(w.R-1) + 1) * (w.DilationW*(w.S-1) + 1)
}

// thin reports whether a convolution of k filters is one: C*R*S is small.
func thin(w *program.Window, k int) bool {
	return w.R > 0 && w.S > 0 && 0 < seen(w) && seen(w) <= thinWindow && k*w.N*w.OutH*w.OutW > 0 &&
		w.H*w.W < mostPlane && w.OutH*w.OutW < mostPlane
}

// Direct reports whether the kernel of this package should do step i of p even if a library does
// convolutions: a thin Conv or ConvGradFilter that is limited by memory. It makes C*R*S products
// for each element of y, or dy. An H200 makes 33 in the time that 4 bytes take: elements of f32 may
// have thinWindow of them, f16 and bf16 half of that. The gradient reads x once for each few
// filters; that must be at most twice as much as it reads of dy.
func Direct(p *program.Program, i int) bool {
	s := &p.Steps[i]
	switch op := s.Op.(type) {
	case *program.Conv:
		return thin(&op.Window, op.K) && seen(&op.Window) <= thinWindow*itemSize(p, s)/4
	case *program.ConvGradFilter:
		return thin(&op.Window, op.K) && seen(&op.Window) <= thinWindow*itemSize(p, s)/4 &&
			op.C*ceilDiv(op.K, gradSlice(op, 1)) <= 2*op.K
	}
	return false
}

// itemSize is the bytes of the smallest element of s; 0 if one is no floating-point number of 32
// bits at most.
func itemSize(p *program.Program, s *program.Step) int {
	size := 4
	for _, v := range slices.Concat(s.In, s.Out) {
		switch dt := p.Values[v.Value].DType; dt {
		case tensor.F32, tensor.F16, tensor.BF16:
			size = min(size, dt.Size())
		default:
			return 0
		}
	}
	return size
}

// gradSlice is how many filters' sums a thread of a thin ConvGradFilter has, each of so many words.
func gradSlice(op *program.ConvGradFilter, words int) int {
	return max(1, min(4, op.K, thinSums/(op.C*op.R*op.S*words)))
}

const (
	thinThreads = 128
	thinKept    = 64  // registers of a thread for windows, at most
	thinSums    = 108 // and for sums: four filters of 3 by 3 by 3
)

// words is how many registers a number of step i's arithmetic takes.
func (g *generator) words(i int) int {
	if g.wide(i) {
		return 2
	}
	return 1
}

// thinConstants returns the numbers of a thin convolution whose threads have windows of down by
// across pixels of y.
func thinConstants(w *program.Window, filters, down, across int) []constant {
	return append(windowConstants(w),
		constant{"Filters", filters}, constant{"Down", down}, constant{"Beside", across},
		constant{"Tall", (down-1)*w.StrideH + w.DilationH*(w.R-1) + 1},
		constant{"Broad", (across-1)*w.StrideW + w.DilationW*(w.S-1) + 1})
}

// thinConv makes the kernel of a thin Conv: blocks that share the filters among them where there
// are few pixels.
func (g *generator) thinConv(i int, op *program.Conv) {
	g.use(thinPart)
	taps, words := op.C*op.R*op.S, g.words(i)
	most := ceilDiv(op.K, 4)
	to := g.access("b0", g.p.Steps[i].Out[0])
	beside := 1
	for v := 16 / to.dtype.Size(); v > 1; v /= 2 {
		kept := op.C * (op.DilationH*(op.R-1) + 1) * ((v-1)*op.StrideW + op.DilationW*(op.S-1) + 1)
		blocks := ceilDiv(op.N*op.OutH*op.OutW/v, thinThreads) * most
		if op.OutW%v == 0 && aligned(&to, v) && kept*words <= thinKept && blocks >= g.t.SMs {
			beside = v
			break
		}
	}
	count := op.N * op.OutH * op.OutW / beside
	blocks := ceilDiv(count, thinThreads)
	slice := ceilDiv(op.K, min(most, ceilDiv(4*g.t.SMs, blocks)))
	slice = min(slice, 4096/(ceilDiv(taps, 4)*4*words)) // 16 KiB of shared memory
	parts := ceilDiv(op.K, slice)
	slice = ceilDiv(op.K, parts) // equal parts
	t := &template{kind: "thinConv", call: "thinConv", threads: thinThreads, grid: blocks * parts}
	t.wide = wideIndex(op.N*op.C*op.H*op.W, op.N*op.K*op.OutH*op.OutW)
	t.consts = append(thinConstants(&op.Window, op.K, 1, beside),
		constant{"Slice", slice}, constant{"Slices", parts}, constant{"Count", count})
	t.read(g, i, 0, 1)
	t.write(g, i, 0)
	g.fixedLaunch(i, t)
}

// thinGradFilter makes the kernel of a thin ConvGradFilter: as many blocks as run at once share the
// pixels.
func (g *generator) thinGradFilter(i int, op *program.ConvGradFilter) {
	g.use(thinPart)
	taps, words := op.C*op.R*op.S, g.words(i)
	slice := gradSlice(op, words)
	parts := ceilDiv(op.K, slice)
	down := 4 / words
	for op.OutH%down != 0 {
		down /= 2
	}
	count := op.N * op.OutH / down * op.OutW
	resident := 4
	if slice*taps*words > thinSums/2 {
		resident = 2
	}
	splits := max(1, min(resident*g.t.SMs/parts, ceilDiv(count, thinThreads)))
	t := &template{kind: "thinGradFilter", call: "thinGradFilter", threads: thinThreads, grid: parts * splits}
	t.wide = wideIndex(op.N*op.C*op.H*op.W, op.N*op.K*op.OutH*op.OutW, parts*slice*taps*splits)
	t.consts = append(thinConstants(&op.Window, op.K, down, 1),
		constant{"Slice", slice}, constant{"Slices", parts}, constant{"Splits", splits}, constant{"Count", count})
	t.read(g, i, 0, 1)
	t.write(g, i, 0)
	numbers, counters := 0, 0
	if splits > 1 {
		numbers, counters = parts*slice*taps*splits, parts
	}
	t.split(g, i, numbers, counters)
	g.fixedLaunch(i, t)
}
