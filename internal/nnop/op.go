package nnop

import (
	"fmt"
	"hash"
	"hash/fnv"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// result has the parts that all ops share: the number of inputs, and the result's type and shape.
type result struct {
	name   string // String of the op; equal ops on equal inputs may be merged, so it has all settings
	inputs int
	dtype  gtensor.Dtype
	shape  gtensor.Shape // empty for a scalar
}

// Arity is the number of inputs.
func (r *result) Arity() int { return r.inputs }

// Type returns c → d → ... → the result's type. Gorgonia names the result b while it infers types
// (typeSystem.go:59), so no input may have that name.
func (r *result) Type() hm.Type {
	types := make([]hm.Type, 0, r.inputs+1)
	for i := range r.inputs {
		types = append(types, hm.TypeVariable('c'+rune(i)))
	}
	if len(r.shape) == 0 {
		return hm.NewFnType(append(types, r.dtype)...)
	}
	return hm.NewFnType(append(types, gorgonia.TensorType{Dims: len(r.shape), Of: r.dtype})...)
}

// InferShape returns the result's shape.
func (r *result) InferShape(...gorgonia.DimSizer) (gtensor.Shape, error) { return r.shape.Clone(), nil }

// ReturnsPtr is true: the result is a tensor, or a scalar of its own.
func (*result) ReturnsPtr() bool { return true }

// CallsExtern is false.
func (*result) CallsExtern() bool { return false }

// OverwritesInput is -1: no input is changed.
func (*result) OverwritesInput() int { return -1 }

// WriteHash writes the name and the shape.
func (r *result) WriteHash(h hash.Hash) {
	_, _ = fmt.Fprintf(h, "symgrad nn %s %v %v", r.name, r.dtype, r.shape)
}

// Hashcode returns the hash of WriteHash.
func (r *result) Hashcode() uint32 {
	h := fnv.New32a()
	r.WriteHash(h)
	return h.Sum32()
}

// String returns the op's name and settings.
func (r *result) String() string { return r.name }

// check returns the input tensors with their elements in C order.
func (r *result) check(in []gorgonia.Value) ([]*gtensor.Dense, error) {
	if len(in) != r.inputs {
		return nil, fmt.Errorf("%v: %w: %d inputs, want %d", r, dist.ErrInvalid, len(in), r.inputs)
	}
	all := make([]*gtensor.Dense, len(in))
	for i, v := range in {
		d, err := denseOf(v)
		if err != nil {
			return nil, fmt.Errorf("%v: input %d: %w", r, i, err)
		}
		all[i] = d
	}
	return all, nil
}

// denseOf returns a value as a tensor in C order, a copy where it is not one.
func denseOf(v gorgonia.Value) (*gtensor.Dense, error) {
	switch x := v.(type) {
	case *gtensor.Dense:
		if x.RequiresIterator() || !x.DataOrder().IsRowMajor() {
			return inOrder(x), nil
		}
		return x, nil
	case *gorgonia.F64:
		return gtensor.New(gtensor.FromScalar(float64(*x))), nil
	case *gorgonia.F32:
		return gtensor.New(gtensor.FromScalar(float32(*x))), nil
	}
	return nil, fmt.Errorf("%w: a %T is no tensor of numbers", dist.ErrInvalid, v)
}

// inOrder returns a copy of d with its elements in C order.
func inOrder(d *gtensor.Dense) *gtensor.Dense {
	to := gtensor.New(gtensor.Of(d.Dtype()), gtensor.WithShape(d.Shape().Clone()...))
	it := d.Iterator()
	for i := 0; ; i++ {
		at, err := it.Next()
		if err != nil {
			return to
		}
		to.Set(i, d.Get(at))
	}
}

// fresh returns a new tensor of zeros for the result.
func (r *result) fresh() *gtensor.Dense {
	return gtensor.New(gtensor.Of(r.dtype), gtensor.WithShape(r.shape.Clone()...))
}

// real is an element type of the ops.
type real interface{ float32 | float64 }

// elements returns the elements of a tensor, or of a scalar.
func elements[T real](d *gtensor.Dense) []T {
	switch e := d.Data().(type) {
	case []T:
		return e
	case T:
		return []T{e}
	}
	return nil
}

// numberOf returns the only element of a tensor.
func numberOf(d *gtensor.Dense) float64 {
	if e := elements[float32](d); len(e) > 0 {
		return float64(e[0])
	}
	return append(elements[float64](d), 0)[0]
}

// scalar returns a number as a value of Gorgonia's.
func scalar(dt gtensor.Dtype, x float64) gorgonia.Value {
	if dt == gtensor.Float32 {
		return gorgonia.NewF32(float32(x))
	}
	return gorgonia.NewF64(x)
}

// Number returns x as a constant of a dtype. Its name has the dtype: a graph takes constants of one
// name for the same node.
func Number(dt gtensor.Dtype, x float64) *gorgonia.Node {
	name := gorgonia.WithName(fmt.Sprintf("%v %v", dt, x))
	if dt == gtensor.Float32 {
		return gorgonia.NewConstant(float32(x), name)
	}
	return gorgonia.NewConstant(x, name)
}

// first is DiffWRT of an op that is differentiated by its first n inputs.
func first(n, inputs int) []bool {
	wrt := make([]bool, inputs)
	for i := range min(n, inputs) {
		wrt[i] = true
	}
	return wrt
}

// twice is the error of a gradient of a gradient.
func twice(op fmt.Stringer) error {
	return fmt.Errorf("gradient of %v: %w: it is a gradient already", op, dist.ErrUnsupported)
}
