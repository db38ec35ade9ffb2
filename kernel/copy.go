package kernel

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/tensor"
)

// Copy copies src to dst in the order of s. Each is memory of the host, of the stream's device, or
// of a peer that is directly addressable; one of them is on a device.
//
// Shapes/units: equal bytes; types may differ, since regions are bytes. Returns: when queued,
// between devices; when done, if one is on the host. Owns: dst and src belong to s until then.
// Errors: ErrUnsupported if s is not a stream of a GPU, ErrCount for different lengths, ErrDevice
// for two on the host, ErrClosed if s is closed and there are bytes to copy; the driver's.
func Copy(s dist.Stream, dst, src tensor.Buffer) error {
	stream, err := gpuStream(s)
	switch {
	case err != nil:
	case dst.Bytes() != src.Bytes():
		err = fmt.Errorf("%w: %d B to %d B", dist.ErrCount, src.Bytes(), dst.Bytes())
	case dst.Device() == tensor.Host && src.Device() == tensor.Host:
		err = fmt.Errorf("%w: both on the host", dist.ErrDevice)
	case dst.Bytes() > 0:
		err = kindOf(copyOn(stream, dst, src))
	}
	if err != nil {
		return fmt.Errorf("copy %v to %v: %w", src, dst, err)
	}
	return nil
}

// copyOn is Copy of buffers that fit. The driver must not keep Go memory, so copyOn waits for a
// copy with the host. It first waits for earlier work, because that wait ends when the group
// breaks; the driver's own would not.
func copyOn(s *gpu.Stream, dst, src tensor.Buffer) error {
	cu := s.CUDA()
	d := cu.Device()
	host := dst.Device() == tensor.Host || src.Device() == tensor.Host
	if host {
		if err := s.Synchronize(); err != nil {
			return err
		}
	}
	if err := d.Enter(); err != nil {
		return err
	}
	defer d.Leave()
	to, from, bytes := uintptr(dst.Pointer()), uintptr(src.Pointer()), dst.Bytes()
	var err error
	switch {
	case src.Device() == tensor.Host:
		err = cu.CopyFromHost(to, src.Pointer(), bytes)
	case dst.Device() == tensor.Host:
		err = cu.CopyToHost(dst.Pointer(), from, bytes)
	default:
		err = cu.Copy(to, from, bytes)
	}
	if err != nil || !host {
		return err
	}
	return cu.Synchronize()
}
