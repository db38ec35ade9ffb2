package lower

import (
	"fmt"
	"reflect"
	"unsafe"

	"gorgonia.org/gorgonia"
)

// fields reads unexported fields of one of Gorgonia's ops by name. The first missing one is stored
// as an error.
type fields struct {
	v   reflect.Value
	err error
}

func fieldsOf(op gorgonia.Op) *fields {
	v := reflect.ValueOf(op)
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return &fields{v: v}
}

// get returns a field of one of some kinds.
func (f *fields) get(name string, kinds ...reflect.Kind) reflect.Value {
	if f.v.Kind() == reflect.Struct {
		if v := f.v.FieldByName(name); v.IsValid() {
			for _, k := range kinds {
				if v.Kind() == k {
					return v
				}
			}
		}
	}
	if f.err == nil {
		f.err = fmt.Errorf("%v has no field %s as in Gorgonia v0.9.18: use that version", f.v.Type(), name)
	}
	return reflect.Value{}
}

func (f *fields) int(name string) int {
	if v := f.get(name, reflect.Int); v.IsValid() {
		return int(v.Int())
	}
	return 0
}

// code returns a field that is a byte.
func (f *fields) code(name string) int {
	if v := f.get(name, reflect.Uint8); v.IsValid() {
		return int(v.Uint())
	}
	return 0
}

func (f *fields) bool(name string) bool {
	v := f.get(name, reflect.Bool)
	return v.IsValid() && v.Bool()
}

func (f *fields) float(name string) float64 {
	if v := f.get(name, reflect.Float64); v.IsValid() {
		return v.Float()
	}
	return 0
}

func (f *fields) ints(name string) []int {
	v := f.get(name, reflect.Slice)
	if !v.IsValid() {
		return nil
	}
	all := make([]int, v.Len())
	for i := range all {
		all[i] = int(v.Index(i).Int())
	}
	return all
}

// pointer returns a field that is a pointer.
func (f *fields) pointer(name string) unsafe.Pointer {
	if v := f.get(name, reflect.Pointer); v.IsValid() {
		return v.UnsafePointer()
	}
	return nil
}

// flag returns the address of a bool of an op, so that it can be read later; nil if the op is not
// addressable.
func (f *fields) flag(name string) *bool {
	if v := f.get(name, reflect.Bool); v.IsValid() && v.CanAddr() {
		return (*bool)(v.Addr().UnsafePointer())
	}
	return nil
}

// typeName returns the type of a node's op: "*gorgonia.softmaxOp".
func typeName(op gorgonia.Op) string { return fmt.Sprintf("%T", op) }

func bytes8(u uint64) [8]byte { return *(*[8]byte)(unsafe.Pointer(&u)) }
