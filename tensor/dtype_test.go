package tensor

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	gtensor "gorgonia.org/tensor"
)

// types has the fixed properties of each element type. number is part of the wire format.
var types = []struct {
	dt      DType
	number  uint8
	name    string
	size    int
	float   bool
	goSize  uintptr
	typeOf  DType
	partner *gtensor.Dtype // gorgonia's, or nil
}{
	{F16, 1, "f16", 2, true, unsafe.Sizeof(Float16(0)), TypeOf[Float16](), nil},
	{BF16, 2, "bf16", 2, true, unsafe.Sizeof(BFloat16(0)), TypeOf[BFloat16](), nil},
	{F32, 3, "f32", 4, true, unsafe.Sizeof(float32(0)), TypeOf[float32](), &gtensor.Float32},
	{F64, 4, "f64", 8, true, unsafe.Sizeof(float64(0)), TypeOf[float64](), &gtensor.Float64},
	{I8, 5, "i8", 1, false, unsafe.Sizeof(int8(0)), TypeOf[int8](), &gtensor.Int8},
	{I16, 6, "i16", 2, false, unsafe.Sizeof(int16(0)), TypeOf[int16](), &gtensor.Int16},
	{I32, 7, "i32", 4, false, unsafe.Sizeof(int32(0)), TypeOf[int32](), &gtensor.Int32},
	{I64, 8, "i64", 8, false, unsafe.Sizeof(int64(0)), TypeOf[int64](), &gtensor.Int64},
	{U8, 9, "u8", 1, false, unsafe.Sizeof(uint8(0)), TypeOf[uint8](), &gtensor.Uint8},
	{U16, 10, "u16", 2, false, unsafe.Sizeof(uint16(0)), TypeOf[uint16](), &gtensor.Uint16},
	{U32, 11, "u32", 4, false, unsafe.Sizeof(uint32(0)), TypeOf[uint32](), &gtensor.Uint32},
	{U64, 12, "u64", 8, false, unsafe.Sizeof(uint64(0)), TypeOf[uint64](), &gtensor.Uint64},
}

func TestDTypeTable(t *testing.T) {
	for _, c := range types {
		t.Run(c.name, func(t *testing.T) {
			if uint8(c.dt) != c.number {
				t.Errorf("number %d, want %d: old and new ranks would misread each other", c.dt, c.number)
			}
			if c.dt.String() != c.name || c.dt.Size() != c.size || c.dt.IsFloat() != c.float || !c.dt.Valid() {
				t.Errorf("is %v, %d bytes, float %v, valid %v", c.dt, c.dt.Size(), c.dt.IsFloat(), c.dt.Valid())
			}
			if c.goSize != uintptr(c.size) {
				t.Errorf("its Go type has %d bytes", c.goSize)
			}
			if c.typeOf != c.dt {
				t.Errorf("TypeOf its Go type is %v", c.typeOf)
			}
			if back, err := ParseDType(c.name); err != nil || back != c.dt {
				t.Errorf("ParseDType(%q) is %v, %v", c.name, back, err)
			}
		})
	}
}

func TestDTypesListsEachOnce(t *testing.T) {
	var want []DType
	for _, c := range types {
		want = append(want, c.dt)
	}
	if got := DTypes(); !slices.Equal(got, want) {
		t.Errorf("DTypes is %v, want %v", got, want)
	}
	DTypes()[0] = U64 // a caller's change is the caller's
	if DTypes()[0] != F16 {
		t.Error("DTypes hands out one list that callers can change")
	}
}

func TestInvalidDTypes(t *testing.T) {
	for _, dt := range []DType{Invalid, U64 + 1, 255} {
		if dt.Valid() || dt.Size() != 0 || dt.IsFloat() {
			t.Errorf("%v: valid %v, %d bytes, float %v", dt, dt.Valid(), dt.Size(), dt.IsFloat())
		}
		if _, err := dt.Gorgonia(); err == nil {
			t.Errorf("%v has a gorgonia dtype", dt)
		}
	}
	if Invalid.String() != "invalid" || DType(255).String() != "dtype(255)" {
		t.Errorf("names are %q and %q", Invalid, DType(255))
	}
}

func TestParseDTypeRefusesWithTheChoices(t *testing.T) {
	for _, s := range []string{"", "invalid", "F32", "float32", "f32 ", "int", "u128"} {
		dt, err := ParseDType(s)
		if err == nil || dt != Invalid {
			t.Errorf("%q is %v, %v", s, dt, err)
			continue
		}
		if !strings.Contains(err.Error(), "bf16") {
			t.Errorf("%q: error %q does not list the names", s, err)
		}
	}
}

func TestGorgoniaTypesPairUp(t *testing.T) {
	for _, c := range types {
		g, err := c.dt.Gorgonia()
		if c.partner == nil {
			if err == nil || !strings.Contains(err.Error(), c.name) {
				t.Errorf("%v: gorgonia dtype %v, error %v", c.dt, g, err)
			}
			continue
		}
		if err != nil || g != *c.partner {
			t.Errorf("%v: gorgonia dtype %v, %v, want %v", c.dt, g, err, *c.partner)
		}
		if back, err := FromGorgonia(*c.partner); err != nil || back != c.dt {
			t.Errorf("from gorgonia's %v: %v, %v", *c.partner, back, err)
		}
	}
}

func TestFromGorgoniaRefusesWhatHasNoFixedSize(t *testing.T) {
	own := gtensor.Dtype{Type: reflect.TypeFor[BFloat16]()}
	for _, g := range []gtensor.Dtype{
		gtensor.Bool, gtensor.Int, gtensor.Uint, gtensor.Complex64, gtensor.Complex128, gtensor.String,
		gtensor.UnsafePointer, gtensor.Uintptr, own,
		{},
	} {
		if dt, err := FromGorgonia(g); err == nil || dt != Invalid {
			t.Errorf("%v: %v, %v", g.Type, dt, err)
		}
	}
}

func TestDeviceNames(t *testing.T) {
	for want, d := range map[string]Device{
		"host": Host, "cuda:0": CUDA(0), "cuda:7": CUDA(7), "device(9):2": {Kind: 9, Index: 2},
	} {
		if d.String() != want {
			t.Errorf("%+v is %q, want %q", d, d.String(), want)
		}
	}
	if (Device{}) != Host {
		t.Error("the zero Device is not the host")
	}
}
