package nvshmem

import (
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// driver holds the CUDA calls that check the device and addresses before a call of NVSHMEM, which
// would end the process at an error.
type driver struct {
	capturing dl.Proc `dl:"cuStreamIsCapturing"`     // (stream, status*)
	query     dl.Proc `dl:"cuStreamQuery"`           // (stream)
	extent    dl.Proc `dl:"cuMemGetAddressRange_v2"` // (base*, bytes*, address)
}

// Constants of cuda.h.
const (
	cudaNotReady  = 600 // CUDA_ERROR_NOT_READY
	captureActive = 1   // CU_STREAM_CAPTURE_STATUS_ACTIVE
	captureBroken = 2   // CU_STREAM_CAPTURE_STATUS_INVALIDATED
)

// openDriver binds the functions of the driver that package cuda has loaded.
func openDriver() (*driver, error) {
	lib, err := dl.Open(dl.Search{Name: "cuda", Sonames: []string{"libcuda.so.1"}})
	if err != nil {
		return nil, fmt.Errorf("nvshmem: %w", err)
	}
	d := new(driver)
	if err := lib.Bind(d); err != nil {
		return nil, fmt.Errorf("nvshmem: %w", err)
	}
	return d, nil
}

// scratch receives answers of the driver. It is C memory, so that its address can be kept as a
// word.
type scratch struct {
	capturing int32
	_         int32
	base      uint64
	bytes     uint64
}

// usable returns nil if s is a stream of this runtime's device and no earlier work on the device
// has failed. A stream in capture runs nothing and must not be queried. The lock is held.
func (c *caller) usable(call string, s *cuda.Stream) error {
	switch {
	case s == nil:
		return refused(call, dist.ErrInvalid, "the stream is nil: NVSHMEM's calls need one")
	case s.Device() != c.dev:
		return refused(call, dist.ErrDevice, "the stream is on %v, and this rank's GPU is %v", s.Device().Tensor(), c.dev.Tensor())
	}
	at := c.scratch
	c.args[0], c.args[1] = s.Handle(), uintptr(unsafe.Pointer(&at.capturing))
	if r, err := c.driver.capturing.Call(c.args[:2]...); err != nil || int32(r) != 0 {
		return c.broke(call, "cuStreamIsCapturing", int32(r), err)
	}
	switch at.capturing {
	case captureActive:
		return nil
	case captureBroken:
		return refused(call, dist.ErrInvalid, "the capture of the stream has failed: end the capture")
	}
	if r, err := c.driver.query.Call(c.args[:1]...); err != nil || int32(r) != 0 && int32(r) != cudaNotReady {
		return c.broke(call, "cuStreamQuery", int32(r), err)
	}
	return nil
}

// broke records that the device has failed, as a driver function reported. NVSHMEM is not called
// again.
func (c *caller) broke(call, function string, code int32, err error) error {
	if err == nil {
		err = c.dev.Driver().Check(function, code)
	}
	err = fmt.Errorf("nvshmem: %s: the GPU %s failed before the call: %w", call, c.dev.Name(), err)
	c.fail(err)
	return err
}

// isMemory returns nil if CUDA knows the bytes bytes at addr. The lock is held.
func (c *caller) isMemory(call string, addr uintptr, bytes int64) error {
	at := c.scratch
	c.args[0], c.args[1], c.args[2] = uintptr(unsafe.Pointer(&at.base)), uintptr(unsafe.Pointer(&at.bytes)), addr
	r, err := c.driver.extent.Call(c.args[:3]...)
	switch {
	case err != nil:
		return err
	case int32(r) != 0 || addr == 0:
		return refused(call, dist.ErrDevice, "%#x is not GPU memory", addr)
	case uint64(addr)+uint64(bytes) > at.base+at.bytes:
		return refused(call, dist.ErrCount, "%d B at %#x are more than the %d B allocated at %#x", bytes, addr, at.bytes, at.base)
	}
	return nil
}
