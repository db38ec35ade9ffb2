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

// form is what a value looks like: type, dtype and shape.
type form struct {
	typ   hm.Type // the node's: a Dtype for a scalar, else a TensorType
	dt    tensor.DType
	gdt   gtensor.Dtype
	shape gtensor.Shape // empty for a scalar
}

// formOf is the form of x's values.
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

// newForm is the form of a tensor of the given dtype and shape; a scalar without a shape.
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

// rows is f with axis 0 of length n. Its type has as many dimensions as the shape: gorgonia lets
// vectors have the shape (n, 1) or (1, n), but the result may be a matrix.
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

// read is the elements of v, in C order: v's own memory, or a copy when they are not contiguous
// there.
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

// place is where a result of this form goes, as a value and as its elements: prealloc if it fits
// and shares no memory with in, else new memory, which is zero.
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

// newScalar is a zero of gorgonia's, or nil where it has none of the dtype.
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

// alias is the memory of v.
//
// Errors: it is not contiguous, or v is no host value that gorgonia knows.
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

// overlap reports whether a and b share memory, elements that a view skips included.
func overlap(a, b gorgonia.Value) bool {
	return a.Uintptr() < b.Uintptr()+b.MemSize() && b.Uintptr() < a.Uintptr()+a.MemSize()
}

// compact is a copy of d's elements in C order, whatever its strides are. Gorgonia's tensor.Copy
// would keep the order in memory when d is column-major (v0.9.24).
func compact(d *gtensor.Dense, dt tensor.DType) (tensor.Buffer, error) {
	if d.Shape().IsScalar() { // a slice with a step: its Data is the number
		return tensor.BufferOf(gtensor.New(gtensor.FromScalar(d.Data())))
	}
	base, err := tensor.FromPointer(reflect.ValueOf(d.Data()).UnsafePointer(), d.DataSize(), dt, tensor.Host)
	if err != nil {
		return tensor.Buffer{}, err
	}
	shape, strides := d.Shape(), d.Strides()
	switch { // gorgonia gives column-major vectors one stride, and single numbers none, whatever their shape
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
