package reduce

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// ScalarBits returns the bits of a premulsum scalar, in the low bytes: the current ones at s.At if
// set, else s.Bits.
//
// Errors: s.At is not one element in host memory; they match dist.ErrInvalid.
func ScalarBits(s dist.Scalar) (uint64, error) {
	if s.At.IsZero() {
		return s.Bits, nil
	}
	switch {
	case s.At.Device() != tensor.Host:
		return 0, fmt.Errorf("premulsum scalar: %w: it is on %v", dist.ErrDevice, s.At.Device())
	case s.At.Len() != 1:
		return 0, fmt.Errorf("premulsum scalar: %w: %d elements, not 1", dist.ErrCount, s.At.Len())
	}
	raw := s.At.Raw()
	switch len(raw) {
	case 1:
		return uint64(raw[0]), nil
	case 2:
		return uint64(binary.NativeEndian.Uint16(raw)), nil
	case 4:
		return uint64(binary.NativeEndian.Uint32(raw)), nil
	}
	return binary.NativeEndian.Uint64(raw), nil
}

// fromBits is the inverse of dist's encoding of a scalar.
func fromBits[T number](bits uint64) T {
	var v T
	switch p := any(&v).(type) {
	case *float32:
		*p = math.Float32frombits(uint32(bits))
	case *float64:
		*p = math.Float64frombits(bits)
	default:
		v = T(bits) // keeps the low bytes
	}
	return v
}
