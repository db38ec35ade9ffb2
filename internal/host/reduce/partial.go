package reduce

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Partial is a reduction whose sources are not in one memory: some ranks combine theirs, and others
// continue from the partial result. The result has the bits of Into over all sources, if every rank
// begins its source, partial results are combined in rank order, and the last one is finished.
type Partial struct {
	DType tensor.DType // of the sources and the result
	Red   dist.RedKind
	Ranks int // sources in all
}

// Acc returns the type of partial results: f32 for f16 and bf16, else the type of the sources.
func (p Partial) Acc() tensor.DType {
	if p.DType == tensor.F16 || p.DType == tensor.BF16 {
		return tensor.F32
	}
	return p.DType
}

// Combining returns the reduction that combines partial results, of type Acc.
func (p Partial) Combining() dist.RedKind {
	if p.Red == dist.RedAvg || p.Red == dist.RedPreMulSum {
		return dist.RedSum
	}
	return p.Red
}

// Begins reports whether a source differs from its partial result, so that Begin is needed.
func (p Partial) Begins() bool { return p.Acc() != p.DType || p.Red == dist.RedPreMulSum }

// Ends reports whether the last partial result differs from the result, so that Finish is needed.
func (p Partial) Ends() bool { return p.Acc() != p.DType || p.Red == dist.RedAvg }

// Begin sets dst to the partial result of one source. scalar has the ScalarBits of a premulsum.
//
// Shapes: src has type DType, dst type Acc and the same length; they are disjoint or the same.
// Errors: other types or lengths; they match dist.ErrInvalid.
func (p Partial) Begin(dst, src tensor.Buffer, scalar uint64) error {
	if err := p.fits(dst, src); err != nil {
		return err
	}
	switch p.DType {
	case tensor.F16:
		return begin16[tensor.Float16](dst, src, p.Red, scalar)
	case tensor.BF16:
		return begin16[tensor.BFloat16](dst, src, p.Red, scalar)
	}
	red := p.Combining()
	if p.Red == dist.RedPreMulSum {
		red = dist.RedPreMulSum
	}
	return Into(dst, []tensor.Buffer{src}, red, []uint64{scalar})
}

// Finish sets dst to the result, from the partial result of all sources.
//
// Shapes: dst has type DType, acc type Acc and the same length; they are disjoint or the same.
// Errors: other types or lengths; they match dist.ErrInvalid. acc is undefined afterwards.
func (p Partial) Finish(dst, acc tensor.Buffer) error {
	if err := p.fits(acc, dst); err != nil {
		return err
	}
	if p.Red == dist.RedAvg {
		if err := divideBy(acc, p.Ranks); err != nil {
			return err
		}
	}
	switch p.DType {
	case tensor.F16:
		return finish16[tensor.Float16](dst, acc)
	case tensor.BF16:
		return finish16[tensor.BFloat16](dst, acc)
	}
	copy(dst.Raw(), acc.Raw())
	return nil
}

func (p Partial) fits(acc, x tensor.Buffer) error {
	if acc.DType() != p.Acc() || x.DType() != p.DType || acc.Len() != x.Len() {
		return fmt.Errorf("reduce: %w: %d elements of %v for %d partial results of %v", dist.ErrDType, x.Len(), x.DType(), acc.Len(), acc.DType())
	}
	return nil
}

func begin16[T half16](dst, src tensor.Buffer, red dist.RedKind, scalar uint64) error {
	to, err := tensor.Data[float32](dst)
	if err != nil {
		return err
	}
	from, err := tensor.Data[T](src)
	if err != nil {
		return err
	}
	widen(to, from)
	if red == dist.RedPreMulSum {
		scale(to, to, T(scalar).Float32())
	}
	return nil
}

func finish16[T half16](dst, acc tensor.Buffer) error {
	to, err := tensor.Data[T](dst)
	if err != nil {
		return err
	}
	from, err := tensor.Data[float32](acc)
	if err != nil {
		return err
	}
	round(to, from)
	return nil
}

// divideBy divides all elements of x by n.
func divideBy(x tensor.Buffer, n int) error {
	switch x.DType() {
	case tensor.F32:
		return divideAll[float32](x, n)
	case tensor.F64:
		return divideAll[float64](x, n)
	case tensor.I8:
		return divideAll[int8](x, n)
	case tensor.I16:
		return divideAll[int16](x, n)
	case tensor.I32:
		return divideAll[int32](x, n)
	case tensor.I64:
		return divideAll[int64](x, n)
	case tensor.U8:
		return divideAll[uint8](x, n)
	case tensor.U16:
		return divideAll[uint16](x, n)
	case tensor.U32:
		return divideAll[uint32](x, n)
	}
	return divideAll[uint64](x, n)
}

func divideAll[T number](x tensor.Buffer, n int) error {
	data, err := tensor.Data[T](x)
	if err == nil {
		divide(data, n)
	}
	return err
}
