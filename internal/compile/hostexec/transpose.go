package hostexec

import (
	"unsafe"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// turn is a Map that only copies, from a view whose innermost dimension is not that of the Out: one
// transposition or a batch of them. It runs tile by tile, so that both sides are accessed in whole
// cache lines.
type turn struct {
	sp          *space
	from, to    place
	bytes       int // of an element
	along       int // the innermost dimension of the In
	pieces, per int // of along
	level       *level
}

// tileRows is the rows of the Out per tile: their lines fit in the L1 cache.
const tileRows = 128

// newTurn returns nil for a Map that is not a turn.
func newTurn(k *maker, s *program.Step, op *program.Map) []phase {
	if len(s.Out) != 1 || len(op.Stores) != 1 || op.Code[op.Stores[0]].Op != program.Load {
		return nil
	}
	in, out := &s.In[op.Code[op.Stores[0]].A], &s.Out[0]
	dt := k.p.Values[in.Value].DType
	if dt != k.p.Values[out.Value].DType || in.Value == out.Value {
		return nil
	}
	sp := newSpace(op.Space, byStride(op.Space, out.Strides), [][]int{in.Strides, out.Strides})
	last := len(sp.dims) - 1
	t := &turn{sp: sp, from: placeOf(in), to: placeOf(out), bytes: dt.Size(), along: -1, level: k.level}
	for d := range last {
		if sp.strides[0][d] == 1 {
			t.along = d
		}
	}
	if t.along < 0 || sp.strides[1][last] != 1 || min(sp.dims[t.along], sp.dims[last]) < 8 || sp.total == 0 || last >= maxDims {
		return nil
	}
	n := sp.dims[t.along]
	t.per = tileRows
	if n < 2*tileRows {
		t.per = n
	}
	t.pieces = n / t.per // the last one takes the rest
	return []phase{{t, sp.total / n / sp.dims[last] * t.pieces}}
}

func (t *turn) piece(w *worker, i int) {
	last := len(t.sp.dims) - 1
	first := i % t.pieces * t.per
	n := t.per
	if i%t.pieces == t.pieces-1 {
		n = t.sp.dims[t.along] - first
	}
	i /= t.pieces
	from, to := first, first*t.sp.strides[1][t.along]
	for d := last - 1; d >= 0; d-- {
		if d != t.along {
			from += i % t.sp.dims[d] * t.sp.strides[0][d]
			to += i % t.sp.dims[d] * t.sp.strides[1][d]
			i /= t.sp.dims[d]
		}
	}
	src, dst := t.from.from(w, from), t.to.from(w, to)
	across, down := t.sp.strides[0][last]*t.bytes, t.sp.strides[1][t.along]*t.bytes
	if t.level != nil && t.bytes == 4 {
		t.blocks(dst, src, across, down, n)
		return
	}
	switch t.bytes {
	case 1:
		turned[uint8](dst, src, across, down, n, t.sp.inner())
	case 2:
		turned[uint16](dst, src, across, down, n, t.sp.inner())
	case 4:
		turned[uint32](dst, src, across, down, n, t.sp.inner())
	case 8:
		turned[uint64](dst, src, across, down, n, t.sp.inner())
	}
}

// blocks transposes n by inner elements in blocks of 8 by 8. At the edges the last block repeats
// elements.
func (t *turn) blocks(dst, src unsafe.Pointer, across, down, n int) {
	inner := t.sp.inner()
	for j := 0; j < inner; j += 8 {
		j = min(j, inner-8)
		to, from := unsafe.Add(dst, 4*j), unsafe.Add(src, across*j)
		t.level.transpose(to, from, down, across, n/8)
		if n%8 != 0 {
			t.level.transpose(unsafe.Add(to, (n-8)*down), unsafe.Add(from, (n-8)*4), down, across, 1)
		}
	}
}

// turned copies element (j, i) of src to (i, j) of dst. Rows are across bytes apart in src, and
// down bytes in dst.
func turned[E any](dst, src unsafe.Pointer, across, down, n, inner int) {
	const block = 16
	var e E
	bytes := int(unsafe.Sizeof(e))
	for j0 := 0; j0 < inner; j0 += block {
		for i := range n {
			from := unsafe.Add(src, i*bytes)
			to := unsafe.Slice((*E)(unsafe.Add(dst, i*down)), inner)
			for j := j0; j < min(j0+block, inner); j++ {
				to[j] = *(*E)(unsafe.Add(from, j*across))
			}
		}
	}
}
