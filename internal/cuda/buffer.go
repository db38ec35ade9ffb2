package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/symgrad/symgrad/tensor"
)

// AllocBuffer is Alloc of bytes bytes as a Buffer (u8).
//
// Owns: the caller frees it with FreeBuffer. Errors: those of Alloc.
func (v *Device) AllocBuffer(bytes int64) (tensor.Buffer, error) {
	p, err := v.Alloc(bytes)
	if err != nil {
		return tensor.Buffer{}, err
	}
	return tensor.FromPointer(*(*unsafe.Pointer)(unsafe.Pointer(&p)), int(bytes), tensor.U8, v.Tensor())
}

// FreeBuffer frees what AllocBuffer has made. Errors: those of Free; ErrInvalid for memory that is
// not the device's.
func (v *Device) FreeBuffer(b tensor.Buffer) error {
	if err := v.owns(b, 0); err != nil {
		return err
	}
	return v.Free(address(b))
}

// WriteBuffer copies src, which is no longer than b, to the beginning of b.
//
// Returns: when done. Errors: *Error; ErrInvalid for memory that is not the device's or too short.
func (v *Device) WriteBuffer(b tensor.Buffer, src []byte) error {
	if err := v.owns(b, len(src)); err != nil || len(src) == 0 {
		return err
	}
	defer runtime.KeepAlive(src)
	return v.CopyFromHost(address(b), unsafe.Pointer(&src[0]), int64(len(src)))
}

// ReadBuffer is the inverse of WriteBuffer: it fills dst from the beginning of b.
func (v *Device) ReadBuffer(dst []byte, b tensor.Buffer) error {
	if err := v.owns(b, len(dst)); err != nil || len(dst) == 0 {
		return err
	}
	defer runtime.KeepAlive(dst)
	return v.CopyToHost(unsafe.Pointer(&dst[0]), address(b), int64(len(dst)))
}

func (v *Device) owns(b tensor.Buffer, bytes int) error {
	if b.Device() != v.Tensor() || b.Bytes() < int64(bytes) {
		return fmt.Errorf("cuda: %w: %d B of %v, by %v", ErrInvalid, bytes, b, v.Tensor())
	}
	return nil
}

func address(b tensor.Buffer) uintptr { return uintptr(b.Pointer()) }
