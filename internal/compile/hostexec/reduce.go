package hostexec

import (
	"unsafe"

	"github.com/symgrad/symgrad/internal/compile/program"
)

const (
	partElems   = 32 << 10 // elements per part of a long reduction
	enoughUnits = 32       // units of work from which reductions are not cut into parts
	mostParts   = 64
)

// reduceStep is a Reduce over a space whose reduced dimensions are between the kept ones: outer
// results by inner results, each of count elements. Element r of result (o, i) is number
// (o*count+r)*inner+i of the space.
//
// A unit of work is a block of inner results of one outer one. If there are few units, count is cut
// into parts, and a second phase joins them in order. The cuts follow from the shape, so that the
// bits do not depend on the number of goroutines.
type reduceStep[T real] struct {
	*code[T]
	reducer[T]
	outer, count, inner int

	abreast    int // rows that are reduced at once, if inner is short
	blocks     int // of inner
	parts, per int // parts of count, rows of a part
	group      int // units of a piece
	to         place
	partial    place // (parts, outer, inner), with parts
	accAt      int   // offset of the accumulators in scratch
}

// place is the elements of a value from an offset on.
type place struct {
	id     program.ID
	offset int
}

func newReduce[T real](k *maker, s *program.Step, op *program.Reduce) ([]phase, error) {
	order, inner := reduceOrder(op)
	c, err := compile[T](&source{
		p: k.p, shape: op.Space, order: order, code: op.Code, in: s.In, along: &s.Out[0], level: k.level,
	})
	if err != nil {
		return nil, err
	}
	r := &reduceStep[T]{code: c, reducer: newReducer[T](k.level, op.Red), outer: 1, count: 1, inner: 1}
	for d, n := range op.Space {
		switch {
		case op.Reduced[d]:
			r.count *= n
		case d >= inner:
			r.inner *= n
		default:
			r.outer *= n
		}
	}
	r.split()
	r.group = k.perPiece(r.units(), r.per*min(r.inner, r.block)*r.cost)
	if r.outer*r.inner == 0 {
		return nil, nil
	}
	to, stored, err := storeResults[T](k, s, op, order)
	if err != nil {
		return nil, err
	}
	r.to, r.partial = to, to
	phases := []phase{{r, (r.units() + r.group - 1) / r.group * r.parts}}
	if r.parts > 1 {
		r.partial = place{id: k.temp(dtypeOf[T](), r.parts*r.outer*r.inner)}
		phases = append(phases, phase{(*joinStep[T])(r), 1})
	}
	r.accAt = (c.scratch() + lineBytes - 1) &^ (lineBytes - 1)
	k.need(r.accAt+max(width, c.block)*size[T](), c.slots())
	return append(phases, stored...), err
}

// reduceOrder returns the dimensions in the order outer, reduced, inner, and the number of the
// first inner one: inner ones come after the last reduced one.
func reduceOrder(op *program.Reduce) (order []int, inner int) {
	inner = len(op.Space)
	for inner > 0 && (!op.Reduced[inner-1] || op.Space[inner-1] == 1) {
		inner--
	}
	for _, reduced := range []bool{false, true} {
		for d := range inner {
			if op.Reduced[d] == reduced {
				order = append(order, d)
			}
		}
	}
	for d := inner; d < len(op.Space); d++ {
		order = append(order, d)
	}
	return order, inner
}

// split cuts the work into parts and units.
func (r *reduceStep[T]) split() {
	r.blocks = (r.inner + r.block - 1) / r.block
	r.abreast = 1
	if r.inner < width {
		r.abreast = width / r.inner1()
	}
	r.parts, r.per = 1, r.count
	if total := r.sp.total; r.units() < enoughUnits && total >= 2*partElems {
		parts := min(mostParts, total/partElems, r.count)
		r.per = (r.count + parts - 1) / parts
		r.per += (r.abreast - r.per%r.abreast) % r.abreast
		r.parts = (r.count + r.per - 1) / r.per
	}
}

func (r *reduceStep[T]) inner1() int { return max(1, r.inner) }
func (r *reduceStep[T]) units() int  { return r.outer * r.blocks }

func (r *reduceStep[T]) piece(w *worker, i int) {
	part := i % r.parts
	first, last := i/r.parts*r.group, min((i/r.parts+1)*r.group, r.units())
	lo, hi := part*r.per, min((part+1)*r.per, r.count)
	if r.sp.total > 0 { // else operands may have no elements
		r.enter(w)
	}
	switch {
	case r.inner > 1:
		for u := first; u < last; u++ {
			r.columns(w, part, u, lo, hi)
		}
	case r.count <= r.block/2 && !r.rows:
		r.manyRows(w, first, last)
	default:
		for o := first; o < last; o++ {
			*r.at(w, part, o) = r.longRow(w, o*r.count+lo, hi-lo)
		}
	}
}

// at returns the address for part part of result n.
func (r *reduceStep[T]) at(w *worker, part, n int) *T {
	return (*T)(w.mem.at(r.partial.id, r.partial.offset+part*r.outer*r.inner+n))
}

// manyRows reduces rows first to last, several of them in each block of the code.
func (r *reduceStep[T]) manyRows(w *worker, first, last int) {
	for o := first; o < last; {
		n := last - o
		if r.count > 0 {
			n = min(n, r.block/r.count)
			r.eval(w, o*r.count, n*r.count)
		}
		p := w.slots[r.result].p
		for i := range n {
			*r.at(w, 0, o+i) = r.row(w, unsafe.Add(p, i*r.count*size[T]()), r.count)
		}
		o += n
	}
}

// longRow reduces n elements of the space from lo on.
func (r *reduceStep[T]) longRow(w *worker, lo, n int) T {
	acc := unsafe.Add(w.scratch, r.accAt)
	r.clear(acc)
	for n > 0 {
		k := r.limit(lo, n)
		r.eval(w, lo, k)
		r.more(w, acc, w.slots[r.result].p, k)
		lo += k
		n -= k
	}
	return r.close(acc)
}

// columns reduces rows lo to hi of unit u to one row.
func (r *reduceStep[T]) columns(w *worker, part, u, lo, hi int) {
	o, from := u/r.blocks, u%r.blocks*r.block
	to := min(from+r.block, r.inner)
	if r.abreast > 1 {
		r.narrow(w, part, o, lo, hi)
		return
	}
	for from < to {
		base := (o*r.count+lo)*r.inner + from
		n := r.limit(base, to-from)
		acc := unsafe.Pointer(r.at(w, part, o*r.inner+from))
		sums, x := unsafe.Slice((*T)(acc), n), neutral[T](r.red)
		for i := range sums {
			sums[i] = x
		}
		for range hi - lo {
			r.eval(w, base, n)
			r.do(w, r.op, n, acc, acc, w.slots[r.result].p, 1, 1)
			base += r.inner
		}
		from += n
	}
}

// narrow is columns for short rows, several of which are side by side in an accumulator.
func (r *reduceStep[T]) narrow(w *worker, part, o, lo, hi int) {
	acc, wide := unsafe.Add(w.scratch, r.accAt), r.abreast*r.inner
	lanes, x := unsafe.Slice((*T)(acc), wide), neutral[T](r.red)
	for i := range lanes {
		lanes[i] = x
	}
	at, end := (o*r.count+lo)*r.inner, (o*r.count+hi)*r.inner
	for at < end {
		n := min(end-at, r.block/wide*wide)
		r.eval(w, at, n)
		for i := 0; i < n; i += wide {
			r.do(w, r.op, min(wide, n-i), acc, acc, unsafe.Add(w.slots[r.result].p, i*size[T]()), 1, 1)
		}
		at += n
	}
	sums := unsafe.Slice(r.at(w, part, o*r.inner), r.inner)
	copy(sums, lanes)
	for i := r.inner; i < wide; i++ {
		sums[i%r.inner] = join(r.red, sums[i%r.inner], lanes[i])
	}
}

// joinStep joins the parts of a reduceStep, in order.
type joinStep[T real] reduceStep[T]

func (j *joinStep[T]) piece(w *worker, _ int) {
	n := j.outer * j.inner
	to := w.mem.at(j.to.id, j.to.offset)
	for part := range j.parts {
		from := w.mem.at(j.partial.id, part*n)
		if part == 0 {
			j.do(w, opCopy, n, to, from, from, 1, 1)
			continue
		}
		j.do(w, j.op, n, to, to, from, 1, 1)
	}
}

// storeResults returns the place for the results of a Reduce in the order outer, inner. That is its
// Out, or temporary memory with phases that copy from there to Out.
func storeResults[T real](k *maker, s *program.Step, op *program.Reduce, order []int) (place, []phase, error) {
	var shape, strides []int
	for _, d := range order {
		if !op.Reduced[d] {
			shape, strides = append(shape, op.Space[d]), append(strides, s.Out[0].Strides[d])
		}
	}
	out := &s.Out[0]
	whole := newSpace(shape, upTo(len(shape)), [][]int{strides})
	if k.p.Values[out.Value].DType == dtypeOf[T]() && whole.isWhole(whole.strides[0]) {
		return place{out.Value, out.Offset}, nil, nil
	}
	from := k.packedTemp(dtypeOf[T](), shape)
	phases, err := k.convert(nil, dtypeOf[T](), shape, from, program.View{Value: out.Value, Offset: out.Offset, Strides: strides})
	return place{id: from.Value}, phases, err
}
