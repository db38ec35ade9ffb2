package hostexec

import (
	"unsafe"

	"github.com/symgrad/symgrad/internal/blas"
	"github.com/symgrad/symgrad/internal/program"
	gblas "gonum.org/v1/gonum/blas"
)

const (
	// inlineWork is the multiply-adds of a product that is not worth sharing.
	inlineWork = 1 << 18
	// pieceWork is the multiply-adds of a piece of a product.
	pieceWork = 1 << 20
	// libraryWork is the multiply-adds from which on a library multiplies.
	libraryWork = 1 << 15
)

// matrix is an operand of a product: element (b, i, j) is at offset + b*batch + i*row + j*col.
type matrix struct {
	place
	batch, row, col int
}

// matrixOf is the operand of a view over (batch, rows, cols). Strides of dimensions of one element are made such that one
// of row and col is 1 and the other a leading dimension.
func matrixOf(v *program.View, rows, cols int) matrix {
	m := matrix{place{v.Value, v.Offset}, v.Strides[0], v.Strides[1], v.Strides[2]}
	switch {
	case rows == 1 && cols == 1:
		m.row, m.col = 1, 1
	case rows == 1:
		m.row = cols
		if m.col != 1 {
			m.row = 1
		}
	case cols == 1:
		m.col = rows
		if m.row != 1 {
			m.col = 1
		}
	}
	return m
}

// transposed is the operand with rows and columns exchanged.
func (m matrix) transposed() matrix {
	m.row, m.col = m.col, m.row
	return m
}

func (m *matrix) at(w *worker, batch int) unsafe.Pointer {
	return w.mem.at(m.id, m.offset+batch*m.batch)
}

// matMul is a MatMul: its operands and the product of one of the batch.
type matMul[T real] struct {
	product[T]
	batch   int
	a, b, c matrix
	per     int // of the batch in a piece
}

func newMatMul[T real](k *maker, s *program.Step, op *program.MatMul) ([]phase, error) {
	m := &matMul[T]{
		batch: op.Batch, a: matrixOf(&s.In[0], op.M, op.K), b: matrixOf(&s.In[1], op.K, op.N), c: matrixOf(&s.Out[0], op.M, op.N),
	}
	m.m, m.n, m.k, m.alpha, m.adds = op.M, op.N, op.K, T(op.Alpha), op.Beta != 0
	if m.c.col != 1 { // Cᵀ = BᵀAᵀ
		m.a, m.b, m.c = m.b.transposed(), m.a.transposed(), m.c.transposed()
		m.m, m.n = m.n, m.m
	}
	if m.m*m.n*m.batch == 0 {
		return nil, nil
	}
	m.aRow, m.aCol, m.bRow, m.bCol, m.cRow = m.a.row, m.a.col, m.b.row, m.b.col, m.c.row
	work := m.m * m.n * max(1, m.k)
	switch {
	case k.library != nil && m.k > 0 && work >= libraryWork && (m.batch == 1 || work >= pieceWork):
		return []phase{{&libraryMatMul[T]{matMul: *m, library: k.library}, 1}}, nil
	case m.k == 0, m.batch > 1 && (work < pieceWork || m.batch >= k.threads), m.batch == 1 && (work < inlineWork || k.threads == 1):
		m.plan(k.level, serialRows, serialCols)
		k.need(m.scratch(), 0)
		m.per = max(1, pieceWork/4/work)
		return []phase{{m, (m.batch + m.per - 1) / m.per}}, nil
	}
	m.plan(k.level, parallelRows, parallelCols)
	k.work = max(k.work, m.scratch())
	var phases []phase
	for n := range m.batch {
		m.parts(func(p part) { phases = append(phases, m.share(n, p, k.threads)...) })
	}
	return phases, nil
}

// piece is some products of a batch.
func (m *matMul[T]) piece(w *worker, i int) {
	for n := i * m.per; n < min((i+1)*m.per, m.batch); n++ {
		m.serial(w, m.operands(w, n, w.scratch))
	}
}

// operands is where the operands of one of the batch are, with memory for packed panels.
func (m *matMul[T]) operands(w *worker, n int, packed unsafe.Pointer) operandsOf {
	return operandsOf{m.a.at(w, n), m.b.at(w, n), m.c.at(w, n), packed, unsafe.Add(packed, m.blockA)}
}

// shared is a part of a product that all goroutines do: first they pack its panels, then they multiply them.
type shared[T real] struct {
	*matMul[T]
	part
	n       int // of the batch
	perPack int // panels of a piece
	perA    int
	perB    int
	across  int // pieces along the columns of C
}

type packShared[T real] shared[T]

// share is the two phases of a part.
func (m *matMul[T]) share(n int, p part, threads int) []phase {
	s := &shared[T]{matMul: m, part: p, n: n}
	a, b, k := m.panelsA(&p), m.panelsB(&p), max(1, p.k1-p.k0)
	s.perPack = max(1, pieceWork/32/(k*m.micro.cols))
	s.perA, s.perB = a, b
	// Cut where pieces stay squarest, until there are enough for all or they are small.
	for ways := 1; ways < 6*threads && s.perA*m.micro.rows*s.perB*m.micro.cols*k > pieceWork; {
		if s.perB*m.micro.cols >= s.perA*m.micro.rows && s.perB > 1 || s.perA == 1 {
			s.perB = (s.perB + 1) / 2
		} else {
			s.perA = (s.perA + 1) / 2
		}
		ways = ((a + s.perA - 1) / s.perA) * ((b + s.perB - 1) / s.perB)
	}
	s.across = (b + s.perB - 1) / s.perB
	return []phase{
		{(*packShared[T])(s), (a + b + s.perPack - 1) / s.perPack},
		{s, s.across * ((a + s.perA - 1) / s.perA)},
	}
}

func (s *packShared[T]) piece(w *worker, i int) {
	at := s.operands(w, s.n, w.mem.work.p)
	a, b := s.panelsA(&s.part), s.panelsB(&s.part)
	lo, hi := i*s.perPack, min((i+1)*s.perPack, a+b)
	s.packA(&s.part, at, min(lo, a), min(hi, a))
	s.packB(&s.part, at, max(lo-a, 0), max(hi-a, 0))
}

func (s *shared[T]) piece(w *worker, i int) {
	at := s.operands(w, s.n, w.mem.work.p)
	a, b := i/s.across*s.perA, i%s.across*s.perB
	s.multiply(w, &s.part, at, a, min(a+s.perA, s.panelsA(&s.part)), b, min(b+s.perB, s.panelsB(&s.part)))
}

// libraryMatMul is a MatMul that a library does.
type libraryMatMul[T real] struct {
	matMul[T]
	library *blas.Implementation
}

func (m *libraryMatMul[T]) piece(w *worker, _ int) {
	for n := range m.batch {
		a, b, c := m.a.at(w, n), m.b.at(w, n), m.c.at(w, n)
		ta, lda := leading(m.aRow, m.aCol, m.m, m.k)
		tb, ldb := leading(m.bRow, m.bCol, m.k, m.n)
		beta := 0.0
		if m.adds {
			beta = 1
		}
		la, lb, lc := reachOf(m.aRow, m.aCol, m.m, m.k), reachOf(m.bRow, m.bCol, m.k, m.n), reachOf(m.cRow, 1, m.m, m.n)
		if size[T]() == 4 {
			m.library.Sgemm(ta, tb, m.m, m.n, m.k, float32(m.alpha), unsafe.Slice((*float32)(a), la), lda,
				unsafe.Slice((*float32)(b), lb), ldb, float32(beta), unsafe.Slice((*float32)(c), lc), m.cRow)
			continue
		}
		m.library.Dgemm(ta, tb, m.m, m.n, m.k, float64(m.alpha), unsafe.Slice((*float64)(a), la), lda,
			unsafe.Slice((*float64)(b), lb), ldb, beta, unsafe.Slice((*float64)(c), lc), m.cRow)
	}
}

// leading is how BLAS sees a matrix of rows by cols elements: whether transposed, and its leading dimension.
func leading(row, col, rows, cols int) (gblas.Transpose, int) {
	if col == 1 && (row != 1 || rows == 1) && row >= cols {
		return gblas.NoTrans, row
	}
	return gblas.Trans, max(col, rows)
}

// reachOf is how many elements a matrix reaches over.
func reachOf(row, col, rows, cols int) int { return (rows-1)*row + (cols-1)*col + 1 }
