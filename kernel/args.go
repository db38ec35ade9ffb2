package kernel

import (
	"fmt"
	"math"
	"reflect"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// value is one kernel argument: its bits, in the low bytes.
type value struct {
	bits  uint64
	bytes int
}

// valueOf converts arg for a kernel on the device on.
//
// It passes arg to no function that could keep it, so the compiler leaves the arguments of Launch
// on the caller's stack.
//
// Errors: ErrInvalid for a type that no kernel can take, ErrDevice for memory elsewhere,
// symmetric.ErrNotAllocated for a freed region, ErrClosed for a closed table.
func valueOf(arg any, on tensor.Device) (value, error) {
	switch v := arg.(type) {
	case nil:
		return value{0, 8}, nil
	case tensor.Buffer:
		return address(v, on)
	case *Table:
		return v.value(on)
	case symmetric.Region:
		b := unkept(v).Local()
		if b.Pointer() == nil {
			return value{}, fmt.Errorf("region: %w", symmetric.ErrNotAllocated)
		}
		return address(b, on)
	case int32:
		return value{uint64(uint32(v)), 4}, nil
	case uint32:
		return value{uint64(v), 4}, nil
	case int64:
		return value{uint64(v), 8}, nil
	case uint64:
		return value{v, 8}, nil
	case uintptr:
		return value{uint64(v), 8}, nil
	case float32:
		return value{uint64(math.Float32bits(v)), 4}, nil
	case float64:
		return value{math.Float64bits(v), 8}, nil
	}
	return small(arg)
}

// small is valueOf for the types of one and two bytes.
func small(arg any) (value, error) {
	switch v := arg.(type) {
	case bool:
		if v {
			return value{1, 1}, nil
		}
		return value{0, 1}, nil
	case int8:
		return value{uint64(uint8(v)), 1}, nil
	case uint8:
		return value{uint64(v), 1}, nil
	case int16:
		return value{uint64(uint16(v)), 2}, nil
	case uint16:
		return value{uint64(v), 2}, nil
	case tensor.Float16:
		return value{uint64(v), 2}, nil
	case tensor.BFloat16:
		return value{uint64(v), 2}, nil
	case int, uint:
		return value{}, fmt.Errorf("%w: C has no type like Go's %v: use int32 or int64", dist.ErrInvalid, reflect.TypeOf(arg))
	}
	return value{}, fmt.Errorf("%w: a kernel cannot take a %v: see the table in the package's documentation", dist.ErrInvalid, reflect.TypeOf(arg))
}

// address returns the address of b.
func address(b tensor.Buffer, on tensor.Device) (value, error) {
	if b.Device() != on && !b.IsZero() {
		return value{}, fmt.Errorf("%w: %v, but the kernel runs on %v: copy it there with Copy", dist.ErrDevice, b, on)
	}
	return value{uint64(uintptr(b.Pointer())), 8}, nil
}

// unkept hides r from escape analysis, which would move all arguments of a launch to the heap,
// since it cannot know which method is called. Local keeps nothing.
func unkept(r symmetric.Region) symmetric.Region {
	words := *(*[2]uintptr)(unsafe.Pointer(&r))
	return *(*symmetric.Region)(unsafe.Pointer(&words))
}
