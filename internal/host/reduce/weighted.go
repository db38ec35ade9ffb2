package reduce

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Weighted computes, for every i,
//
//	dst[i] = factors[0]*srcs[0][i] + factors[1]*srcs[1][i] + ...
//
// with the bits of Into, by the fastest kernel of this machine. Factors are rounded to the dtype,
// and each product before it is added.
//
// Shapes: dst and all srcs have one dtype, F32 or F64, and one length, in host memory. dst may be
// one of the srcs; it is disjoint from the others. Each source has a factor. Errors: no source, or
// buffers or factors that break these rules; they match dist.ErrInvalid, and dst is unchanged.
func Weighted(dst tensor.Buffer, srcs []tensor.Buffer, factors []float64) error {
	dt := dst.DType()
	if dt != tensor.F32 && dt != tensor.F64 {
		return fmt.Errorf("reduce: %w: factors for %v", dist.ErrDType, dst)
	}
	w := newWork()
	defer w.done()
	for _, f := range factors {
		bits := math.Float64bits(f)
		if dt == tensor.F32 {
			bits = uint64(math.Float32bits(float32(f)))
		}
		w.scalars = append(w.scalars, bits)
	}
	if err := check(dst, srcs, dist.RedPreMulSum, w.scalars); err != nil {
		return err
	}
	for i := range srcs {
		w.srcs = append(w.srcs, srcs[i].Pointer())
	}
	w.dsts[0] = dst.Pointer()
	kernel := singles
	if dt == tensor.F64 {
		kernel = doubles
	}
	kernel(w.dsts[:], w.srcs, dst.Len(), w.scalars, 0)
	return nil
}

var singles, doubles = For(tensor.F32, dist.RedPreMulSum), For(tensor.F64, dist.RedPreMulSum)

// work has the arguments of a kernel, which would be allocated for each call. Up to 16 are reused.
type work struct {
	dsts    [1]unsafe.Pointer
	srcs    []unsafe.Pointer
	scalars []uint64
}

var kept = make(chan *work, 16)

func newWork() *work {
	select {
	case w := <-kept:
		return w
	default:
		return new(work)
	}
}

// done releases the caller's memory and keeps w for reuse.
func (w *work) done() {
	clear(w.srcs)
	w.dsts[0], w.srcs, w.scalars = nil, w.srcs[:0], w.scalars[:0]
	select {
	case kept <- w:
	default:
	}
}
