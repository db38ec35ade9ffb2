package ops

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// form is the type, dtype and shape of a value.
type form struct {
	typ   hm.Type // of the node: a Dtype for a scalar, otherwise a TensorType
	dt    tensor.DType
	gdt   gtensor.Dtype
	shape gtensor.Shape // empty for a scalar
}

// formOf returns the form of x's values.
//
// Errors: dist.ErrInvalid for a node without a shape, dist.ErrDType for elements that cannot be
// communicated.
func formOf(x *gorgonia.Node) (form, error) {
	switch x.Type().(type) {
	case gtensor.Dtype, gorgonia.TensorType:
	default:
		return form{}, fmt.Errorf("%w: a node of type %v has no elements", dist.ErrDType, x.Type())
	}
	f := form{typ: x.Type(), gdt: x.Dtype(), shape: x.Shape()}
	var err error
	if f.dt, err = tensor.FromGorgonia(f.gdt); err != nil {
		return form{}, fmt.Errorf("%w: %w", dist.ErrDType, err)
	}
	if x.IsScalar() {
		f.shape = gtensor.Shape{}
	} else if len(f.shape) == 0 {
		return form{}, fmt.Errorf("%w: the node has no shape yet", dist.ErrInvalid)
	}
	return f, f.check()
}

// newForm returns the form of a tensor of the given dtype and shape, or of a scalar if there is no
// shape.
func newForm(gdt gtensor.Dtype, shape ...int) (form, error) {
	f := form{typ: gdt, gdt: gdt, shape: gtensor.Shape(shape).Clone()}
	if len(shape) > 0 {
		f.typ = gorgonia.TensorType{Dims: len(shape), Of: gdt}
	}
	var err error
	if f.dt, err = tensor.FromGorgonia(gdt); err != nil {
		return form{}, fmt.Errorf("%w: %w", dist.ErrDType, err)
	}
	return f, f.check()
}

func (f form) check() error {
	for _, d := range f.shape {
		if d < 1 {
			return fmt.Errorf("%w: shape %v has a dimension below 1", dist.ErrCount, f.shape)
		}
	}
	if f.scalar() && newScalar(f.gdt) == nil {
		return fmt.Errorf("%w: gorgonia has no %v scalar; use shape (1)", dist.ErrDType, f.dt)
	}
	return nil
}

func (f form) scalar() bool { return len(f.shape) == 0 }

func (f form) len() int { return f.shape.TotalSize() } // 1 for a scalar

// rows returns f with axis 0 of length n. Its type has as many dimensions as the shape: gorgonia
// lets vectors have the shape (n, 1) or (1, n), but the result may be a matrix.
func (f form) rows(n int) form {
	f.shape = f.shape.Clone()
	f.shape[0] = n
	f.typ = gorgonia.TensorType{Dims: len(f.shape), Of: f.gdt}
	return f
}

func (f form) String() string {
	if f.scalar() {
		return f.dt.String() + " scalar"
	}
	return fmt.Sprintf("%v%v", f.dt, f.shape)
}

// read returns the elements of v in C order: v's own memory, or a copy if that is not contiguous.
//
// Errors: v is not of this form.
func (f form) read(v gorgonia.Value) (tensor.Buffer, error) {
	if v == nil {
		return tensor.Buffer{}, fmt.Errorf("%w: the input has no value", dist.ErrInvalid)
	}
	if dt := v.Dtype(); dt != f.gdt {
		return tensor.Buffer{}, fmt.Errorf("%w: the value is %v, the graph says %v", dist.ErrDType, dt, f)
	}
	if s := v.Shape(); s.TotalSize() != f.len() || (f.len() > 1 && !s.Eq(f.shape)) {
		return tensor.Buffer{}, fmt.Errorf("%w: the value has shape %v, the graph says %v", dist.ErrCount, s, f)
	}
	b, err := alias(v)
	if err == nil {
		return b, nil
	}
	if d, ok := v.(*gtensor.Dense); ok {
		return compact(d, f.dt)
	}
	return tensor.Buffer{}, err
}

// place returns a value for a result of this form, and its elements. The value is prealloc if that
// fits and shares no memory with in, otherwise new and zero.
func (f form) place(prealloc, in gorgonia.Value) (gorgonia.Value, tensor.Buffer, error) {
	if prealloc != nil && prealloc.Dtype() == f.gdt && prealloc.Shape().Eq(f.shape) && !overlap(prealloc, in) {
		if b, err := alias(prealloc); err == nil {
			return prealloc, b, nil
		}
	}
	var v gorgonia.Value
	if f.scalar() {
		v = newScalar(f.gdt)
	} else {
		v = gtensor.New(gtensor.Of(f.gdt), gtensor.WithShape(f.shape...))
	}
	b, err := alias(v)
	return v, b, err
}

// newScalar returns a zero scalar of gorgonia's, or nil if gorgonia has none of the dtype.
func newScalar(gdt gtensor.Dtype) gorgonia.Value {
	switch gdt {
	case gtensor.Float64:
		return gorgonia.NewF64(0)
	case gtensor.Float32:
		return gorgonia.NewF32(0)
	case gtensor.Int64:
		return gorgonia.NewI64(0)
	case gtensor.Int32:
		return gorgonia.NewI32(0)
	case gtensor.Uint8:
		return gorgonia.NewU8(0)
	}
	return nil
}

// alias returns the memory of v as a buffer.
//
// Errors: v is not contiguous, or is no host value of gorgonia's.
func alias(v gorgonia.Value) (tensor.Buffer, error) {
	switch x := v.(type) {
	case *gtensor.Dense:
		return tensor.BufferOf(x)
	case interface{ Pointer() unsafe.Pointer }: // the scalars
		dt, err := tensor.FromGorgonia(v.Dtype())
		if err != nil {
			return tensor.Buffer{}, err
		}
		return tensor.FromPointer(x.Pointer(), 1, dt, tensor.Host)
	}
	return tensor.Buffer{}, fmt.Errorf("%w: a %T cannot be communicated", dist.ErrInvalid, v)
}

// overlap reports whether a and b share memory, including elements that a view skips.
func overlap(a, b gorgonia.Value) bool {
	return a.Uintptr() < b.Uintptr()+b.MemSize() && b.Uintptr() < a.Uintptr()+a.MemSize()
}

// compact returns a copy of d's elements in C order, for any strides. Gorgonia's tensor.Copy would
// keep the memory order of a column-major d (v0.9.24).
func compact(d *gtensor.Dense, dt tensor.DType) (tensor.Buffer, error) {
	if d.Shape().IsScalar() { // a slice with a step: its Data is the number
		return tensor.BufferOf(gtensor.New(gtensor.FromScalar(d.Data())))
	}
	base, err := tensor.FromPointer(reflect.ValueOf(d.Data()).UnsafePointer(), d.DataSize(), dt, tensor.Host)
	if err != nil {
		return tensor.Buffer{}, err
	}
	shape, strides := d.Shape(), d.Strides()
	switch { // gorgonia gives column-major vectors one stride and single numbers none, for any shape
	case len(strides) == len(shape):
	case shape.TotalSize() == 1:
		shape, strides = nil, nil
	case len(strides) == 1:
		shape = gtensor.Shape{shape.TotalSize()}
	default:
		return tensor.Buffer{}, fmt.Errorf("%w: %d strides for shape %v", dist.ErrInvalid, len(strides), shape)
	}
	dense := gtensor.New(gtensor.Of(d.Dtype()), gtensor.WithShape(d.Shape().TotalSize()))
	out, err := tensor.BufferOf(dense)
	if err != nil {
		return tensor.Buffer{}, err
	}
	from, to, size := base.Raw(), out.Raw(), dt.Size()
	at := make([]int, len(shape)) // coordinates of the element to copy
	for i, offset := 0, 0; i < out.Len(); i++ {
		copy(to[i*size:(i+1)*size], from[offset*size:])
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
	return out, nil
}
