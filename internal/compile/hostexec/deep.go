package hostexec

import "unsafe"

// deepMatMul is a product of a MatMul whose depths are multiplied in parallel, each to its own
// memory, and then added in order. So sums have the same bits as with one goroutine. It is for deep
// and small products, such as weight gradients: with cutMatMul each goroutine would read one whole
// operand.
type deepMatMul[T real] struct {
	*matMul[T]
	prims[T]
	own    product[T] // of one depth
	item   int        // of the batch
	slices int        // depths
	tall   bool       // C is cut into rows; into columns otherwise
	parts  int        // of C
}

// joinDepths adds the results of the depths: a piece is some rows of C.
type joinDepths[T real] struct {
	*deepMatMul[T]
	rows int
}

// leastFull is the percentage of goroutines that must have a piece in the last round.
const leastFull = 85

// deepPieces cuts a product into depths and reports whether that pays: less memory moves between
// cores than with cutMatMul.
func (m *matMul[T]) deepPieces(l *level, threads int) (deepMatMul[T], bool) {
	d := deepMatMul[T]{matMul: m, prims: prims[T]{l}, own: m.product, slices: (m.k + m.depth - 1) / m.depth, tall: m.m >= m.n}
	d.own.cRow, d.own.adds = m.n, false
	if d.slices < 2 || d.sums() > mostShared || 2*d.slices*m.m*m.n >= min(m.m, m.n)*m.k*(threads-1) {
		return d, false
	}
	panels := (m.n + m.micro.cols - 1) / m.micro.cols
	if d.tall {
		panels = (m.m + m.micro.rows - 1) / m.micro.rows
	}
	for d.parts = min((threads+d.slices-1)/d.slices, panels); d.parts < panels; d.parts++ {
		if pieces := d.slices * d.parts; 100*pieces >= leastFull*(pieces+threads-1)/threads*threads {
			break
		}
	}
	return d, true
}

// sums returns the bytes of the results of all depths.
func (d *deepMatMul[T]) sums() int { return d.slices * d.m * d.n * size[T]() }

// phases returns the phases of a product of the batch.
func (d deepMatMul[T]) phases(k *maker, item int) []phase {
	d.item = item
	join := &joinDepths[T]{deepMatMul: &d}
	join.rows = k.perPiece(d.m, d.slices*d.n*10*size[T]())
	return []phase{{&d, d.slices * d.parts}, {join, (d.m + join.rows - 1) / join.rows}}
}

// piece computes a part of C, of one depth.
func (d *deepMatMul[T]) piece(w *worker, i int) {
	x, y := i/d.parts, i%d.parts
	k0 := x * d.depth
	p := part{0, d.m, 0, d.n, 0, min(d.depth, d.k-k0)}
	if d.tall {
		p.i0, p.i1 = d.m*y/d.parts, d.m*(y+1)/d.parts
	} else {
		panels := d.panelsB(&p)
		p.j0, p.j1 = panels*y/d.parts*d.micro.cols, min(panels*(y+1)/d.parts*d.micro.cols, d.n)
	}
	at := d.operands(w, d.item, w.scratch)
	at.a, at.b = unsafe.Add(at.a, k0*d.aCol*size[T]()), unsafe.Add(at.b, k0*d.bRow*size[T]())
	at.c = d.sum(w, x, 0)
	d.own.block(w, p, at)
}

// sum returns the address of row i of C in depth x's memory.
func (d *deepMatMul[T]) sum(w *worker, x, i int) unsafe.Pointer {
	return unsafe.Add(w.mem.work.p, (x*d.m+i)*d.n*size[T]())
}

func (j *joinDepths[T]) piece(w *worker, n int) {
	for i := n * j.rows; i < min((n+1)*j.rows, j.m); i++ {
		to, first := unsafe.Add(j.c.at(w, j.item), i*j.cRow*size[T]()), 1
		if j.adds {
			j.do(w, opAdd, j.n, to, to, j.sum(w, 0, i), 1, 1)
		} else {
			j.do(w, opAdd, j.n, to, j.sum(w, 0, i), j.sum(w, 1, i), 1, 1)
			first = 2
		}
		for x := first; x < j.slices; x++ {
			j.do(w, opAdd, j.n, to, to, j.sum(w, x, i), 1, 1)
		}
	}
}
