package optim

import (
	"fmt"
	"unsafe"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/tensor"
)

// float is an element type that solvers update.
type float interface{ float32 | float64 }

// flat is the memory of a gorgonia.Value, with the elements in C order: f32 or f64, by dtype.
type flat struct {
	dtype    gtensor.Dtype
	shape    gtensor.Shape
	f32      []float32
	f64      []float64
	constant bool // must never be written
}

// runFirst is the advice for a missing value.
const runFirst = "run the VM before the step; a machine with named outputs computes the gradients that are among them"

// flatten returns v's own memory, not a copy. Errors: ErrNoGradient if v is nil; ErrUnsupported if
// v is not contiguous float32 or float64 memory.
func flatten(v gorgonia.Value) (flat, error) {
	switch v := v.(type) {
	case nil:
		return flat{}, fmt.Errorf("it is nil: %s: %w", runFirst, ErrNoGradient)
	case *gtensor.Dense:
		if v == nil {
			return flat{}, fmt.Errorf("it is a nil *tensor.Dense: %s: %w", runFirst, ErrNoGradient)
		}
		return flattenDense(v)
	case *gorgonia.F32:
		if v != nil {
			return flat{dtype: gtensor.Float32, f32: unsafe.Slice((*float32)(v), 1)}, nil
		}
	case *gorgonia.F64:
		if v != nil {
			return flat{dtype: gtensor.Float64, f64: unsafe.Slice((*float64)(v), 1)}, nil
		}
	default:
		return flat{}, fmt.Errorf("%T %v: use float32 or float64 in a *tensor.Dense or a scalar: %w", v, v.Dtype(), ErrUnsupported)
	}
	return flat{}, fmt.Errorf("it is a nil %T: %s: %w", v, runFirst, ErrNoGradient)
}

func flattenDense(t *gtensor.Dense) (flat, error) {
	f := flat{dtype: t.Dtype(), shape: t.Shape()}
	switch {
	case f.dtype != gtensor.Float32 && f.dtype != gtensor.Float64:
		return flat{}, fmt.Errorf("dtype %v: use float32 or float64: %w", f.dtype, ErrUnsupported)
	case !t.IsNativelyAccessible():
		return flat{}, fmt.Errorf("its memory is on a device: copy it to the host: %w", ErrUnsupported)
	case len(t.Mask()) > 0:
		return flat{}, fmt.Errorf("it is masked: remove the mask: %w", ErrUnsupported)
	case !tensor.Packed(f.shape, t.Strides()):
		return flat{}, fmt.Errorf("shape %v with strides %v is a view that is not contiguous in C order: give a Materialize()d copy: %w",
			f.shape, t.Strides(), ErrUnsupported)
	}
	size := shapeSize(f.shape)
	if held := int(t.MemSize() / f.dtype.Size()); held < size {
		return flat{}, fmt.Errorf("shape %v needs %d elements and its memory holds %d: %w", f.shape, size, held, ErrUnsupported)
	}
	if f.dtype == gtensor.Float32 {
		f.f32 = t.Float32s()[:size:size]
	} else {
		f.f64 = t.Float64s()[:size:size]
	}
	return f, nil
}

// bounds returns the addresses of f's memory.
func (f *flat) bounds() (lo, hi uintptr) {
	if f.dtype == gtensor.Float32 {
		lo = uintptr(unsafe.Pointer(unsafe.SliceData(f.f32)))
		return lo, lo + 4*uintptr(len(f.f32))
	}
	lo = uintptr(unsafe.Pointer(unsafe.SliceData(f.f64)))
	return lo, lo + 8*uintptr(len(f.f64))
}

// shapeSize returns the number of elements of a shape; 1 for a scalar.
func shapeSize(shape []int) int {
	size := 1
	for _, d := range shape {
		size *= d
	}
	return size
}

// mostElements is the largest number of elements of a model; more are a mistake.
const mostElements = 1 << 40

// addShape returns total plus the elements of a shape.
//
// Errors: ErrMismatch for a negative dimension, or more than mostElements.
func addShape(total int, shape []int) (int, error) {
	size := 1
	for _, d := range shape {
		switch {
		case d < 0:
			return 0, fmt.Errorf("negative dimension: %w", ErrMismatch)
		case d > 0 && size > (mostElements-total)/d:
			return 0, fmt.Errorf("more than %d elements in all: %w", mostElements, ErrMismatch)
		}
		size *= d
	}
	return total + size, nil
}

// sameOrder reports whether equal offsets are equal coordinates in both shapes. That holds if they
// differ only in dims of size 1, as the gradient of a reduction may.
func sameOrder(a, b []int) bool {
	i, j := 0, 0
	for {
		for i < len(a) && a[i] == 1 {
			i++
		}
		for j < len(b) && b[j] == 1 {
			j++
		}
		if i == len(a) || j == len(b) {
			return i == len(a) && j == len(b)
		}
		if a[i] != b[j] {
			return false
		}
		i, j = i+1, j+1
	}
}
