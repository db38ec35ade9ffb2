package backend

import (
	"fmt"

	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
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

// Alloc implements conformance.Memory.
func (m memory) Alloc(dev tensor.Device, bytes int64) (tensor.Buffer, error) {
	v, err := m.device(dev)
	if err != nil {
		return tensor.Buffer{}, err
	}
	return v.AllocBuffer(bytes)
}

// Free implements conformance.Memory.
func (m memory) Free(b tensor.Buffer) error {
	v, err := m.device(b.Device())
	if err != nil {
		return err
	}
	return v.FreeBuffer(b)
}

// Write implements conformance.Memory.
func (m memory) Write(b tensor.Buffer, src []byte) error {
	v, err := m.device(b.Device())
	if err != nil {
		return err
	}
	return v.WriteBuffer(b, src)
}

// Read implements conformance.Memory.
func (m memory) Read(dst []byte, b tensor.Buffer) error {
	v, err := m.device(b.Device())
	if err != nil {
		return err
	}
	return v.ReadBuffer(dst, b)
}
