package cuda

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Alloc allocates bytes bytes of device memory, aligned to at least 256 bytes, with undefined
// content.
//
// Owns: the caller frees it with Free. Errors: ErrMemory with the free memory, ErrInvalid for bytes
// < 1, *Error.
func (v *Device) Alloc(bytes int64) (uintptr, error) {
	if bytes <= 0 {
		return 0, fmt.Errorf("cuda: %w: allocation of %d B", ErrInvalid, bytes)
	}
	var p uintptr
	err := v.inside("cuMemAlloc_v2", func() int32 { return v.d.api.memAlloc(&p, uint64(bytes)) })
	if err == nil {
		return p, nil
	}
	if free, total, e := v.Memory(); e == nil {
		return 0, fmt.Errorf("allocation of %d B on %s, with %d B free of %d: %w", bytes, v, free, total, err)
	}
	return 0, fmt.Errorf("allocation of %d B on %s: %w", bytes, v, err)
}

// Free frees memory of Alloc, once the device has finished the queued work; 0 is a no-op. On a
// device that is Stuck the memory is left to the end of the process. Errors: *Error.
func (v *Device) Free(p uintptr) error {
	if p == 0 {
		return nil
	}
	return v.release("cuMemFree_v2", func() int32 { return v.d.api.memFree(p) })
}

// Range returns the allocation that contains the device address p. Errors: *Error if p is not a
// device address.
func (v *Device) Range(p uintptr) (base uintptr, bytes int64, err error) {
	var n uint64
	err = v.inside("cuMemGetAddressRange_v2", func() int32 { return v.d.api.memRange(&base, &n, p) })
	return base, int64(n), err
}

// Copy copies bytes bytes from src to dst: addresses of any devices of this process, or of pinned
// memory of AllocHost. It neither waits for work on other streams nor delays it. Returns: when
// done. Errors: ErrInvalid, *Error.
func (v *Device) Copy(dst, src uintptr, bytes int64) error {
	return v.finish(v.own.Copy(dst, src, bytes))
}

// CopyToHost is Copy from a device at src to any host memory at dst.
func (v *Device) CopyToHost(dst unsafe.Pointer, src uintptr, bytes int64) error {
	return v.finish(v.own.CopyToHost(dst, src, bytes))
}

// CopyFromHost is Copy from any host memory at src to a device at dst.
func (v *Device) CopyFromHost(dst uintptr, src unsafe.Pointer, bytes int64) error {
	return v.finish(v.own.CopyFromHost(dst, src, bytes))
}

// Fill sets bytes bytes of a device at p to b.
// Returns: when done. Errors: ErrInvalid, *Error.
func (v *Device) Fill(p uintptr, b byte, bytes int64) error {
	return v.finish(v.own.Fill(p, b, bytes))
}

// finish waits for the device's own stream. The driver's blocking calls cannot replace it: they use
// the default stream, and some return before device memory has changed.
func (v *Device) finish(err error) error {
	if err != nil {
		return err
	}
	return v.own.Synchronize()
}

// HostMemory is pinned host memory that all devices can address.
type HostMemory struct {
	v      *Device
	bytes  []byte
	device uintptr
	closed atomic.Bool
}

// AllocHost allocates bytes bytes of pinned memory, zeroed and aligned to a page.
//
// Owns: the caller closes it. Errors: ErrMemory, ErrInvalid for bytes < 1, *Error.
func (v *Device) AllocHost(bytes int64) (*HostMemory, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("cuda: %w: allocation of %d B on the host", ErrInvalid, bytes)
	}
	if err := v.Enter(); err != nil {
		return nil, err
	}
	defer v.Leave()
	var p, at uintptr
	if err := v.d.check("cuMemHostAlloc", v.d.api.hostAlloc(&p, uint64(bytes), hostPortable|hostMapped)); err != nil {
		return nil, fmt.Errorf("allocation of %d B of pinned memory: %w", bytes, err)
	}
	if err := v.d.check("cuMemHostGetDevicePointer_v2", v.d.api.hostDevice(&at, p, 0)); err != nil {
		return nil, errors.Join(err, v.d.check("cuMemFreeHost", v.d.api.hostFree(p)))
	}
	h := &HostMemory{v: v, bytes: unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), bytes), device: at}
	clear(h.bytes)
	return h, nil
}

// Bytes returns the memory as the host addresses it; nil after Close.
func (h *HostMemory) Bytes() []byte {
	if h.closed.Load() {
		return nil
	}
	return h.bytes
}

// Pointer returns the address of Bytes; nil after Close.
func (h *HostMemory) Pointer() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(h.Bytes())) }

// Device returns the address of the same memory for kernels, copies and stream operations.
func (h *HostMemory) Device() uintptr { return h.device }

func (h *HostMemory) address() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(h.bytes))) }

// Close frees the memory. No queued work may use it. Idempotent. Errors: *Error.
func (h *HostMemory) Close() error {
	if h.closed.Swap(true) {
		return nil
	}
	return h.v.release("cuMemFreeHost", func() int32 { return h.v.d.api.hostFree(h.address()) })
}

// extent returns the error of a negative length.
func extent(what string, bytes int64) error {
	if bytes < 0 {
		return fmt.Errorf("cuda: %w: %s of %d B", ErrInvalid, what, bytes)
	}
	return nil
}
