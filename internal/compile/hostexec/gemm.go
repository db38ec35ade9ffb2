package hostexec

import "unsafe"

// tile is a call of a micro-kernel: C (rows, columns) = alpha * A B, or C += alpha * A B.
// gemm_amd64.s has the offsets of its fields.
type tile struct {
	a, b, c      unsafe.Pointer // b: k rows of a panel
	k            int
	ldc          int // bytes from row to row of C
	bstep        int // bytes from row to row of B
	kernel       int // rows-1, plus the most rows for a thin panel
	adds         int // 1: add to C
	cols1, cols2 int // columns of C in the first and the second half of the panel
	alpha32      float32
	_            float32
	alpha64      float64
	across       int // bytes from row to row of A
	along        int // bytes from column to column of A
}

// micro is a micro-kernel for tiles of up to rows rows and cols columns. cols is two vectors; a
// thin panel has only the first.
type micro struct {
	f          func(*tile)
	rows, cols int
}

// microOf returns the micro-kernel for T.
func microOf[T real](l *level) micro {
	var m micro
	if l != nil {
		m = l.gemm32
		if size[T]() == 8 {
			m = l.gemm64
		}
	}
	if m.f == nil {
		m = micro{tilePlain[T], plainRows, plainCols}
	}
	return m
}

const (
	// mostDepth is the most columns of A per pass: a panel of B with so many rows, of two vectors,
	// fits in the L1 cache.
	mostDepth = 320

	mostRows, mostCols = 192, 512 // of the blocks that a goroutine packs: they fit in its L2 cache

	// A stored by columns is used without packing for up to fewCols columns of C, if its columns
	// are at most nearBytes apart. Otherwise packing it reads each cache line once.
	fewCols, nearBytes = 64, 1024
)

// product is C (m, n) = alpha * A (m, k) B (k, n), added to C if adds. Each row of C is contiguous.
// One of the strides of A is 1, and one of B's.
type product[T real] struct {
	m, n, k        int
	aRow, aCol     int // elements
	bRow, bCol     int
	cRow           int
	alpha          T
	adds           bool
	micro          micro
	level          *level
	depth          int  // columns of A per pass
	inPlaceA       bool // A is used without packing
	inPlaceB       bool // whole panels of B are used without packing
	mostRows       int  // rows of a block
	blockA, blockB int  // bytes of packed panels, at most
}

// plan derives the other fields from the sizes.
func (g *product[T]) plan(l *level) {
	g.micro, g.level = microOf[T](l), l
	g.depth = even(g.k, mostDepth)
	g.mostRows = even(g.m, mostRows)
	g.inPlaceA = g.aCol == 1 || g.n <= fewCols && g.aCol*size[T]() <= nearBytes
	g.inPlaceB = g.bCol == 1 && (g.m <= 2*g.micro.rows || g.bRow <= 2*g.micro.cols)
	w := g.micro.cols
	if !g.inPlaceA {
		g.blockA = up(g.mostRows * g.depth * size[T]())
	}
	g.blockB = up((min(g.n, mostCols) + w - 1) / w * w * g.depth * size[T]())
}

// even cuts n into as few parts of at most most as possible, of about equal length, and returns the
// length of the longest.
func even(n, most int) int {
	parts := max(1, (n+most-1)/most)
	return max(1, (n+parts-1)/parts)
}

func up(bytes int) int { return (bytes + lineBytes - 1) &^ (lineBytes - 1) }

// scratch returns the bytes that serial needs.
func (g *product[T]) scratch() int { return g.blockA + g.blockB }

// part is rows i0 to i1 of A times columns j0 to j1 of B, of the depth from k0 to k1.
type part struct{ i0, i1, j0, j1, k0, k1 int }

// operandsOf is the addresses of the operands and of the packed panels of a product.
type operandsOf struct{ a, b, c, packedA, packedB unsafe.Pointer }

// serial computes the whole product.
func (g *product[T]) serial(w *worker, at operandsOf) {
	if g.k == 0 { // A and B may have no address
		for i := 0; i < g.m && !g.adds; i++ {
			clear(unsafe.Slice((*T)(unsafe.Add(at.c, i*g.cRow*size[T]())), g.n))
		}
		return
	}
	for j := 0; j < g.n; j += mostCols {
		for k := 0; k < g.k; k += g.depth {
			g.block(w, part{0, g.m, j, min(j+mostCols, g.n), k, min(k+g.depth, g.k)}, at)
		}
	}
}

// block computes a part of the product, of one depth.
func (g *product[T]) block(w *worker, p part, at operandsOf) {
	i0, i1, j1 := p.i0, p.i1, p.j1
	for ; p.j0 < j1; p.j0 = p.j1 {
		p.j1 = min(p.j0+mostCols, j1)
		g.packB(&p, at, 0, g.panelsB(&p))
		for p.i0 = i0; p.i0 < i1; p.i0 = p.i1 {
			p.i1 = min(p.i0+g.mostRows, i1)
			g.packA(&p, at, 0, g.panelsA(&p))
			g.multiply(w, &p, at, 0, g.panelsA(&p), 0, g.panelsB(&p))
		}
	}
}

// panelsA returns the number of panels of a part's rows, of about equal length.
func (g *product[T]) panelsA(p *part) int { return (p.i1 - p.i0 + g.micro.rows - 1) / g.micro.rows }

// panelsB returns the number of panels of a part's columns.
func (g *product[T]) panelsB(p *part) int { return (p.j1 - p.j0 + g.micro.cols - 1) / g.micro.cols }

// panelA returns the rows of panel x of a part.
func (g *product[T]) panelA(p *part, x int) (lo, hi int) {
	n, panels := p.i1-p.i0, g.panelsA(p)
	return p.i0 + x*n/panels, p.i0 + (x+1)*n/panels
}

// panelB returns the columns of panel x of a part, and its width, which is half for a thin one.
func (g *product[T]) panelB(p *part, x int) (lo, hi, wide int) {
	lo = p.j0 + x*g.micro.cols
	hi = min(lo+g.micro.cols, p.j1)
	if hi-lo <= g.micro.cols/2 {
		return lo, hi, g.micro.cols / 2
	}
	return lo, hi, g.micro.cols
}

// packA packs panels x0 to x1 of the rows of a part, if A needs packing.
func (g *product[T]) packA(p *part, at operandsOf, x0, x1 int) {
	k := p.k1 - p.k0
	for x := x0; x < x1 && !g.inPlaceA; x++ {
		lo, hi := g.panelA(p, x)
		to := unsafe.Add(at.packedA, (lo-p.i0)*k*size[T]())
		from := unsafe.Add(at.a, (lo*g.aRow+p.k0*g.aCol)*size[T]())
		pack[T](g.level, to, from, hi-lo, hi-lo, k, g.aRow, g.aCol)
	}
}

// packB packs panels x0 to x1 of the columns of a part, except those that need no packing.
func (g *product[T]) packB(p *part, at operandsOf, x0, x1 int) {
	k := p.k1 - p.k0
	for x := x0; x < x1; x++ {
		lo, hi, wide := g.panelB(p, x)
		if g.inPlaceB && hi-lo == wide {
			continue
		}
		to := unsafe.Add(at.packedB, (lo-p.j0)*k*size[T]())
		from := unsafe.Add(at.b, (p.k0*g.bRow+lo*g.bCol)*size[T]())
		pack[T](g.level, to, from, hi-lo, wide, k, g.bCol, g.bRow)
	}
}

// multiply computes the tiles of panels a0 to a1 and b0 to b1 of a part.
func (g *product[T]) multiply(w *worker, p *part, at operandsOf, a0, a1, b0, b1 int) {
	t, k, bytes := &w.tile, p.k1-p.k0, size[T]()
	*t = tile{k: k, ldc: g.cRow * bytes, alpha32: float32(g.alpha), alpha64: float64(g.alpha)}
	if g.adds || p.k0 > 0 {
		t.adds = 1
	}
	for x := b0; x < b1; x++ {
		lo, hi, wide := g.panelB(p, x)
		if g.inPlaceB && hi-lo == wide {
			t.b, t.bstep = unsafe.Add(at.b, (p.k0*g.bRow+lo)*bytes), g.bRow*bytes
		} else {
			t.b, t.bstep = unsafe.Add(at.packedB, (lo-p.j0)*k*bytes), wide*bytes
		}
		half, first := g.micro.cols/2, 0
		if wide == half {
			first = g.micro.rows
		}
		t.cols1, t.cols2 = min(hi-lo, half), max(hi-lo-half, 0)
		for y := a0; y < a1; y++ {
			i0, i1 := g.panelA(p, y)
			if g.inPlaceA {
				t.a, t.across, t.along = unsafe.Add(at.a, (i0*g.aRow+p.k0*g.aCol)*bytes), g.aRow*bytes, g.aCol*bytes
			} else {
				t.a, t.across, t.along = unsafe.Add(at.packedA, (i0-p.i0)*k*bytes), bytes, (i1-i0)*bytes
			}
			t.c = unsafe.Add(at.c, (i0*g.cRow+lo)*bytes)
			t.kernel = first + i1 - i0 - 1
			g.micro.f(t)
		}
	}
}

// pack writes the panel dst[j*wide+i] = element i*across + j*along of src, for i below n and j
// below k. Elements i from n to wide are zero.
func pack[T real](l *level, dst, src unsafe.Pointer, n, wide, k, across, along int) {
	to := unsafe.Slice((*T)(dst), k*wide)
	switch {
	case across == 1 || n == 1:
		packRows(l, to, src, n, wide, k, along)
	default:
		i0, j0 := 0, 0
		if l != nil && l.transpose != nil && size[T]() == 4 && along == 1 && n >= 8 && k >= 8 {
			i0, j0 = n, k&^7
			for i := 0; i < n; i += 8 {
				i = min(i, n-8) // the last block may repeat rows
				l.transpose(unsafe.Add(dst, i*4), unsafe.Add(src, i*across*4), wide*4, across*4, k/8)
			}
		}
		packElements[T](to, src, 0, i0, j0, k, wide, across, along)
		packElements[T](to, src, i0, n, 0, k, wide, across, along)
	}
	if n < wide {
		for j := range k {
			clear(to[j*wide+n : (j+1)*wide])
		}
	}
}

func packElements[T real](to []T, src unsafe.Pointer, i0, i1, j0, j1, wide, across, along int) {
	for i := i0; i < i1; i++ {
		for j := j0; j < j1; j++ {
			to[j*wide+i] = *(*T)(unsafe.Add(src, (i*across+j*along)*size[T]()))
		}
	}
}

func packRows[T real](l *level, to []T, src unsafe.Pointer, n, wide, k, along int) {
	if l != nil {
		bytes := size[T]()
		l.copy2(unsafe.Pointer(unsafe.SliceData(to)), src, wide*bytes, along*bytes, k, n*bytes)
		return
	}
	for j := range k {
		copy(to[j*wide:], unsafe.Slice((*T)(unsafe.Add(src, j*along*size[T]())), n))
	}
}

const plainRows, plainCols = 4, 4

// tilePlain is the micro-kernel in plain Go.
func tilePlain[T real](t *tile) {
	rows, wide := t.kernel%plainRows+1, plainCols
	if t.kernel >= plainRows {
		wide = plainCols / 2
	}
	var sums [plainRows * plainCols]T
	for k := range t.k {
		b := unsafe.Slice((*T)(unsafe.Add(t.b, k*t.bstep)), wide)
		for i := range rows {
			x, s := *(*T)(unsafe.Add(t.a, i*t.across+k*t.along)), sums[i*plainCols:][:plainCols]
			for j, y := range b {
				s[j] += T(x * y)
			}
		}
	}
	alpha := T(t.alpha64)
	for i := range rows {
		c := unsafe.Slice((*T)(unsafe.Add(t.c, i*t.ldc)), t.cols1+t.cols2)
		for j := range c {
			x := T(alpha * sums[i*plainCols+j])
			if t.adds != 0 {
				x += c[j]
			}
			c[j] = x
		}
	}
}
