package hostexec

import (
	"math"
	"unsafe"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// sparseEntropyStep is a SparseCrossEntropy. A first phase reads and checks the labels, then each
// row is done by itself, and then the losses are added in the order of the rows.
type sparseEntropyStep[T real] struct {
	rows[T]
	op                     *program.SparseCrossEntropy
	x, label, weight, loss place
	dx                     place
	graded                 bool
	dtype                  tensor.DType // of the labels
	labels                 []int        // after readLabels; -1 for rows that do not count
	partial                place        // the loss of each row, in f64
}

type (
	readLabels[T real]       sparseEntropyStep[T]
	sparseEntropySum[T real] sparseEntropyStep[T]
)

func newSparseEntropy[T real](k *maker, s *program.Step, op *program.SparseCrossEntropy) ([]phase, error) {
	m := &sparseEntropyStep[T]{
		rows: newRows[T](k, op.Rows, op.Classes, 1, false), op: op, x: placeOf(&s.In[0]), label: placeOf(&s.In[1]),
		weight: placeOf(&s.In[2]), loss: placeOf(&s.Out[0]), graded: len(s.Out) > 1,
		dtype: k.p.Values[s.In[1].Value].DType, labels: make([]int, op.Rows),
	}
	if m.graded {
		m.dx = placeOf(&s.Out[1])
	}
	m.partial = place{id: k.temp(f64, op.Rows)}
	return []phase{{(*readLabels[T])(m), 1}, {m, m.pieces()}, {(*sparseEntropySum[T])(m), 1}}, nil
}

func (m *readLabels[T]) piece(w *worker, _ int) {
	var x [1]float64
	for i := range m.labels {
		loadRun(x[:], m.label.from(w, i), m.dtype, 1)
		switch {
		case x[0] == float64(m.op.Ignore):
			m.labels[i] = -1
		case x[0] >= 0 && x[0] < float64(m.op.Classes):
			m.labels[i] = int(x[0])
		default:
			w.crew.fail(0, m.op.Wrong(i, x[0]))
			return
		}
	}
}

func (m *sparseEntropyStep[T]) piece(w *worker, i int) {
	for o := i * m.per; o < min((i+1)*m.per, m.outer); o++ {
		loss := unsafe.Slice((*float64)(m.partial.from(w, o)), 1)
		switch label := m.labels[o]; {
		case label >= 0:
			loss[0] = m.row(w, o, label)
		default:
			loss[0] = 0
			if m.graded {
				clear(unsafe.Slice((*T)(m.dx.from(w, o*m.axis)), m.axis))
			}
		}
	}
}

// row returns the loss of a row, and stores the gradient, which may be in the memory of x.
func (m *sparseEntropyStep[T]) row(w *worker, o, label int) float64 {
	n, eps := m.axis, m.op.Smoothing
	x := m.x.from(w, o*n)
	top := m.top.row(w, x, n)
	loss := -(1 - eps) * float64(unsafe.Slice((*T)(x), n)[label])
	if eps != 0 {
		loss -= eps * float64(m.sum.row(w, x, n)) / float64(n)
	}
	if !m.graded {
		return loss + float64(top) + math.Log(float64(m.exponentials(w, x, top)))
	}
	dx := m.dx.from(w, o*n)
	m.with(w, opSub, n, dx, x, top)
	m.apply(w, opExp, n, dx, dx)
	sum := m.sum.row(w, dx, n)
	scale := *(*T)(m.weight.from(w, 0)) * T(m.op.Scale)
	m.with(w, opMul, n, dx, dx, scale/sum)
	if eps != 0 {
		m.with(w, opSub, n, dx, dx, scale*T(eps/float64(n)))
	}
	unsafe.Slice((*T)(dx), n)[label] -= scale * T(1-eps)
	return loss + float64(top) + math.Log(float64(sum))
}

// exponentials returns the sum of the exponentials of a row less top.
func (m *sparseEntropyStep[T]) exponentials(w *worker, x unsafe.Pointer, top T) T {
	block, acc := m.vectors(w)
	m.sum.clear(acc)
	for at := 0; at < m.axis; at += columnBlock {
		k := min(columnBlock, m.axis-at)
		m.with(w, opSub, k, block, unsafe.Add(x, at*size[T]()), top)
		m.apply(w, opExp, k, block, block)
		m.sum.more(w, acc, block, k)
	}
	return m.sum.close(acc)
}

func (m *sparseEntropySum[T]) piece(w *worker, _ int) {
	loss := 0.0
	for _, x := range unsafe.Slice((*float64)(m.partial.from(w, 0)), m.outer) {
		loss += x
	}
	*(*T)(m.loss.from(w, 0)) = T(loss * float64(*(*T)(m.weight.from(w, 0))))
}
