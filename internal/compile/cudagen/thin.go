package cudagen

import (
	"slices"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// thinWindow is the largest window, in elements of x, of a thin convolution. Then y, or dy, is
// nearly all of the memory traffic, and a kernel with the window in registers takes as long as that
// traffic. Libraries and products by tiles take several times as long.
const thinWindow = 32

// mostPlane is the largest plane of x or y, in elements, for indices of 32 bits.
const mostPlane = 1 << 29

// seen returns the window of a pixel of y in elements of x, including the holes of a dilation.
func seen(w *program.Window) int {
	return w.C * (w.DilationH*(w.R-1) + 1) * (w.DilationW*(w.S-1) + 1)
}

// thin reports whether a convolution of k filters is thin: C*R*S is small.
func thin(w *program.Window, k int) bool {
	return w.R > 0 && w.S > 0 && 0 < seen(w) && seen(w) <= thinWindow && k*w.N*w.OutH*w.OutW > 0 &&
		w.H*w.W < mostPlane && w.OutH*w.OutW < mostPlane
}

// Direct reports whether a kernel of this package does step i of p better than a library: a thin
// Conv or ConvGradFilter that takes about as long as its memory traffic. It makes C*R*S products
// for each element of y or dy. An H200 makes 33 products in the time that 4 bytes take, so the
// limit is thinWindow for f32 and half of it for f16 and bf16. The gradient reads x once for each
// few filters, which must be at most twice its reads of dy.
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

// itemSize returns the bytes of the smallest element of s; 0 if one is no float of at most 32 bits.
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

// gradSlice returns the filters per thread of a thin ConvGradFilter, with sums of so many words.
func gradSlice(op *program.ConvGradFilter, words int) int {
	return max(1, min(4, op.K, thinSums/(op.C*op.R*op.S*words)))
}

const (
	thinThreads = 128
	thinKept    = 64  // registers per thread for windows, at most
	thinSums    = 108 // registers for sums: four filters of 3 by 3 by 3
)

// words returns the registers for a number of step i's arithmetic.
func (g *generator) words(i int) int {
	if g.wide(i) {
		return 2
	}
	return 1
}

// thinConstants returns the constants of a thin convolution whose threads take windows of down by
// adjacent pixels of y.
func thinConstants(w *program.Window, filters, down, adjacent int) []constant {
	return append(windowConstants(w),
		constant{"Filters", filters}, constant{"Down", down}, constant{"Beside", adjacent},
		constant{"Tall", (down-1)*w.StrideH + w.DilationH*(w.R-1) + 1},
		constant{"Broad", (adjacent-1)*w.StrideW + w.DilationW*(w.S-1) + 1})
}

// thinConv generates the kernel of a thin Conv. Blocks share the filters if there are few pixels.
func (g *generator) thinConv(i int, op *program.Conv) {
	g.use(thinPart)
	taps, words := op.C*op.R*op.S, g.words(i)
	most := ceilDiv(op.K, 4)
	to := g.access("b0", g.p.Steps[i].Out[0])
	adjacent := 1
	for v := 16 / to.dtype.Size(); v > 1; v /= 2 {
		kept := op.C * (op.DilationH*(op.R-1) + 1) * ((v-1)*op.StrideW + op.DilationW*(op.S-1) + 1)
		blocks := ceilDiv(op.N*op.OutH*op.OutW/v, thinThreads) * most
		if op.OutW%v == 0 && aligned(&to, v) && kept*words <= thinKept && blocks >= g.t.SMs {
			adjacent = v
			break
		}
	}
	count := op.N * op.OutH * op.OutW / adjacent
	blocks := ceilDiv(count, thinThreads)
	slice := ceilDiv(op.K, min(most, ceilDiv(4*g.t.SMs, blocks)))
	slice = min(slice, 4096/(ceilDiv(taps, 4)*4*words)) // 16 KiB of shared memory
	parts := ceilDiv(op.K, slice)
	slice = ceilDiv(op.K, parts) // of equal size
	t := &template{kind: "thinConv", call: "thinConv", threads: thinThreads, grid: blocks * parts}
	t.wide = wideIndex(op.N*op.C*op.H*op.W, op.N*op.K*op.OutH*op.OutW)
	t.consts = append(thinConstants(&op.Window, op.K, 1, adjacent),
		constant{"Slice", slice}, constant{"Slices", parts}, constant{"Count", count})
	t.read(g, i, 0, 1)
	t.write(g, i, 0)
	g.fixedLaunch(i, t)
}

// thinGradFilter generates the kernel of a thin ConvGradFilter. As many blocks as run at once share
// the pixels.
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
