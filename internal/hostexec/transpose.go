package hostexec

import (
	"unsafe"

	"github.com/symgrad/symgrad/internal/program"
)

// turn is a Map that only copies, from a view whose innermost dimension is not that of the Out: a
// transposition, alone or of each of many matrices. It goes tile by tile, so that both sides are
// read and written by whole lines.
type turn struct {
	sp          *space
	from, to    place
	bytes       int // of an element
	along       int // the dimension that is innermost in the In
	pieces, per int // of along
	level       *level
}

// tileRows is how many rows of the Out are written side by side: their lines fit the L1 cache.
const tileRows = 128

// newTurn is nil for a Map that is something else.
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
	t.pieces = n / t.per // the last one has the rest
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

// blocks transposes n by inner elements in blocks of 8 by 8. Where 8 do not fit, the last block
// does elements again.
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

// turned is element (j, i) of src, across bytes from j to j, at (i, j) of dst, down bytes from i to
// i.
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
