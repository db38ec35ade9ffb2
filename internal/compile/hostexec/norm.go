package hostexec

import (
	"math"
	"unsafe"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// channels is how BatchNorm and its gradient walk (n, c, spatial): one channel after the other, or
// blocks of neighbouring channels if spatial is 1.
type channels[T real] struct {
	prims[T]
	sum           reducer[T]
	n, c, spatial int
	wide          int // channels of a block
	run           int // contiguous elements: of a channel of a sample, or of a block of channels
}

// runBlock is the most elements of a run that are done at a time.
const runBlock = 1024

func newChannels[T real](k *maker, n, c, spatial int) channels[T] {
	h := channels[T]{prims[T]{k.level}, newReducer[T](k.level, program.Sum), n, c, spatial, 1, spatial}
	if spatial == 1 {
		h.wide, h.run = columnBlock, columnBlock
	}
	k.need((2*runBlock+4*columnBlock+width)*size[T](), 0)
	return h
}

func (h *channels[T]) pieces() int { return (h.c + h.wide - 1) / h.wide }

// scratch returns memory for two runs, four numbers for each channel of a block, and an
// accumulator.
func (h *channels[T]) scratch(w *worker) (a, b unsafe.Pointer, of [4][]T, acc unsafe.Pointer) {
	bytes := size[T]()
	at := unsafe.Add(w.scratch, 2*runBlock*bytes)
	for i := range of {
		of[i] = unsafe.Slice((*T)(unsafe.Add(at, i*columnBlock*bytes)), columnBlock)
	}
	return w.scratch, unsafe.Add(w.scratch, runBlock*bytes), of, unsafe.Add(at, 4*columnBlock*bytes)
}

// each calls f with the first element and the length of each run of a piece.
func (h *channels[T]) each(i int, f func(at, n int)) {
	c := i * h.wide
	if h.wide > 1 {
		for n := range h.n {
			f(n*h.c+c, min(h.wide, h.c-c))
		}
		return
	}
	for n := range h.n {
		first := (n*h.c + c) * h.spatial
		for at := 0; at < h.spatial; at += runBlock {
			f(first+at, min(runBlock, h.spatial-at))
		}
	}
}

// lane returns an operand for a run with one number per channel: those of a block of channels, or a
// single one.
func (h *channels[T]) lane(w *worker, of []T) (p unsafe.Pointer, step int) {
	if h.wide > 1 {
		return unsafe.Pointer(unsafe.SliceData(of)), 1
	}
	fill(unsafe.Pointer(&w.line), of[0])
	return unsafe.Pointer(&w.line), 0
}

// by computes d[i] = op(a[i], the number of i's channel).
func (h *channels[T]) by(w *worker, op vecOp, n int, d, a unsafe.Pointer, of []T) {
	p, step := h.lane(w, of)
	h.do(w, op, n, d, a, p, 1, step)
}

// total adds the results of run over the runs of a piece, by channel.
func (h *channels[T]) total(w *worker, i int, to []T, acc unsafe.Pointer, run func(at, n int) unsafe.Pointer) {
	if h.wide > 1 {
		clear(to)
		p := unsafe.Pointer(unsafe.SliceData(to))
		h.each(i, func(at, n int) { h.do(w, opAdd, n, p, p, run(at, n), 1, 1) })
		return
	}
	h.sum.clear(acc)
	h.each(i, func(at, n int) { h.sum.more(w, acc, run(at, n), n) })
	to[0] = h.sum.close(acc)
}

// normStep is a BatchNorm.
type normStep[T real] struct {
	channels[T]
	op  program.BatchNorm
	in  [3]place
	out [5]place
}

func newBatchNorm[T real](k *maker, s *program.Step, op *program.BatchNorm) ([]phase, error) {
	m := &normStep[T]{channels: newChannels[T](k, op.N, op.C, op.Spatial), op: *op}
	for i := range s.In {
		m.in[i] = placeOf(&s.In[i])
	}
	for i := range s.Out {
		m.out[i] = placeOf(&s.Out[i])
	}
	return []phase{{m, m.pieces()}}, nil
}

func (m *normStep[T]) piece(w *worker, i int) {
	a, _, of, acc := m.scratch(w)
	mean, rstd, variance := of[0], of[1], of[2]
	first, last := i*m.wide, min((i+1)*m.wide, m.c)
	if m.op.Training {
		count := T(m.n * m.spatial)
		m.total(w, i, mean, acc, func(at, _ int) unsafe.Pointer { return m.in[0].from(w, at) })
		for c := range mean {
			mean[c] /= count
		}
		m.total(w, i, variance, acc, func(at, n int) unsafe.Pointer {
			m.by(w, opSub, n, a, m.in[0].from(w, at), mean)
			m.apply(w, opSquare, n, a, a)
			return a
		})
		for c := range variance {
			variance[c] /= count
		}
	} else {
		for c := first; c < last; c++ {
			mean[c-first], variance[c-first] = *(*T)(m.in[1].from(w, c)), *(*T)(m.in[2].from(w, c))
		}
	}
	for c := first; c < last; c++ {
		rstd[c-first] = T(1 / math.Sqrt(float64(variance[c-first])+m.op.Epsilon))
	}
	m.each(i, func(at, n int) {
		y := m.out[0].from(w, at)
		m.by(w, opSub, n, y, m.in[0].from(w, at), mean)
		m.by(w, opMul, n, y, y, rstd)
	})
	m.statistics(w, first, last, of)
}

// statistics stores the numbers of channels first to last.
func (m *normStep[T]) statistics(w *worker, first, last int, of [4][]T) {
	for c := first; c < last; c++ {
		mean, rstd, variance := of[0][c-first], of[1][c-first], of[2][c-first]
		*(*T)(m.out[1].from(w, c)) = mean
		*(*T)(m.out[2].from(w, c)) = rstd
		if m.op.Training {
			keep := m.op.Momentum
			old, spread := float64(*(*T)(m.in[1].from(w, c))), float64(*(*T)(m.in[2].from(w, c)))
			*(*T)(m.out[3].from(w, c)) = T(float64(keep*old) + float64((1-keep)*float64(mean)))
			*(*T)(m.out[4].from(w, c)) = T(float64(keep*spread) + float64((1-keep)*float64(variance)*m.op.Unbias))
		}
	}
}

// normGradStep is a BatchNormGrad: dx = rstd * (dy - mean of dy - x̂ * mean of dy*x̂), where x̂ =
// (x - mean) * rstd.
type normGradStep[T real] struct {
	channels[T]
	training bool
	in       [4]place
	dx       place
}

func newBatchNormGrad[T real](k *maker, s *program.Step, op *program.BatchNormGrad) ([]phase, error) {
	m := &normGradStep[T]{channels: newChannels[T](k, op.N, op.C, op.Spatial), training: op.Training, dx: placeOf(&s.Out[0])}
	for i := range s.In {
		m.in[i] = placeOf(&s.In[i])
	}
	return []phase{{m, m.pieces()}}, nil
}

func (m *normGradStep[T]) piece(w *worker, i int) {
	a, _, of, acc := m.scratch(w)
	mean, rstd, d, dhat := of[0], of[1], of[2], of[3]
	first, last := i*m.wide, min((i+1)*m.wide, m.c)
	for c := first; c < last; c++ {
		mean[c-first], rstd[c-first] = *(*T)(m.in[2].from(w, c)), *(*T)(m.in[3].from(w, c))
	}
	if !m.training {
		m.each(i, func(at, n int) { m.by(w, opMul, n, m.dx.from(w, at), m.in[0].from(w, at), rstd) })
		return
	}
	hat := func(at, n int) {
		m.by(w, opSub, n, a, m.in[1].from(w, at), mean)
		m.by(w, opMul, n, a, a, rstd)
	}
	m.total(w, i, d, acc, func(at, _ int) unsafe.Pointer { return m.in[0].from(w, at) })
	m.total(w, i, dhat, acc, func(at, n int) unsafe.Pointer {
		hat(at, n)
		m.do(w, opMul, n, a, a, m.in[0].from(w, at), 1, 1)
		return a
	})
	count := T(m.n * m.spatial)
	for c := range d {
		d[c] /= count
		dhat[c] /= count
	}
	m.each(i, func(at, n int) {
		hat(at, n)
		m.by(w, opMul, n, a, a, dhat)
		dx := m.dx.from(w, at)
		m.by(w, opSub, n, dx, m.in[0].from(w, at), d)
		m.do(w, opSub, n, dx, dx, a, 1, 1)
		m.by(w, opMul, n, dx, dx, rstd)
	})
}
