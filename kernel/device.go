package kernel

import (
	"errors"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// compile compiles src for d.
func compile(d *cuda.Device, src cuda.Source) ([]byte, error) {
	c, err := d.Driver().Compiler()
	if err != nil {
		return nil, kindError{err, dist.ErrUnsupported}
	}
	image, err := c.Compile(d, src)
	return image, kindOf(err)
}

// mostArgs is the most arguments of a kernel.
const mostArgs = 128

// push appends v.
func push(a *cuda.Args, v value) {
	switch v.bytes {
	case 8:
		a.U64(v.bits)
	case 4:
		a.U32(uint32(v.bits))
	default:
		small := [2]byte{byte(v.bits), byte(v.bits >> 8)}
		a.Bytes(small[:v.bytes])
	}
}

// bufferAt returns bytes bytes at an address of a device.
func bufferAt(at uintptr, bytes int64, on tensor.Device) (tensor.Buffer, error) {
	b, err := tensor.FromPointer(*(*unsafe.Pointer)(unsafe.Pointer(&at)), int(bytes), tensor.U8, on)
	return b.Untyped(), err
}

// kindError is an error that also matches a sentinel of package dist.
type kindError struct {
	error
	kind error
}

// Is matches the sentinel.
func (e kindError) Is(target error) bool { return target == e.kind }

// Unwrap returns the error.
func (e kindError) Unwrap() error { return e.error }

// kindOf converts an error of the driver or the compiler to one that programs branch on.
func kindOf(err error) error {
	var status *cuda.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cuda.ErrInvalid), errors.As(err, &status) && status.Call == "nvrtcCompileProgram":
		return kindError{err, dist.ErrInvalid}
	case errors.Is(err, cuda.ErrTooOld):
		return kindError{err, dist.ErrUnsupported}
	case errors.Is(err, cuda.ErrClosed):
		return kindError{err, dist.ErrClosed}
	}
	return err
}
