package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/symgrad/symgrad/tensor"
)

// AllocBuffer allocates bytes bytes as a Buffer of U8.
//
// Owns: the caller frees it with FreeBuffer. Errors: those of Alloc.
func (v *Device) AllocBuffer(bytes int64) (tensor.Buffer, error) {
	p, err := v.Alloc(bytes)
	if err != nil {
		return tensor.Buffer{}, err
	}
	return tensor.FromPointer(*(*unsafe.Pointer)(unsafe.Pointer(&p)), int(bytes), tensor.U8, v.Tensor())
}

// FreeBuffer frees a buffer of AllocBuffer. Errors: those of Free; ErrInvalid for memory of another
// device.
func (v *Device) FreeBuffer(b tensor.Buffer) error {
	if err := v.owns(b, 0); err != nil {
		return err
	}
	return v.Free(address(b))
}

// WriteBuffer copies src to the beginning of b.
//
// Returns: when done. Errors: *Error; ErrInvalid if b is of another device or shorter than src.
func (v *Device) WriteBuffer(b tensor.Buffer, src []byte) error {
	if err := v.owns(b, len(src)); err != nil || len(src) == 0 {
		return err
	}
	defer runtime.KeepAlive(src)
	return v.CopyFromHost(address(b), unsafe.Pointer(&src[0]), int64(len(src)))
}

// ReadBuffer fills dst from the beginning of b, with the contract of WriteBuffer.
func (v *Device) ReadBuffer(dst []byte, b tensor.Buffer) error {
	if err := v.owns(b, len(dst)); err != nil || len(dst) == 0 {
		return err
	}
	defer runtime.KeepAlive(dst)
	return v.CopyToHost(unsafe.Pointer(&dst[0]), address(b), int64(len(dst)))
}

func (v *Device) owns(b tensor.Buffer, bytes int) error {
	if b.Device() != v.Tensor() || b.Bytes() < int64(bytes) {
		return fmt.Errorf("cuda: %w: %d B of %v on %v", ErrInvalid, bytes, b, v.Tensor())
	}
	return nil
}

func address(b tensor.Buffer) uintptr { return uintptr(b.Pointer()) }
