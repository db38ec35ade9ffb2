package hostexec

import (
	"math"
	"unsafe"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// rows is a step along the middle of (outer, axis, inner). If inner is 1, a row is contiguous and a
// piece has several rows. Otherwise a piece is a block of neighbouring columns of one outer.
type rows[T real] struct {
	prims[T]
	sum, top           reducer[T]
	outer, axis, inner int
	per                int // rows of a piece
	log                bool
}

// batchedRow is the longest row for which one call takes the exponentials of many rows.
const batchedRow = 32

// columnBlock is the number of neighbouring columns per piece.
const columnBlock = 256

func newRows[T real](k *maker, outer, axis, inner int, log bool) rows[T] {
	r := rows[T]{
		prims[T]{k.level},
		newReducer[T](k.level, program.Sum), newReducer[T](k.level, program.Max), outer, axis, inner,
		max(1, pieceCost/(1000*max(1, axis))), log,
	}
	k.need(2*columnBlock*size[T](), 0)
	return r
}

// pieces returns the number of pieces.
func (r *rows[T]) pieces() int {
	switch {
	case r.outer*r.axis*r.inner == 0:
		return 0
	case r.inner == 1:
		return (r.outer + r.per - 1) / r.per
	}
	return r.outer * ((r.inner + columnBlock - 1) / columnBlock)
}

// column returns the first element and the number of the columns of a piece.
func (r *rows[T]) column(i int) (at, n int) {
	blocks := (r.inner + columnBlock - 1) / columnBlock
	from := i % blocks * columnBlock
	return i/blocks*r.axis*r.inner + from, min(columnBlock, r.inner-from)
}

// vectors returns memory for two vectors of a block of columns.
func (r *rows[T]) vectors(w *worker) (a, b unsafe.Pointer) {
	return w.scratch, unsafe.Add(w.scratch, columnBlock*size[T]())
}

// softmaxStep is a Softmax.
type softmaxStep[T real] struct {
	rows[T]
	x, y place
}

func newSoftmax[T real](k *maker, s *program.Step, op *program.Softmax) ([]phase, error) {
	m := &softmaxStep[T]{newRows[T](k, op.Outer, op.Axis, op.Inner, op.Log), placeOf(&s.In[0]), placeOf(&s.Out[0])}
	return []phase{{m, m.pieces()}}, nil
}

func placeOf(v *program.View) place { return place{v.Value, v.Offset} }

// from returns the address of element n of a place.
func (p place) from(w *worker, n int) unsafe.Pointer { return w.mem.at(p.id, p.offset+n) }

func (m *softmaxStep[T]) piece(w *worker, i int) {
	if m.inner > 1 {
		m.columns(w, i)
		return
	}
	n := m.axis
	first, last := i*m.per, min((i+1)*m.per, m.outer)
	if n <= batchedRow {
		m.short(w, m.x.from(w, first*n), m.y.from(w, first*n), last-first)
		return
	}
	for o := first; o < last; o++ {
		x, y := m.x.from(w, o*n), m.y.from(w, o*n)
		top := m.top.row(w, x, n)
		m.with(w, opSub, n, y, x, top)
		m.apply(w, opExp, n, y, y)
		sum := m.sum.row(w, y, n)
		if m.log {
			m.with(w, opSub, n, y, x, top)
			m.with(w, opSub, n, y, y, T(math.Log(float64(sum))))
		} else {
			m.with(w, opDiv, n, y, y, sum)
		}
	}
}

// short does rows that are too short for a vector; one call takes their exponentials.
func (m *softmaxStep[T]) short(w *worker, px, py unsafe.Pointer, rows int) {
	n := m.axis
	x, y := unsafe.Slice((*T)(px), rows*n), unsafe.Slice((*T)(py), rows*n)
	for at := 0; at < len(x); at += n {
		top := highest(x[at : at+n])
		for i, v := range x[at : at+n] {
			y[at+i] = v - top
		}
	}
	m.apply(w, opExp, rows*n, py, py)
	for at := 0; at < len(x); at += n {
		var sum T
		for _, v := range y[at : at+n] {
			sum += v
		}
		if !m.log {
			for i := range n {
				y[at+i] /= sum
			}
			continue
		}
		top := highest(x[at : at+n])
		log := T(math.Log(float64(sum)))
		for i, v := range x[at : at+n] {
			y[at+i] = v - top - log
		}
	}
}

// highest returns the largest of x, or NaN if one is NaN.
func highest[T real](x []T) T {
	top := neutral[T](program.Max)
	for _, v := range x {
		if v > top || v != v {
			top = v
		}
	}
	return top
}

// columns does a block of columns.
func (m *softmaxStep[T]) columns(w *worker, i int) {
	at, n := m.column(i)
	top, sum := m.vectors(w)
	set(top, n, neutral[T](program.Max))
	for k := range m.axis {
		m.do(w, opMaximum, n, top, top, m.x.from(w, at+k*m.inner), 1, 1)
	}
	set(sum, n, T(0))
	for k := range m.axis {
		y := m.y.from(w, at+k*m.inner)
		m.do(w, opSub, n, y, m.x.from(w, at+k*m.inner), top, 1, 1)
		m.apply(w, opExp, n, y, y)
		m.do(w, opAdd, n, sum, sum, y, 1, 1)
	}
	if m.log {
		m.apply(w, opLog, n, sum, sum)
	}
	for k := range m.axis {
		y := m.y.from(w, at+k*m.inner)
		if m.log {
			m.do(w, opSub, n, y, m.x.from(w, at+k*m.inner), top, 1, 1)
			m.do(w, opSub, n, y, y, sum, 1, 1)
		} else {
			m.do(w, opDiv, n, y, y, sum, 1, 1)
		}
	}
}

// softmaxGradStep is a SoftmaxGrad.
type softmaxGradStep[T real] struct {
	rows[T]
	y, dy, dx place
}

func newSoftmaxGrad[T real](k *maker, s *program.Step, op *program.SoftmaxGrad) ([]phase, error) {
	m := &softmaxGradStep[T]{
		newRows[T](k, op.Outer, op.Axis, op.Inner, op.Log), placeOf(&s.In[0]), placeOf(&s.In[1]), placeOf(&s.Out[0]),
	}
	return []phase{{m, m.pieces()}}, nil
}

func (m *softmaxGradStep[T]) piece(w *worker, i int) {
	if m.inner > 1 {
		m.columns(w, i)
		return
	}
	n := m.axis
	for o := i * m.per; o < min((i+1)*m.per, m.outer); o++ {
		y, dy, dx := m.y.from(w, o*n), m.dy.from(w, o*n), m.dx.from(w, o*n)
		if m.log {
			sum := m.sum.row(w, dy, n)
			m.apply(w, opExp, n, dx, y)
			m.with(w, opMul, n, dx, dx, sum)
			m.do(w, opSub, n, dx, dy, dx, 1, 1)
			continue
		}
		m.do(w, opMul, n, dx, y, dy, 1, 1)
		sum := m.sum.row(w, dx, n)
		m.with(w, opSub, n, dx, dy, sum)
		m.do(w, opMul, n, dx, dx, y, 1, 1)
	}
}

func (m *softmaxGradStep[T]) columns(w *worker, i int) {
	at, n := m.column(i)
	sum, tmp := m.vectors(w)
	set(sum, n, T(0))
	for k := range m.axis {
		dy := m.dy.from(w, at+k*m.inner)
		if !m.log {
			m.do(w, opMul, n, tmp, dy, m.y.from(w, at+k*m.inner), 1, 1)
			dy = tmp
		}
		m.do(w, opAdd, n, sum, sum, dy, 1, 1)
	}
	for k := range m.axis {
		y, dy, dx := m.y.from(w, at+k*m.inner), m.dy.from(w, at+k*m.inner), m.dx.from(w, at+k*m.inner)
		if m.log {
			m.apply(w, opExp, n, tmp, y)
			m.do(w, opMul, n, tmp, tmp, sum, 1, 1)
			m.do(w, opSub, n, dx, dy, tmp, 1, 1)
			continue
		}
		m.do(w, opSub, n, tmp, dy, sum, 1, 1)
		m.do(w, opMul, n, dx, tmp, y, 1, 1)
	}
}
