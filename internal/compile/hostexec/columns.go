package hostexec

import (
	"unsafe"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// Columns turn a convolution into a product: row (c, r, s) has, for each output of some rows of
// outputs, the element of the image under that tap, or 0.

// imToCols makes the columns of channels c0 to c1 of an image for rows y0 to y1 of outputs.
func imToCols[T real](w *window, m mover[T], cols, image unsafe.Pointer, c0, c1, y0, y1 int) {
	bytes, wide := size[T](), (y1-y0)*w.OutW
	for c := c0; c < c1; c++ {
		from := unsafe.Add(image, c*w.image()*bytes)
		for r := range w.R {
			high := w.rowsOf(r, y0, y1)
			for s := range w.S {
				to := unsafe.Add(cols, (((c-c0)*w.R+r)*w.S+s)*wide*bytes)
				sp := w.wide[s]
				if high.hi-high.lo < y1-y0 || sp.hi-sp.lo < w.OutW {
					clear(unsafe.Slice((*T)(to), wide))
				}
				if high.hi > high.lo && sp.hi > sp.lo {
					m.fetch(w, unsafe.Add(to, ((high.lo-y0)*w.OutW+sp.lo)*bytes), unsafe.Add(from, (high.at*w.W+sp.at)*bytes), high.hi-high.lo, sp.hi-sp.lo)
				}
			}
		}
	}
}

// colsToIm adds columns to an image, tap by tap.
func colsToIm[T real](w *window, m mover[T], cols, image unsafe.Pointer, c0, c1, y0, y1 int) {
	bytes, wide := size[T](), (y1-y0)*w.OutW
	for c := c0; c < c1; c++ {
		to := unsafe.Add(image, c*w.image()*bytes)
		for r := range w.R {
			high := w.rowsOf(r, y0, y1)
			for s := range w.S {
				from := unsafe.Add(cols, (((c-c0)*w.R+r)*w.S+s)*wide*bytes)
				sp := w.wide[s]
				if high.hi > high.lo && sp.hi > sp.lo {
					m.spread(w, unsafe.Add(to, (high.at*w.W+sp.at)*bytes), unsafe.Add(from, ((high.lo-y0)*w.OutW+sp.lo)*bytes), high.hi-high.lo, sp.hi-sp.lo)
				}
			}
		}
	}
}

// mover moves rectangles between images and columns.
type mover[T real] struct{ level *level }

// fetch copies the rows by n elements of an image under a tap.
func (m mover[T]) fetch(w *window, to, from unsafe.Pointer, rows, n int) {
	bytes := size[T]()
	toStep, fromStep := w.OutW*bytes, w.StrideH*w.W*bytes
	if w.StrideW == 1 && m.level != nil && m.level.copy2 != nil {
		m.level.copy2(to, from, toStep, fromStep, rows, n*bytes)
		return
	}
	for y := range rows {
		dst, src := unsafe.Slice((*T)(unsafe.Add(to, y*toStep)), n), unsafe.Add(from, y*fromStep)
		if w.StrideW == 1 {
			copy(dst, unsafe.Slice((*T)(src), n))
			continue
		}
		for i := range dst {
			dst[i] = *(*T)(unsafe.Add(src, i*w.StrideW*bytes))
		}
	}
}

// spread adds rows by n elements to an image under a tap.
func (m mover[T]) spread(w *window, to, from unsafe.Pointer, rows, n int) {
	bytes := size[T]()
	toStep, fromStep := w.StrideH*w.W*bytes, w.OutW*bytes
	if w.StrideW == 1 && m.level != nil && m.level.add2 != nil && bytes == 4 {
		m.level.add2(to, from, toStep, fromStep, rows, n*bytes)
		return
	}
	for y := range rows {
		dst, src := unsafe.Add(to, y*toStep), unsafe.Slice((*T)(unsafe.Add(from, y*fromStep)), n)
		for i, x := range src {
			*(*T)(unsafe.Add(dst, i*w.StrideW*bytes)) += x
		}
	}
}

// im2Col is an Im2Col, whose rows are the outputs. A piece is an image.
type im2Col[T real] struct {
	window
	in, out place
}

type col2Im[T real] im2Col[T]

func newIm2Col[T real](s *program.Step, w program.Window) ([]phase, error) {
	return []phase{{&im2Col[T]{newWindow(w), placeOf(&s.In[0]), placeOf(&s.Out[0])}, w.N}}, nil
}

func newCol2Im[T real](s *program.Step, w program.Window) ([]phase, error) {
	return []phase{{&col2Im[T]{newWindow(w), placeOf(&s.In[0]), placeOf(&s.Out[0])}, w.N}}, nil
}

func (m *im2Col[T]) piece(w *worker, n int) {
	row := m.C * m.taps()
	image, cols := plane[T](w, m.in, n, m.C*m.image()), plane[T](w, m.out, n, m.result()*row)
	clear(cols)
	for c := range m.C {
		m.walk(func(tap, out, at int) { cols[out*row+c*m.taps()+tap] = image[c*m.image()+at] })
	}
}

func (m *col2Im[T]) piece(w *worker, n int) {
	row := m.C * m.taps()
	cols, image := plane[T](w, m.in, n, m.result()*row), plane[T](w, m.out, n, m.C*m.image())
	clear(image)
	for c := range m.C {
		m.walk(func(tap, out, at int) { image[c*m.image()+at] += cols[out*row+c*m.taps()+tap] })
	}
}

// walk calls f for each tap, output and element of the image under it.
func (w *window) walk(f func(tap, out, at int)) {
	for r, high := range w.high {
		for s, wide := range w.wide {
			for y := high.lo; y < high.hi; y++ {
				at := (high.at+(y-high.lo)*w.StrideH)*w.W + wide.at
				for x := wide.lo; x < wide.hi; x++ {
					f(r*w.S+s, y*w.OutW+x, at)
					at += w.StrideW
				}
			}
		}
	}
}
