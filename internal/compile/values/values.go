// Package values connects values of Gorgonia with typed memory: it reads elements in place, makes
// values over memory, and copies elements with any strides.
package values

import (
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/tensor"
)

// Memory returns the elements of a value in place.
//
// Errors: elements that are not contiguous in C order, or not of dtype dt.
func Memory(v gorgonia.Value, dt tensor.DType) (tensor.Buffer, error) {
	got, err := DType(v.Dtype())
	if err != nil {
		return tensor.Buffer{}, err
	}
	if got != dt {
		return tensor.Buffer{}, fmt.Errorf("elements are %v, want %v", got, dt)
	}
	switch x := v.(type) {
	case *gtensor.Dense:
		if !IsPlain(x) {
			return tensor.Buffer{}, fmt.Errorf("elements of shape %v are not contiguous in C order", x.Shape())
		}
		return tensor.FromPointer(Elements(x), max(x.Shape().TotalSize(), 1), dt, tensor.Host)
	case interface{ Pointer() unsafe.Pointer }: // scalars
		return tensor.FromPointer(x.Pointer(), 1, dt, tensor.Host)
	}
	return tensor.Buffer{}, fmt.Errorf("a value of type %T has no elements", v)
}

// Elements returns the address of the first element of d, which has a dtype that DType knows.
func Elements(d *gtensor.Dense) unsafe.Pointer {
	switch d.Dtype() {
	case gtensor.Float32:
		return unsafe.Pointer(unsafe.SliceData(d.Float32s()))
	case gtensor.Float64:
		return unsafe.Pointer(unsafe.SliceData(d.Float64s()))
	case gtensor.Int:
		return unsafe.Pointer(unsafe.SliceData(d.Ints()))
	}
	return reflect.ValueOf(d.Data()).UnsafePointer()
}

// IsPlain reports whether the elements of d are in C order without gaps.
func IsPlain(d *gtensor.Dense) bool { return tensor.PackedDense(d) }

// Compact copies the elements of d to b in C order.
func Compact(b tensor.Buffer, d *gtensor.Dense) error {
	return alongElements(b, d, func(packed, there []byte) { copy(packed, there) })
}

// alongElements calls f with the bytes of each element of b and of the corresponding element of d.
func alongElements(b tensor.Buffer, d *gtensor.Dense, f func(packed, there []byte)) error {
	shape, strides := d.Shape(), d.Strides()
	if len(strides) != len(shape) || b.Len() != shape.TotalSize() {
		return fmt.Errorf("%d strides for shape %v, and %d elements", len(strides), shape, b.Len())
	}
	size := b.DType().Size()
	elements, all := b.Raw(), unsafe.Slice((*byte)(Elements(d)), int(d.MemSize()))
	at := make([]int, len(shape))
	for i, offset := 0, 0; i < b.Len(); i++ {
		f(elements[i*size:(i+1)*size], all[offset*size:(offset+1)*size])
		for axis := len(shape) - 1; axis >= 0; axis-- {
			at[axis]++
			offset += strides[axis]
			if at[axis] < shape[axis] {
				break
			}
			offset -= shape[axis] * strides[axis]
			at[axis] = 0
		}
	}
	return nil
}

// Packed returns a copy of v with elements in C order without gaps. gorgonia.CloneValue keeps
// strides, but loses elements after the gaps.
func Packed(v gorgonia.Value) (gorgonia.Value, error) {
	d, ok := v.(*gtensor.Dense)
	if !ok || IsPlain(d) {
		return gorgonia.CloneValue(v)
	}
	dt, err := DType(d.Dtype())
	if err != nil {
		return nil, err
	}
	b, err := New(dt, max(d.Shape().TotalSize(), 1))
	if err != nil {
		return nil, err
	}
	if err := Compact(b, d); err != nil {
		return nil, err
	}
	return Over(b, d.Dtype(), slices.Clone([]int(d.Shape())), false)
}

// Over returns a value of Gorgonia over the memory of b: a scalar, or a tensor of that shape.
//
// Errors: elements of b that are not of dtype gdt.
func Over(b tensor.Buffer, gdt gtensor.Dtype, shape []int, scalar bool) (gorgonia.Value, error) {
	if dt, err := DType(gdt); err != nil || dt != b.DType() {
		return nil, fmt.Errorf("elements are %v, want %v", b.DType(), gdt)
	}
	if scalar {
		return scalarOver(b, gdt)
	}
	n := b.Len()
	switch gdt {
	case gtensor.Int:
		return gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(unsafe.Slice((*int)(b.Pointer()), n))), nil
	case gtensor.Uint:
		return gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(unsafe.Slice((*uint)(b.Pointer()), n))), nil
	case gtensor.Bool:
		return gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(unsafe.Slice((*bool)(b.Pointer()), n))), nil
	}
	if len(shape) > 0 {
		return tensor.View(b, shape...)
	}
	d, err := tensor.View(b, 1)
	if err != nil {
		return nil, err
	}
	return d, d.Reshape() // to no dimensions
}

func scalarOver(b tensor.Buffer, gdt gtensor.Dtype) (gorgonia.Value, error) {
	p := b.Pointer()
	switch gdt {
	case gtensor.Float64:
		return (*gorgonia.F64)(p), nil
	case gtensor.Float32:
		return (*gorgonia.F32)(p), nil
	case gtensor.Int:
		return (*gorgonia.I)(p), nil
	case gtensor.Int64:
		return (*gorgonia.I64)(p), nil
	case gtensor.Int32:
		return (*gorgonia.I32)(p), nil
	case gtensor.Uint8:
		return (*gorgonia.U8)(p), nil
	case gtensor.Bool:
		return (*gorgonia.B)(p), nil
	}
	return nil, fmt.Errorf("unsupported scalar type %v", gdt)
}

// New returns zeroed memory of the Go heap, aligned to a cache line.
func New(dt tensor.DType, n int) (tensor.Buffer, error) {
	const line = 64
	raw := make([]uint64, (n*dt.Size()+line)/8+1)
	p := unsafe.Pointer(unsafe.SliceData(raw))
	return tensor.FromPointer(unsafe.Add(p, int(-uintptr(p)&(line-1))), n, dt, tensor.Host)
}

// SameShape reports whether a value's shape is that of a node. Like Gorgonia, it equates vectors,
// columns and rows of one length.
func SameShape(got gtensor.Shape, want []int) bool {
	if slices.Equal([]int(got), want) {
		return true
	}
	return got.TotalSize() == gtensor.Shape(want).TotalSize() && (len(want) == 0 && got.IsScalarEquiv() || got.Eq(gtensor.Shape(want)))
}

// Try calls f and returns a panic of Gorgonia as an error.
func Try(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("gorgonia: %v", p)
		}
	}()
	f()
	return nil
}

// DType converts a dtype of Gorgonia. Its int has 64 bits, as on all supported machines.
//
// Errors: types that are not numbers.
func DType(g gtensor.Dtype) (tensor.DType, error) {
	switch g {
	case gtensor.Int:
		return tensor.I64, nil
	case gtensor.Uint:
		return tensor.U64, nil
	case gtensor.Bool:
		return tensor.U8, nil
	}
	return tensor.FromGorgonia(g)
}

// Copy copies the elements of v to b.
func Copy(b tensor.Buffer, v gorgonia.Value) error {
	from, err := Memory(v, b.DType())
	if err == nil {
		if from.Len() != b.Len() {
			return fmt.Errorf("%d elements, want %d", from.Len(), b.Len())
		}
		copy(b.Raw(), from.Raw())
		return nil
	}
	if d, ok := v.(*gtensor.Dense); ok && !IsPlain(d) {
		return Compact(b, d)
	}
	return err
}

// CopyInto copies the elements of from to those of to, whatever the strides.
func CopyInto(to, from gorgonia.Value) error {
	dt, err := DType(to.Dtype())
	if err != nil {
		return err
	}
	b, err := Memory(to, dt)
	if err == nil {
		return Copy(b, from)
	}
	d, ok := to.(*gtensor.Dense)
	if !ok {
		return err
	}
	packedFrom, err := Packed(from)
	if err != nil {
		return err
	}
	src, err := Memory(packedFrom, dt)
	if err != nil {
		return err
	}
	return scatter(d, src)
}

// scatter copies elements in C order to the elements of d.
func scatter(d *gtensor.Dense, from tensor.Buffer) error {
	return alongElements(from, d, func(packed, there []byte) { copy(there, packed) })
}

// Number returns the element of a value that has one.
func Number(v gorgonia.Value) (float64, error) {
	switch x := v.Data().(type) {
	case float64:
		return x, nil
	case float32:
		return float64(x), nil
	case int:
		return float64(x), nil
	case int64:
		return float64(x), nil
	case int32:
		return float64(x), nil
	case uint8:
		return float64(x), nil
	case bool:
		if x {
			return 1, nil
		}
		return 0, nil
	case []float64:
		return x[0], nil
	case []float32:
		return float64(x[0]), nil
	case []int:
		return float64(x[0]), nil
	}
	return 0, fmt.Errorf("a constant of type %T is not a number", v.Data())
}

// Size returns the number of elements of a shape.
func Size(shape []int) int { return gtensor.Shape(shape).TotalSize() }
