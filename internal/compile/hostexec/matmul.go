package hostexec

import (
	"unsafe"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/host/blas"
	gblas "gonum.org/v1/gonum/blas"
)

const (
	// inlineWork is the multiply-adds of a product that is too small to share.
	inlineWork = 1 << 18
	// pieceWork is the multiply-adds of a piece of a product.
	pieceWork = 1 << 20
	// packElems is the elements of a piece of panels that are packed for all.
	packElems = 1 << 13
	// leastRows is the fewest rows of C per piece when C is cut so that each goroutine has one.
	leastRows = 8
	// mostShared is the bytes of panels that goroutines share at a time: roughly the size of a
	// cache.
	mostShared = 16 << 20
	// libraryWork is the fewest multiply-adds of a product for a library.
	libraryWork = 1 << 15
)

// matrix is an operand of a product: element (b, i, j) is at offset + b*batch + i*row + j*col.
type matrix struct {
	place
	batch, row, col int
}

// matrixOf returns the operand of a view over (batch, rows, cols). It sets strides of dimensions of
// one element so that one of row and col is 1 and the other a leading dimension.
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

// transposed returns the operand with rows and columns exchanged.
func (m matrix) transposed() matrix {
	m.row, m.col = m.col, m.row
	return m
}

func (m *matrix) at(w *worker, batch int) unsafe.Pointer {
	return w.mem.at(m.id, m.offset+batch*m.batch)
}

// matMul is a MatMul: its operands and the product of one item of the batch.
type matMul[T real] struct {
	product[T]
	batch   int
	a, b, c matrix
	per     int // items of the batch in a piece
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
	if d, ok := m.deepPieces(k.level, k.threads); ok {
		k.work = max(k.work, d.sums())
		for n := range m.batch {
			phases = append(phases, d.phases(k, n)...)
		}
		return phases, nil
	}
	c := m.cutPieces(k.threads)
	k.work = max(k.work, c.shared())
	for n := range m.batch {
		phases = append(phases, m.cut(n, k.threads)...)
	}
	return phases, nil
}

// piece does some products of the batch.
func (m *matMul[T]) piece(w *worker, i int) {
	for n := i * m.per; n < min((i+1)*m.per, m.batch); n++ {
		m.serial(w, m.operands(w, n, w.scratch))
	}
}

// operands returns the addresses of the operands of item n, with memory for packed panels.
func (m *matMul[T]) operands(w *worker, n int, packed unsafe.Pointer) operandsOf {
	return operandsOf{m.a.at(w, n), m.b.at(w, n), m.c.at(w, n), packed, unsafe.Add(packed, m.blockA)}
}

// cutMatMul is a product of a MatMul that all goroutines share, or some depths of it. C is cut
// along its longer side. The operand on that side is cut too, and each piece packs its own part,
// which stays in its core's caches. All pieces read the other operand, which was packed in parallel
// before.
type cutMatMul[T real] struct {
	*matMul[T]
	item   int  // of the batch
	tall   bool // C is cut into rows; into columns otherwise
	pieces int
	panels int // of the operand that all read
	deep   int // elements of these panels, for one column of A
	k0, k1 int
}

// packShared packs the operand that all pieces read: a piece is perPack panels of one depth.
type packShared[T real] struct {
	*cutMatMul[T]
	perPack int
}

// cut returns the phases of a product of the batch.
func (m *matMul[T]) cut(item, threads int) []phase {
	c := m.cutPieces(threads)
	c.item = item
	var phases []phase
	for k := 0; k < m.k; k = c.k1 {
		c.k0, c.k1 = k, min(k+c.most(), m.k)
		some := c
		if !c.inPlace() {
			pack := &packShared[T]{&some, max(1, packElems/(m.depth*m.micro.cols))}
			phases = append(phases, phase{pack, c.depths() * pack.each()})
		}
		phases = append(phases, phase{&some, c.pieces})
	}
	return phases
}

// cutPieces returns the cuts of C: five pieces for each goroutine, since cores differ in speed, or
// one, if C is long enough.
func (m *matMul[T]) cutPieces(threads int) cutMatMul[T] {
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

// inPlace reports whether the operand that all pieces read is used without packing.
func (c *cutMatMul[T]) inPlace() bool {
	if c.tall {
		return c.inPlaceB && c.n%(c.micro.cols/2) == 0
	}
	return c.inPlaceA
}

// most returns the columns of A whose shared panels fit in mostShared.
func (c *cutMatMul[T]) most() int {
	if c.inPlace() {
		return c.k
	}
	return max(1, mostShared/(c.depth*c.deep*size[T]())) * c.depth
}

// depths returns the number of depths between k0 and k1.
func (c *cutMatMul[T]) depths() int { return (c.k1 - c.k0 + c.depth - 1) / c.depth }

// shared returns the bytes of memory that the phases of cut share.
func (c *cutMatMul[T]) shared() int {
	if c.inPlace() {
		return 0
	}
	return min(c.most(), c.k) * c.deep * size[T]()
}

// at returns depth number x, for the whole of C, and the addresses of its operands.
func (c *cutMatMul[T]) at(w *worker, x int) (part, operandsOf) {
	k := c.k0 + x*c.depth
	at := c.operands(w, c.item, w.scratch)
	switch packed := x * c.depth * c.deep * size[T](); {
	case c.inPlace(): // without packing; the garbage collector must not see a pointer outside of work
	case c.tall:
		at.packedB = unsafe.Add(w.mem.work.p, packed)
	default:
		at.packedA = unsafe.Add(w.mem.work.p, packed)
	}
	return part{0, c.m, 0, c.n, k, min(k+c.depth, c.k1)}, at
}

// each returns the pieces of one depth.
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

// rows multiplies rows lo to hi of a depth.
func (c *cutMatMul[T]) rows(w *worker, p part, at operandsOf, lo, hi int) {
	for p.i0 = lo; p.i0 < hi; p.i0 = p.i1 {
		p.i1 = min(p.i0+c.mostRows, hi)
		c.packA(&p, at, 0, c.panelsA(&p))
		c.multiply(w, &p, at, 0, c.panelsA(&p), 0, c.panelsB(&p))
	}
}

// columns multiplies columns lo to hi of a depth.
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

// leading returns a matrix of rows by cols elements in BLAS's form: whether it is transposed, and
// its leading dimension.
func leading(row, col, rows, cols int) (gblas.Transpose, int) {
	if col == 1 && (row != 1 || rows == 1) && row >= cols {
		return gblas.NoTrans, row
	}
	return gblas.Trans, max(col, rows)
}

// reachOf returns the number of elements from the first to the last of a matrix.
func reachOf(row, col, rows, cols int) int { return (rows-1)*row + (cols-1)*col + 1 }
