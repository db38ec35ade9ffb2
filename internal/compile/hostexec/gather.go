package hostexec

import (
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

const f64 = tensor.F64

// gatherStep is a Gather or, with grad, a GatherGrad. A first phase reads and checks the indices.
type gatherStep[T real] struct {
	prims[T]
	outer, axis, inner, count int
	x, index, y               place
	dtype                     tensor.DType // of the indices
	size                      int          // bytes of an element of x
	rows                      []int        // the indices, after readIndices
	per                       int
}

type (
	readIndices[T real]    gatherStep[T]
	gatherGradStep[T real] gatherStep[T]
)

func newGather[T real](k *maker, s *program.Step, op *program.Gather) ([]phase, error) {
	g := gatherOf[T](k, s, op.Outer, op.Axis, op.Inner, op.Count)
	// A piece is rows of the result.
	g.per = max(1, pieceCost/(100*g.size*max(1, op.Inner)))
	return []phase{{(*readIndices[T])(g), 1}, {g, (op.Outer*op.Count + g.per - 1) / g.per}}, nil
}

func newGatherGrad[T real](k *maker, s *program.Step, op *program.GatherGrad) ([]phase, error) {
	g := gatherOf[T](k, s, op.Outer, op.Axis, op.Inner, op.Count)
	// A piece is some rows of the result of one outer, so that one goroutine adds each sum, in a
	// fixed order.
	ranges := min(op.Axis, 64, max(1, (op.Axis+op.Count)*op.Inner*size[T]()*100/pieceCost))
	g.per = max(1, (op.Axis+ranges-1)/max(1, ranges))
	return []phase{{(*readIndices[T])(g), 1}, {(*gatherGradStep[T])(g), op.Outer * ((op.Axis + g.per - 1) / g.per)}}, nil
}

func gatherOf[T real](k *maker, s *program.Step, outer, axis, inner, count int) *gatherStep[T] {
	return &gatherStep[T]{
		prims: prims[T]{k.level}, outer: outer, axis: axis, inner: inner, count: count, x: placeOf(&s.In[0]), index: placeOf(&s.In[1]),
		y: placeOf(&s.Out[0]), dtype: k.p.Values[s.In[1].Value].DType, rows: make([]int, count),
		size: k.p.Values[s.In[0].Value].DType.Size(),
	}
}

func (g *readIndices[T]) piece(w *worker, _ int) {
	var x [1]float64
	for i := range g.rows {
		loadRun(x[:], g.index.from(w, i), g.dtype, 1)
		if !(x[0] >= 0 && x[0] < float64(g.axis)) {
			w.crew.fail(0, fmt.Errorf("index %d is %g; there are %d rows", i, x[0], g.axis))
			return
		}
		g.rows[i] = int(x[0])
	}
}

func (g *gatherStep[T]) piece(w *worker, i int) {
	for r := i * g.per; r < min((i+1)*g.per, g.outer*g.count); r++ {
		from := (r/g.count*g.axis + g.rows[r%g.count]) * g.inner
		copy(unsafe.Slice((*byte)(g.y.from(w, r*g.inner)), g.inner*g.size), unsafe.Slice((*byte)(g.x.from(w, from)), g.inner*g.size))
	}
}

func (g *gatherGradStep[T]) piece(w *worker, i int) {
	blocks := (g.axis + g.per - 1) / g.per
	o, first := i/blocks, i%blocks*g.per
	last := min(first+g.per, g.axis)
	clear(unsafe.Slice((*T)(g.y.from(w, (o*g.axis+first)*g.inner)), (last-first)*g.inner))
	for k, r := range g.rows {
		if r >= first && r < last {
			y := g.y.from(w, (o*g.axis+r)*g.inner)
			g.do(w, opAdd, g.inner, y, y, g.x.from(w, (o*g.count+k)*g.inner), 1, 1)
		}
	}
}
