package tensor

import (
	"errors"
	"fmt"

	gtensor "gorgonia.org/tensor"
)

// DType is the type of one element of a Buffer.
type DType uint8

// The element types. The numbering is part of the wire format between ranks and never changes.
const (
	Invalid DType = iota
	F16           // IEEE 754 binary16; reductions accumulate in float32
	BF16          // upper half of a binary32; reductions accumulate in float32
	F32
	F64
	I8
	I16
	I32
	I64
	U8
	U16
	U32
	U64
)

var dtypes = [...]struct {
	name string
	size int
}{
	Invalid: {"invalid", 0},
	F16:     {"f16", 2}, BF16: {"bf16", 2}, F32: {"f32", 4}, F64: {"f64", 8},
	I8: {"i8", 1}, I16: {"i16", 2}, I32: {"i32", 4}, I64: {"i64", 8},
	U8: {"u8", 1}, U16: {"u16", 2}, U32: {"u32", 4}, U64: {"u64", 8},
}

// DTypes returns every valid DType, in the order of its number.
func DTypes() []DType {
	return []DType{F16, BF16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64}
}

// Valid reports whether dt is one of the element types.
func (dt DType) Valid() bool { return dt > Invalid && int(dt) < len(dtypes) }

// Size returns the number of bytes of one element; 0 for an invalid type.
func (dt DType) Size() int {
	if !dt.Valid() {
		return 0
	}
	return dtypes[dt].size
}

// IsFloat reports whether dt is a floating-point type.
func (dt DType) IsFloat() bool { return dt >= F16 && dt <= F64 }

// String returns the short name: "f32", "bf16", "u8".
func (dt DType) String() string {
	if int(dt) >= len(dtypes) {
		return fmt.Sprintf("dtype(%d)", uint8(dt))
	}
	return dtypes[dt].name
}

// ParseDType is the inverse of String.
//
// Errors: an unknown name.
func ParseDType(s string) (DType, error) {
	for _, dt := range DTypes() {
		if dtypes[dt].name == s {
			return dt, nil
		}
	}
	return Invalid, fmt.Errorf("unknown dtype %q (one of f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64)", s)
}

// Element is the set of Go types a Buffer can view.
type Element interface {
	Float16 | BFloat16 | float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

// TypeOf returns the DType of T.
func TypeOf[T Element]() DType {
	var z T
	switch any(z).(type) {
	case Float16:
		return F16
	case BFloat16:
		return BF16
	case float32:
		return F32
	case float64:
		return F64
	case int8:
		return I8
	case int16:
		return I16
	case int32:
		return I32
	case int64:
		return I64
	case uint8:
		return U8
	case uint16:
		return U16
	case uint32:
		return U32
	case uint64:
		return U64
	}
	return Invalid
}

// gorgoniaTypes maps DTypes to gorgonia's types. f16 and bf16 have no counterpart there; int and
// uint have none here, because their size differs between machines.
var gorgoniaTypes = map[DType]gtensor.Dtype{
	F32: gtensor.Float32, F64: gtensor.Float64,
	I8: gtensor.Int8, I16: gtensor.Int16, I32: gtensor.Int32, I64: gtensor.Int64,
	U8: gtensor.Uint8, U16: gtensor.Uint16, U32: gtensor.Uint32, U64: gtensor.Uint64,
}

// Gorgonia returns the gorgonia dtype with the same elements as dt.
//
// Errors: dt is f16, bf16 or invalid.
func (dt DType) Gorgonia() (gtensor.Dtype, error) {
	if g, ok := gorgoniaTypes[dt]; ok {
		return g, nil
	}
	return gtensor.Dtype{}, fmt.Errorf("dtype %v has no gorgonia counterpart", dt)
}

// FromGorgonia returns the DType with the same elements as g.
//
// Errors: g is not a number of fixed size (bool, int, uint, complex, string, pointer).
func FromGorgonia(g gtensor.Dtype) (DType, error) {
	if g.Type == nil {
		return Invalid, errors.New("gorgonia dtype is not set")
	}
	for _, dt := range DTypes() {
		if gorgoniaTypes[dt] == g {
			return dt, nil
		}
	}
	return Invalid, fmt.Errorf("gorgonia dtype %v cannot be communicated (want float32, float64 or a sized integer)", g)
}
