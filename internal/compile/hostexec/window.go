package hostexec

import (
	"unsafe"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// span is the outputs lo to hi of one dimension whose tap is inside the image, and the image's
// element of the first one. Neighbours are stride elements apart.
type span struct{ lo, hi, at int }

// spanOf returns the span of a tap: output o reads element o*stride + tap*dilation - pad of n.
func spanOf(tap, n, out, stride, dilation, pad int) span {
	first := tap*dilation - pad
	s := span{0, out, 0}
	if first < 0 {
		s.lo = min((-first+stride-1)/stride, out)
	}
	if last := n - 1 - first; last < 0 {
		s.hi = 0
	} else {
		s.hi = min(out, last/stride+1)
	}
	s.hi = max(s.hi, s.lo)
	s.at = s.lo*stride + first
	return s
}

// window is a Window with the spans of its taps.
type window struct {
	program.Window
	high []span // of each row of taps
	wide []span // of each column of taps
}

func newWindow(w program.Window) window {
	x := window{Window: w}
	for r := range w.R {
		x.high = append(x.high, spanOf(r, w.H, w.OutH, w.StrideH, w.DilationH, w.PadH))
	}
	for s := range w.S {
		x.wide = append(x.wide, spanOf(s, w.W, w.OutW, w.StrideW, w.DilationW, w.PadW))
	}
	return x
}

// rowsOf returns the part of high span r for outputs from to to, with the image row of its first
// output.
func (w *window) rowsOf(r, from, to int) span {
	s := w.high[r]
	lo := min(max(s.lo, from), s.hi)
	return span{lo, max(lo, min(s.hi, to)), s.at + (lo-s.lo)*w.StrideH}
}

func (w *window) image() int  { return w.H * w.W }
func (w *window) result() int { return w.OutH * w.OutW }
func (w *window) taps() int   { return w.R * w.S }

// poolStep is MaxPool, AvgPool or one of their gradients. A piece is some planes (n, c).
type poolStep[T real] struct {
	window
	do  func(p *poolStep[T], w *worker, plane int)
	in  []place
	out place
	per int

	level  *level
	inside bool // no window crosses the left or right edge
	reach  int  // columns of the image that a window covers
	pairs  bool // windows suit level.maxPairs
}

func newPool[T real](k *maker, s *program.Step, w program.Window, do func(p *poolStep[T], w *worker, plane int)) ([]phase, error) {
	p := &poolStep[T]{window: newWindow(w), do: do, out: placeOf(&s.Out[0]), level: k.level}
	k.need(w.W*size[T](), 0)
	p.reach = (w.S-1)*w.DilationW + 1
	p.inside = w.PadW == 0 && (w.OutW-1)*w.StrideW+p.reach <= w.W
	p.pairs = size[T]() == 4 && k.level != nil && k.level.maxPairs != nil && w.R == 2 && w.S == 2 && w.StrideH == 2 && w.StrideW == 2 &&
		w.DilationH == 1 && w.DilationW == 1 && w.PadH == 0 && p.inside && 2*w.OutH <= w.H && w.OutH > 0 && w.OutW >= 4
	for i := range s.In {
		p.in = append(p.in, placeOf(&s.In[i]))
	}
	cost := max(1, (p.result()*p.taps()+p.image())*1000)
	p.per = max(1, pieceCost/cost)
	return []phase{{p, (w.N*w.C + p.per - 1) / p.per}}, nil
}

func (p *poolStep[T]) piece(w *worker, i int) {
	for plane := i * p.per; plane < min((i+1)*p.per, p.N*p.C); plane++ {
		p.do(p, w, plane)
	}
}

// plane returns plane i of an operand, n elements long.
func plane[T real](w *worker, p place, i, n int) []T {
	return unsafe.Slice((*T)(p.from(w, i*n)), n)
}

// maxPool computes, for each row of outputs, the largest element of each column of its rows, and
// then of neighbouring columns.
func maxPool[T real](p *poolStep[T], w *worker, i int) {
	x, y := plane[T](w, p.in[0], i, p.image()), plane[T](w, p.out, i, p.result())
	if p.pairs {
		p.level.maxPairs(unsafe.Pointer(&y[0]), unsafe.Pointer(&x[0]), p.W*4, p.OutH, p.OutW)
		return
	}
	tops := unsafe.Slice((*T)(w.scratch), p.W)
	v := prims[T]{p.level}
	for oh := range p.OutH {
		set(w.scratch, p.W, neutral[T](program.Max))
		for r := range p.R {
			if ih := oh*p.StrideH + r*p.DilationH - p.PadH; ih >= 0 && ih < p.H && p.W > 0 {
				v.do(w, opMaximum, p.W, w.scratch, w.scratch, unsafe.Pointer(&x[ih*p.W]), 1, 1)
			}
		}
		row := y[oh*p.OutW : (oh+1)*p.OutW]
		if p.inside {
			for k := range row {
				taps := tops[k*p.StrideW:][:p.reach]
				top := taps[0]
				for s := p.DilationW; s < len(taps); s += p.DilationW {
					top = max(top, taps[s])
				}
				row[k] = top
			}
			continue
		}
		for k := range row {
			row[k] = neutral[T](program.Max)
		}
		for _, s := range p.wide {
			at := s.at
			for k := s.lo; k < s.hi; k++ {
				row[k] = max(row[k], tops[at])
				at += p.StrideW
			}
		}
	}
}

// each calls f for each tap and each row of outputs that the tap's elements reach.
func (w *window) each(f func(oh, ih int, s span)) {
	for r := range w.R {
		high := w.high[r]
		for oh := high.lo; oh < high.hi; oh++ {
			for s := range w.S {
				if wide := w.wide[s]; wide.lo < wide.hi {
					f(oh, high.at+(oh-high.lo)*w.StrideH, wide)
				}
			}
		}
	}
}

func maxPoolGrad[T real](p *poolStep[T], w *worker, i int) {
	x, dx := plane[T](w, p.in[0], i, p.image()), plane[T](w, p.out, i, p.image())
	y, dy := plane[T](w, p.in[1], i, p.result()), plane[T](w, p.in[2], i, p.result())
	if p.pairs {
		if 2*p.OutH < p.H || 2*p.OutW < p.W {
			clear(dx) // the row and the column outside of all windows
		}
		p.level.maxPairsGrad(unsafe.Pointer(&dx[0]), unsafe.Pointer(&x[0]), unsafe.Pointer(&y[0]), unsafe.Pointer(&dy[0]), p.W*4, p.OutH, p.OutW)
		return
	}
	clear(dx)
	for oh := range p.OutH {
		for ow := range p.OutW {
			k := oh*p.OutW + ow
			if at := p.first(x, y[k], oh, ow); at >= 0 {
				dx[at] += dy[k]
			}
		}
	}
}

// first returns the first element of the window at (oh, ow) that equals v, or -1.
func (p *poolStep[T]) first(x []T, v T, oh, ow int) int {
	h, w := oh*p.StrideH-p.PadH, ow*p.StrideW-p.PadW
	at := -1
	if h >= 0 && w >= 0 && h+(p.R-1)*p.DilationH < p.H && w+(p.S-1)*p.DilationW < p.W {
		// From the last to the first, without an unpredictable branch.
		for r := p.R - 1; r >= 0; r-- {
			i := (h+r*p.DilationH)*p.W + w + (p.S-1)*p.DilationW
			for range p.S {
				if x[i] == v {
					at = i
				}
				i -= p.DilationW
			}
		}
		return at
	}
	for r := p.R - 1; r >= 0; r-- {
		ih := h + r*p.DilationH
		for s := p.S - 1; s >= 0 && ih >= 0 && ih < p.H; s-- {
			if iw := w + s*p.DilationW; iw >= 0 && iw < p.W && x[ih*p.W+iw] == v {
				at = ih*p.W + iw
			}
		}
	}
	return at
}

func avgPool[T real](p *poolStep[T], w *worker, i int) {
	x, y := plane[T](w, p.in[0], i, p.image()), plane[T](w, p.out, i, p.result())
	clear(y)
	p.each(func(oh, ih int, s span) {
		to, from := y[oh*p.OutW:], x[ih*p.W+s.at:]
		at := 0
		for k := s.lo; k < s.hi; k++ {
			to[k] += from[at]
			at += p.StrideW
		}
	})
	n := T(p.taps())
	for k := range y {
		y[k] /= n
	}
}

func avgPoolGrad[T real](p *poolStep[T], w *worker, i int) {
	dy, dx := plane[T](w, p.in[0], i, p.result()), plane[T](w, p.out, i, p.image())
	clear(dx)
	n := T(p.taps())
	p.each(func(oh, ih int, s span) {
		from, to := dy[oh*p.OutW:], dx[ih*p.W+s.at:]
		at := 0
		for k := s.lo; k < s.hi; k++ {
			to[at] += from[k] / n
			at += p.StrideW
		}
	})
}
