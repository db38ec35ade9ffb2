package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"
)

// IPCHandle returns a handle by which other processes of this machine can open the allocation that
// begins at p. It is valid until p is freed.
//
// Errors: ErrInvalid if p is not the beginning of an allocation of Alloc, *Error.
func (v *Device) IPCHandle(p uintptr) ([64]byte, error) {
	base, bytes, err := v.Range(p)
	if err != nil {
		return [64]byte{}, fmt.Errorf("handle of %#x: %w", p, err)
	}
	if base != p {
		return [64]byte{}, fmt.Errorf("cuda: handle of %#x: %w: it is %d B into an allocation of %d B: use the handle of its beginning and the offset",
			p, ErrInvalid, p-base, bytes)
	}
	var h ipcHandle
	err = v.inside("cuIpcGetMemHandle", func() int32 { return v.d.api.ipcGet(&h, p) })
	return h, err
}

// OpenIPC maps an allocation of another process, on this device or a peer, so that v can address
// it. A process cannot open its own handles.
//
// Owns: the caller closes it with CloseIPC, before the other process frees it. Errors: *Error.
func (v *Device) OpenIPC(h [64]byte) (uintptr, error) {
	if err := v.Enter(); err != nil {
		return 0, err
	}
	defer v.Leave()
	var words [8]uintptr
	for i := range words {
		words[i] = uintptr(binary.LittleEndian.Uint64(h[8*i:]))
	}
	var p uintptr
	// The handle is passed by value, as eight words on C's stack. The four zeros fill the registers
	// that the other two parameters leave.
	r, err := v.d.api.ipcOpen.Call(uintptr(unsafe.Pointer(&p)), ipcLazyPeer, 0, 0, 0, 0,
		words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7])
	if err != nil {
		return 0, err
	}
	err = v.d.check("cuIpcOpenMemHandle_v2", int32(r))
	var e *Error
	if errors.As(err, &e) && (e.Code == codeInvalidContext || e.Code == codeInvalidValue) {
		return 0, fmt.Errorf("%w: the handle may be of this process, or freed", err)
	}
	return p, err
}

// CloseIPC unmaps memory of OpenIPC. No queued work may use it. 0 is a no-op. Errors: *Error.
func (v *Device) CloseIPC(p uintptr) error {
	if p == 0 {
		return nil
	}
	return v.release("cuIpcCloseMemHandle", func() int32 { return v.d.api.ipcClose(p) })
}
