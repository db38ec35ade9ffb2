package tensor

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	gtensor "gorgonia.org/tensor"
)

// Region is the memory of a tensor: this rank's part and views of the other ranks' parts of one
// symmetric allocation. symmetric.Region has these methods.
type Region interface {
	Local() Buffer                 // this rank's part, as untyped bytes
	Peer(rank int) (Buffer, error) // the part of another rank, directly addressable, as untyped bytes
}

// Tensor is a gorgonia tensor with its elements in a region of the symmetric heap, starting at the
// region's first byte.
type Tensor struct {
	*gtensor.Dense
	dt     DType
	shape  gtensor.Shape
	region Region
}

// New returns a tensor over the first bytes of r. The elements are the region's content: zeros in a
// new allocation.
//
// Shapes: any rank >= 1; use shape (1) for a scalar, because gorgonia turns rank-0 gradients into
// Go scalars. Owns: r stays the caller's, and must outlive the tensor. Errors: no region, a dtype
// without a gorgonia counterpart, a non-positive dimension, a region too small or not in host
// memory.
func New(r Region, dt DType, shape ...int) (*Tensor, error) {
	if r == nil {
		return nil, errors.New("tensor: no region")
	}
	b, err := typed(r.Local(), dt, shape)
	if err != nil {
		return nil, fmt.Errorf("tensor: %w", err)
	}
	d, err := View(b, shape...)
	if err != nil {
		return nil, err
	}
	return &Tensor{Dense: d, dt: dt, shape: gtensor.Shape(shape).Clone(), region: r}, nil
}

// Zeros is New with every element set to zero.
func Zeros(r Region, dt DType, shape ...int) (*Tensor, error) {
	t, err := New(r, dt, shape...)
	if err != nil {
		return nil, err
	}
	clear(t.Buffer().Raw())
	return t, nil
}

// FromDense returns a tensor in r with the shape of d and a copy of its elements.
//
// Errors: those of New; d is a view whose elements are not contiguous.
func FromDense(r Region, d *gtensor.Dense) (*Tensor, error) {
	src, err := BufferOf(d)
	if err != nil {
		return nil, err
	}
	t, err := New(r, src.DType(), d.Shape()...)
	if err != nil {
		return nil, err
	}
	copy(t.Buffer().Raw(), src.Raw())
	return t, nil
}

// Buffer returns the tensor's elements as a Buffer.
func (t *Tensor) Buffer() Buffer {
	b, _ := typed(t.region.Local(), t.dt, t.shape) // checked by New
	return b
}

// Peer returns the same tensor in the heap of another rank: reading it reads that rank's memory.
// The caller must synchronize.
//
// Errors: rank out of range, or memory that cannot be addressed directly.
func (t *Tensor) Peer(rank int) (*gtensor.Dense, error) {
	b, err := t.region.Peer(rank)
	if err != nil {
		return nil, err
	}
	if b, err = typed(b, t.dt, t.shape); err != nil {
		return nil, fmt.Errorf("tensor: rank %d: %w", rank, err)
	}
	return View(b, t.shape...)
}

// View returns a gorgonia tensor of the given shape over the elements of b, which it aliases.
//
// Owns: the memory stays the caller's; gorgonia never frees it. Errors: the shape is empty or its
// size is not b.Len, b is not in host memory, or gorgonia has no such dtype.
func View(b Buffer, shape ...int) (*gtensor.Dense, error) {
	switch n, err := elements(shape); {
	case err != nil:
		return nil, fmt.Errorf("tensor: %w", err)
	case n != b.n:
		return nil, fmt.Errorf("tensor: shape %v has %d elements, the buffer %d", shape, n, b.n)
	}
	if _, err := b.DType().Gorgonia(); err != nil {
		return nil, fmt.Errorf("tensor: %w", err)
	}
	if b.Device() != Host {
		return nil, fmt.Errorf("tensor: a gorgonia tensor cannot view %v memory", b.Device())
	}
	return gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(backing(b))), nil
}

// BufferOf returns the elements of d as a Buffer; it aliases d.
//
// Errors: nil, a view whose elements are not contiguous in C order, a dtype that cannot be
// communicated.
func BufferOf(d *gtensor.Dense) (Buffer, error) {
	if d == nil {
		return Buffer{}, errors.New("tensor: nil dense")
	}
	dt, err := FromGorgonia(d.Dtype())
	if err != nil {
		return Buffer{}, fmt.Errorf("tensor: %w", err)
	}
	if !PackedDense(d) {
		return Buffer{}, fmt.Errorf("tensor: %v view of shape %v is not contiguous in C order; clone it first", dt, d.Shape())
	}
	return elementsOf(d, dt).Slice(0, max(d.Shape().TotalSize(), 1))
}

// elementsOf returns all memory of d, whose type is dt.
func elementsOf(d *gtensor.Dense, dt DType) Buffer {
	switch dt {
	case F32:
		return Of(d.Float32s())
	case F64:
		return Of(d.Float64s())
	case I8:
		return Of(d.Int8s())
	case I16:
		return Of(d.Int16s())
	case I32:
		return Of(d.Int32s())
	case I64:
		return Of(d.Int64s())
	case U8:
		return Of(d.Uint8s())
	case U16:
		return Of(d.Uint16s())
	case U32:
		return Of(d.Uint32s())
	}
	return Of(d.Uint64s())
}

// PackedDense reports whether d has no mask, and its elements are in C order without gaps from the
// start of its memory. Gorgonia's flags (IsColMajor, IsContiguous, RequiresIterator) do not tell: a
// column-major column and a transposed row are packed. A slice of a transposed view has the flags
// of a contiguous tensor, but is not packed.
func PackedDense(d *gtensor.Dense) bool {
	size := d.Shape().TotalSize()
	held := d.DataSize()
	if d.Shape().IsScalar() {
		held = 1 // gorgonia says 0
	}
	return !d.IsMasked() && held >= size && Packed(d.Shape(), d.Strides())
}

// Packed reports whether strides, in elements, visit the memory of a shape in C order without gaps,
// the last dimension fastest. Strides of dimensions of length 1 are not used and may have any
// value. A shape without elements is packed. One stride for several dimensions, as gorgonia has for
// a column-major vector, belongs to the only dimension longer than 1. Any other number of strides
// fits at most one element.
func Packed(shape, strides []int) bool {
	size, longest := 1, 1
	for _, d := range shape {
		size, longest = size*d, max(longest, d)
	}
	switch {
	case size == 0:
		return true
	case len(strides) == 1 && len(shape) > 1 && longest == size:
		return size == 1 || strides[0] == 1
	case len(strides) != len(shape):
		return size == 1
	}
	want := 1
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] != 1 && strides[i] != want {
			return false
		}
		want *= shape[i]
	}
	return true
}

// typed returns the bytes b as elements of dt in the given shape.
func typed(b Buffer, dt DType, shape []int) (Buffer, error) {
	n, err := elements(shape)
	if err != nil {
		return Buffer{}, err
	}
	if size := int64(dt.Size()); size > 0 && int64(n) > b.Bytes()/size {
		return Buffer{}, fmt.Errorf("%v%v needs %d elements of %d bytes, the region has %d bytes", dt, shape, n, size, b.Bytes())
	}
	return FromPointer(b.ptr, n, dt, b.Device())
}

// elements returns the number of elements of a tensor of the given shape. It must be at least 1:
// gorgonia panics on empty tensors.
func elements(shape []int) (int, error) {
	if len(shape) == 0 {
		return 0, errors.New("a shape needs a dimension; use (1) for a scalar")
	}
	n := 1
	for _, d := range shape {
		if d <= 0 {
			return 0, fmt.Errorf("shape %v has a dimension below 1", shape)
		}
		if d > math.MaxInt/n {
			return 0, fmt.Errorf("shape %v has more elements than an int counts", shape)
		}
		n *= d
	}
	return n, nil
}

// backing returns the elements of a host buffer as a slice for gorgonia.
func backing(b Buffer) any {
	switch b.DType() {
	case F32:
		return unsafe.Slice((*float32)(b.ptr), b.n)
	case F64:
		return unsafe.Slice((*float64)(b.ptr), b.n)
	case I8:
		return unsafe.Slice((*int8)(b.ptr), b.n)
	case I16:
		return unsafe.Slice((*int16)(b.ptr), b.n)
	case I32:
		return unsafe.Slice((*int32)(b.ptr), b.n)
	case I64:
		return unsafe.Slice((*int64)(b.ptr), b.n)
	case U8:
		return unsafe.Slice((*uint8)(b.ptr), b.n)
	case U16:
		return unsafe.Slice((*uint16)(b.ptr), b.n)
	case U32:
		return unsafe.Slice((*uint32)(b.ptr), b.n)
	case U64:
		return unsafe.Slice((*uint64)(b.ptr), b.n)
	}
	return nil
}
