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
	// packElems is the elements of a piece of the shared packed operand.
	packElems = 1 << 13
	// leastRows is the rows of a piece of C that is cut for each goroutine to have one.
	leastRows = 8
	// mostShared is the bytes of panels that goroutines share at a time, about: as many as caches
	// hold.
	mostShared = 16 << 20
	// libraryWork is the multiply-adds from which on a library multiplies.
	libraryWork = 1 << 15
)

// matrix is an operand of a product: element (b, i, j) is at offset + b*batch + i*row + j*col.
type matrix struct {
	place
	batch, row, col int
}

// matrixOf is the operand of a view over (batch, rows, cols). Strides of dimensions of one element
// are made such that one of row and col is 1 and the other a leading dimension.
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
	if k.library != nil && m.k > 0 && work >= libraryWork && (m.batch == 1 || work >= pieceWork) {
		return []phase{{&libraryMatMul[T]{matMul: *m, library: k.library}, 1}}, nil
	}
	m.plan(k.level)
	k.need(m.scratch(), 0)
	switch {
	case m.k == 0, m.batch > 1 && (work < pieceWork || m.batch >= k.threads), m.batch == 1 && (work < inlineWork || k.threads == 1):
		m.per = max(1, pieceWork/4/work)
		return []phase{{m, (m.batch + m.per - 1) / m.per}}, nil
	}
	var phases []phase
	if d, ok := m.deepWays(k.level, k.threads); ok {
		k.work = max(k.work, d.sums())
		for n := range m.batch {
			phases = append(phases, d.phases(k, n)...)
		}
		return phases, nil
	}
	c := m.cutWays(k.threads)
	k.work = max(k.work, c.shared())
	for n := range m.batch {
		phases = append(phases, m.cut(n, k.threads)...)
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

// cutMatMul is a product of a MatMul that all goroutines do, or some of its depths. C is cut one
// way, along its longer side: the operand on that side is cut as well, and each piece packs its own
// part of it, which stays in its core's caches. The other operand is read by all, who have packed
// it together before.
type cutMatMul[T real] struct {
	*matMul[T]
	item   int  // of the batch
	tall   bool // C is cut into rows; into columns otherwise
	pieces int
	panels int // of the operand that is read by all
	deep   int // elements of these panels, for one column of A
	k0, k1 int
}

// packShared packs the operand that is read by all: a piece is perPack panels of one depth.
type packShared[T real] struct {
	*cutMatMul[T]
	perPack int
}

// cut is the phases of a product of the batch.
func (m *matMul[T]) cut(item, threads int) []phase {
	c := m.cutWays(threads)
	c.item = item
	var phases []phase
	for k := 0; k < m.k; k = c.k1 {
		c.k0, c.k1 = k, min(k+c.most(), m.k)
		some := c
		if !c.lies() {
			pack := &packShared[T]{&some, max(1, packElems/(m.depth*m.micro.cols))}
			phases = append(phases, phase{pack, c.depths() * pack.each()})
		}
		phases = append(phases, phase{&some, c.pieces})
	}
	return phases
}

// cutWays is how C is cut: into five pieces for each of the goroutines, since not all cores are
// equally fast, or one, where it is long enough.
func (m *matMul[T]) cutWays(threads int) cutMatMul[T] {
	c := cutMatMul[T]{matMul: m, tall: m.m >= m.n}
	a, b := (m.m+m.micro.rows-1)/m.micro.rows, (m.n+m.micro.cols-1)/m.micro.cols
	if c.tall {
		c.pieces, c.panels, c.deep = m.m/m.micro.rows, b, b*m.micro.cols
		if c.pieces < threads { // thin panels of A take little longer
			c.pieces = min((m.m+leastRows-1)/leastRows, threads)
		}
	} else {
		c.pieces, c.panels, c.deep = b, a, m.m
	}
	if c.pieces > threads {
		c.pieces = min(c.pieces/threads, 5) * threads
	}
	return c
}

// lies reports whether the operand that all read is read as it lies.
func (c *cutMatMul[T]) lies() bool {
	if c.tall {
		return c.liesB && c.n%(c.micro.cols/2) == 0
	}
	return c.liesA
}

// most is the columns of A whose shared panels fit the memory for them.
func (c *cutMatMul[T]) most() int {
	if c.lies() {
		return c.k
	}
	return max(1, mostShared/(c.depth*c.deep*size[T]())) * c.depth
}

// depths is how many times depth there is between k0 and k1.
func (c *cutMatMul[T]) depths() int { return (c.k1 - c.k0 + c.depth - 1) / c.depth }

// shared is the bytes that the phases of cut need between them.
func (c *cutMatMul[T]) shared() int {
	if c.lies() {
		return 0
	}
	return min(c.most(), c.k) * c.deep * size[T]()
}

// at is depth number x, of the whole of C, and where the operands are for it.
func (c *cutMatMul[T]) at(w *worker, x int) (part, operandsOf) {
	k := c.k0 + x*c.depth
	at := c.operands(w, c.item, w.scratch)
	switch packed := x * c.depth * c.deep * size[T](); {
	case c.lies(): // the garbage collector would see a pointer to nowhere
	case c.tall:
		at.packedB = unsafe.Add(w.mem.work.p, packed)
	default:
		at.packedA = unsafe.Add(w.mem.work.p, packed)
	}
	return part{0, c.m, 0, c.n, k, min(k+c.depth, c.k1)}, at
}

// each is the pieces of one depth.
func (s *packShared[T]) each() int { return (s.panels + s.perPack - 1) / s.perPack }

func (s *packShared[T]) piece(w *worker, i int) {
	p, at := s.at(w, i/s.each())
	lo := i % s.each() * s.perPack
	hi := min(lo+s.perPack, s.panels)
	if s.tall {
		s.packB(&p, at, lo, hi)
	} else {
		s.packA(&p, at, lo, hi)
	}
}

func (c *cutMatMul[T]) piece(w *worker, i int) {
	for x := range c.depths() {
		p, at := c.at(w, x)
		if c.tall {
			c.rows(w, p, at, i*c.m/c.pieces, (i+1)*c.m/c.pieces)
		} else {
			b := c.panelsB(&p)
			c.columns(w, p, at, i*b/c.pieces*c.micro.cols, min((i+1)*b/c.pieces*c.micro.cols, p.j1))
		}
	}
}

// rows does rows lo to hi of a depth.
func (c *cutMatMul[T]) rows(w *worker, p part, at operandsOf, lo, hi int) {
	for p.i0 = lo; p.i0 < hi; p.i0 = p.i1 {
		p.i1 = min(p.i0+c.mostRows, hi)
		c.packA(&p, at, 0, c.panelsA(&p))
		c.multiply(w, &p, at, 0, c.panelsA(&p), 0, c.panelsB(&p))
	}
}

// columns does columns lo to hi of a depth.
func (c *cutMatMul[T]) columns(w *worker, p part, at operandsOf, lo, hi int) {
	a, some := c.panelsA(&p), max(1, c.mostRows/c.micro.rows)
	for p.j0 = lo; p.j0 < hi; p.j0 = p.j1 {
		p.j1 = min(p.j0+mostCols, hi)
		c.packB(&p, at, 0, c.panelsB(&p))
		for x := 0; x < a; x += some {
			c.multiply(w, &p, at, x, min(x+some, a), 0, c.panelsB(&p))
		}
	}
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

// leading is how BLAS sees a matrix of rows by cols elements: whether transposed, and its leading
// dimension.
func leading(row, col, rows, cols int) (gblas.Transpose, int) {
	if col == 1 && (row != 1 || rows == 1) && row >= cols {
		return gblas.NoTrans, row
	}
	return gblas.Trans, max(col, rows)
}

// reachOf is how many elements a matrix reaches over.
func reachOf(row, col, rows, cols int) int { return (rows-1)*row + (cols-1)*col + 1 }
