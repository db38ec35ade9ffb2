package backend

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// memory is that of GPUs, as the conformance suite reaches it.
type memory struct{ d *cuda.Driver }

var _ conformance.Memory = memory{}

func (m memory) device(dev tensor.Device) (*cuda.Device, error) {
	if dev.Kind != tensor.CUDAKind {
		return nil, fmt.Errorf("%v is no GPU", dev)
	}
	return m.d.Device(dev.Index)
}

func address(b tensor.Buffer) uintptr { return uintptr(b.Pointer()) }

// Alloc implements conformance.Memory.
func (m memory) Alloc(dev tensor.Device, bytes int64) (tensor.Buffer, error) {
	v, err := m.device(dev)
	if err != nil {
		return tensor.Buffer{}, err
	}
	p, err := v.Alloc(bytes)
	if err != nil {
		return tensor.Buffer{}, err
	}
	return tensor.FromPointer(*(*unsafe.Pointer)(unsafe.Pointer(&p)), int(bytes), tensor.U8, dev)
}

// Free implements conformance.Memory.
func (m memory) Free(b tensor.Buffer) error {
	v, err := m.device(b.Device())
	if err != nil {
		return err
	}
	return v.Free(address(b))
}

// Write implements conformance.Memory.
func (m memory) Write(b tensor.Buffer, src []byte) error {
	v, err := m.device(b.Device())
	if err != nil || len(src) == 0 {
		return err
	}
	defer runtime.KeepAlive(src)
	return v.CopyFromHost(address(b), unsafe.Pointer(&src[0]), int64(len(src)))
}

// Read implements conformance.Memory.
func (m memory) Read(dst []byte, b tensor.Buffer) error {
	v, err := m.device(b.Device())
	if err != nil || len(dst) == 0 {
		return err
	}
	defer runtime.KeepAlive(dst)
	return v.CopyToHost(unsafe.Pointer(&dst[0]), address(b), int64(len(dst)))
}
