package hostexec

import (
	"math"
	"unsafe"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// entropyStep is a CrossEntropy: each row by itself, then the sum over rows, in order.
type entropyStep[T real] struct {
	rows[T]
	x, t, loss, dx place
	graded         bool
	partial        place // the loss of each row, in f64
}

type entropySum[T real] entropyStep[T]

func newCrossEntropy[T real](k *maker, s *program.Step, op *program.CrossEntropy) ([]phase, error) {
	m := &entropyStep[T]{
		rows: newRows[T](k, op.Rows, op.Classes, 1, false), x: placeOf(&s.In[0]), t: placeOf(&s.In[1]), loss: placeOf(&s.Out[0]),
		graded: len(s.Out) > 1,
	}
	if m.graded {
		m.dx = placeOf(&s.Out[1])
	}
	m.partial = place{id: k.temp(f64, op.Rows)}
	return []phase{{m, m.pieces()}, {(*entropySum[T])(m), 1}}, nil
}

func (m *entropyStep[T]) piece(w *worker, i int) {
	first, last := i*m.per, min((i+1)*m.per, m.outer)
	if m.graded && m.axis <= batchedRow {
		m.short(w, first, last)
		return
	}
	for o := first; o < last; o++ {
		*(*float64)(m.partial.from(w, o)) = m.row(w, o)
	}
}

// short does rows that are too short for a vector; one call takes their exponentials.
func (m *entropyStep[T]) short(w *worker, first, last int) {
	n, k := m.axis, (last-first)*m.axis
	x, t := unsafe.Slice((*T)(m.x.from(w, first*n)), k), unsafe.Slice((*T)(m.t.from(w, first*n)), k)
	p := m.dx.from(w, first*n)
	dx := unsafe.Slice((*T)(p), k)
	loss := unsafe.Slice((*float64)(m.partial.from(w, first)), last-first)
	for o := range loss {
		top := highest(x[o*n : (o+1)*n])
		for i, v := range x[o*n : (o+1)*n] {
			dx[o*n+i] = v - top
		}
	}
	m.apply(w, opExp, k, p, p)
	for o := range loss {
		row, target := dx[o*n:(o+1)*n], t[o*n:(o+1)*n]
		var sum, weight T
		for i, v := range row {
			sum += v
			weight += target[i]
		}
		loss[o] = weighted(x[o*n:(o+1)*n], target, float64(highest(x[o*n:(o+1)*n]))+math.Log(float64(sum)))
		scale := weight / sum
		for i, v := range row {
			row[i] = T(v*scale) - target[i]
		}
	}
}

// row returns the loss of a row, and stores the gradient.
func (m *entropyStep[T]) row(w *worker, o int) float64 {
	n := m.axis
	x, t := m.x.from(w, o*n), m.t.from(w, o*n)
	block, acc := m.vectors(w)
	top := m.top.row(w, x, n)
	var sum T
	if m.graded {
		dx := m.dx.from(w, o*n)
		m.with(w, opSub, n, dx, x, top)
		m.apply(w, opExp, n, dx, dx)
		sum = m.sum.row(w, dx, n)
		m.with(w, opMul, n, dx, dx, m.sum.row(w, t, n)/sum)
		m.do(w, opSub, n, dx, dx, t, 1, 1)
	} else {
		m.sum.clear(acc)
		for at := 0; at < n; at += columnBlock {
			k := min(columnBlock, n-at)
			m.with(w, opSub, k, block, unsafe.Add(x, at*size[T]()), top)
			m.apply(w, opExp, k, block, block)
			m.sum.more(w, acc, block, k)
		}
		sum = m.sum.close(acc)
	}
	return weighted(unsafe.Slice((*T)(x), n), unsafe.Slice((*T)(t), n), float64(top)+math.Log(float64(sum)))
}

// weighted returns the sum of -t*(x - log) over the t that are not 0: 0 times -inf counts as 0.
// Most are 0, so four are tested at a time.
func weighted[T real](x, t []T, log float64) (loss float64) {
	for i := 0; i < len(t); {
		if i+4 <= len(t) && t[i] == 0 && t[i+1] == 0 && t[i+2] == 0 && t[i+3] == 0 {
			i += 4
			continue
		}
		if t[i] != 0 {
			loss -= float64(float64(t[i]) * (float64(x[i]) - log))
		}
		i++
	}
	return loss
}

func (m *entropySum[T]) piece(w *worker, _ int) {
	loss := 0.0
	for _, x := range unsafe.Slice((*float64)(m.partial.from(w, 0)), m.outer) {
		loss += x
	}
	*(*T)(m.loss.from(w, 0)) = T(loss)
}
