package cuda

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/tensor"
)

// Device is one GPU and its primary context. It is safe for concurrent use, as is all that it makes
// unless it says otherwise.
type Device struct {
	d     *Driver
	index int
	dev   int32   // CUdevice
	ctx   uintptr // CUcontext
	name  string
	uuid  [16]byte
	pci   string
	major int
	minor int
	sms   int
	own   *Stream // of the calls that wait
	doubt stuckWork
}

// newDevice retains the primary context of the i-th device.
func newDevice(d *Driver, i int) (*Device, error) {
	v := &Device{d: d, index: i}
	if err := d.check("cuDeviceGet", d.api.deviceGet(&v.dev, int32(i))); err != nil {
		return nil, err
	}
	if err := v.identify(); err != nil {
		return nil, err
	}
	if err := d.check("cuDevicePrimaryCtxRetain", d.api.retain(&v.ctx, v.dev)); err != nil {
		return nil, err
	}
	var err error
	if v.own, err = v.NewStream(0); err != nil {
		return nil, errors.Join(err, d.check("cuDevicePrimaryCtxRelease_v2", d.api.release(v.dev)))
	}
	return v, nil
}

// close gives the context back.
func (v *Device) close() error {
	return errors.Join(v.own.Close(), v.d.check("cuDevicePrimaryCtxRelease_v2", v.d.api.release(v.dev)))
}

// identify reads what never changes.
func (v *Device) identify() error {
	d := v.d
	var text [256]byte
	if err := d.check("cuDeviceGetName", d.api.deviceName(&text[0], int32(len(text)), v.dev)); err != nil {
		return err
	}
	v.name = upToNUL(text[:])
	if err := d.check("cuDeviceGetUuid_v2", d.api.deviceUUID((*uuid)(&v.uuid), v.dev)); err != nil {
		return err
	}
	text = [256]byte{}
	if err := d.check("cuDeviceGetPCIBusId", d.api.devicePCI(&text[0], int32(len(text)), v.dev)); err != nil {
		return err
	}
	v.pci = upToNUL(text[:])
	for _, a := range []struct {
		attr Attribute
		to   *int
	}{{ComputeCapabilityMajor, &v.major}, {ComputeCapabilityMinor, &v.minor}, {MultiprocessorCount, &v.sms}} {
		n, err := v.Attribute(a.attr)
		if err != nil {
			return err
		}
		*a.to = n
	}
	return nil
}

// upToNUL is the C string at the start of b.
func upToNUL(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// Driver is the driver that the device belongs to.
func (v *Device) Driver() *Driver { return v.d }

// Index is the device's number among those that the process sees.
func (v *Device) Index() int { return v.index }

// Name is what NVIDIA calls the GPU: "NVIDIA H200".
func (v *Device) Name() string { return v.name }

// UUID tells the GPU from all others, in any process; of a MIG instance it is the instance's.
func (v *Device) UUID() [16]byte { return v.uuid }

// PCI is the GPU's place on the bus: "0000:1b:00.0".
func (v *Device) PCI() string { return v.pci }

// Arch is the compute capability: 9, 0 for an H200.
func (v *Device) Arch() (major, minor int) { return v.major, v.minor }

// SMs is the number of multiprocessors.
func (v *Device) SMs() int { return v.sms }

// Tensor is the device as buffers name it.
func (v *Device) Tensor() tensor.Device { return tensor.CUDA(v.index) }

// Context is the primary context, a CUcontext; it stays the driver's.
func (v *Device) Context() uintptr { return v.ctx }

// String is "cuda:0 (NVIDIA H200, 0000:1b:00.0)".
func (v *Device) String() string { return fmt.Sprintf("cuda:%d (%s, %s)", v.index, v.name, v.pci) }

// Enter holds the goroutine on its thread and makes the device's context the thread's, until Leave.
// Calls nest, also those of different devices; each Enter that succeeds has its Leave. It allocates
// nothing.
//
// Calls that come many at a time are fastest between Enter and Leave: elsewhere each enters by
// itself. Errors: ErrClosed, *Error; the goroutine is then as it was.
func (v *Device) Enter() error {
	if v.d.closed.Load() {
		return errClosed
	}
	runtime.LockOSThread()
	if code, _ := v.d.api.ctxPush.Status(v.ctx); code != success {
		runtime.UnlockOSThread()
		return v.d.failure("cuCtxPushCurrent_v2", code)
	}
	return nil
}

// Leave ends the last Enter: the thread gets the context back that it had before.
func (v *Device) Leave() {
	// It fails only where somebody in between took contexts off the thread that were not theirs;
	// there is nothing to give back then.
	_, _ = v.d.api.ctxPop.Status(0)
	runtime.UnlockOSThread()
}

// inside runs fn between Enter and Leave and turns its status into an error.
func (v *Device) inside(call string, fn func() int32) error {
	if err := v.Enter(); err != nil {
		return err
	}
	defer v.Leave()
	return v.d.check(call, fn())
}

// call is a call of the hot path. A thread without a context gets the device's for the call.
func (v *Device) call(p *dl.Proc, name string, words ...uintptr) error {
	code, err := v.status(p, words...)
	if err == nil && code == success {
		return nil
	}
	return v.refused(name, code, err)
}

// poll is call for functions that answer "not ready": false then, and true for success.
func (v *Device) poll(p *dl.Proc, name string, word uintptr) (bool, error) {
	code, err := v.status(p, word)
	switch {
	case err == nil && code == success:
		return true, nil
	case err == nil && code == codeNotReady:
		return false, nil
	}
	return false, v.refused(name, code, err)
}

// refused is the error of a call that did not succeed.
func (v *Device) refused(name string, code int32, err error) error {
	if err != nil {
		return err
	}
	return v.d.failure(name, code)
}

// status is what p answers. If it is the thread's context that the driver does not like, p is
// called once more inside: what is refused for that reason has not begun.
func (v *Device) status(p *dl.Proc, words ...uintptr) (int32, error) {
	if v.d.closed.Load() {
		return 0, errClosed
	}
	code, err := p.Status(words...)
	if err != nil || code != codeInvalidContext && code != codeInvalidHandle {
		return code, err
	}
	if err := v.Enter(); err != nil {
		return 0, err
	}
	defer v.Leave()
	return p.Status(words...)
}

// Synchronize waits for all work on the device's context. Errors: *Error, also of kernels that
// failed.
func (v *Device) Synchronize() error {
	return v.inside("cuCtxSynchronize", func() int32 { return v.d.api.ctxSync() })
}

// PriorityRange is the least and the greatest priority of streams. A smaller number is a greater
// priority: 0 and -5. Errors: *Error.
func (v *Device) PriorityRange() (least, greatest int, err error) {
	var lo, hi int32
	err = v.inside("cuCtxGetStreamPriorityRange", func() int32 { return v.d.api.priorityRange(&lo, &hi) })
	return int(lo), int(hi), err
}

// Memory is the bytes of the device's memory: free to all processes, and in all. Errors: *Error.
func (v *Device) Memory() (free, total int64, err error) {
	var f, t uint64
	err = v.inside("cuMemGetInfo_v2", func() int32 { return v.d.api.memInfo(&f, &t) })
	return int64(f), int64(t), err
}

// CanAccess reports whether kernels of v can address memory of peer. A device can access itself.
// Errors: *Error.
func (v *Device) CanAccess(peer *Device) (bool, error) {
	if peer.index == v.index {
		return true, nil
	}
	var can int32
	err := v.d.check("cuDeviceCanAccessPeer", v.d.api.canAccess(&can, v.dev, peer.dev))
	return can != 0, err
}

// PeerAtomics reports whether atomics of v on memory of peer are atomic to all. Errors: *Error.
func (v *Device) PeerAtomics(peer *Device) (bool, error) {
	if peer.index == v.index {
		return true, nil
	}
	var can int32
	err := v.d.check("cuDeviceGetP2PAttribute", v.d.api.peerAttr(&can, peerAtomics, v.dev, peer.dev))
	return can != 0, err
}

// EnablePeer lets kernels and copies of v use addresses of peer's memory, in this process; it is
// not mutual. That it was enabled before is no error. Memory of another process comes with OpenIPC,
// which does this by itself. Errors: dl.ErrUnsupported when the devices cannot; *Error.
func (v *Device) EnablePeer(peer *Device) error {
	if peer.index == v.index {
		return nil
	}
	can, err := v.CanAccess(peer)
	if err != nil {
		return err
	}
	if !can {
		return fmt.Errorf("cuda: %w: %s cannot address the memory of %s: no NVLink between them, and PCIe's peer access is off (IOMMU, ACS, or a virtual machine)",
			dl.ErrUnsupported, v, peer)
	}
	if err := v.Enter(); err != nil {
		return err
	}
	defer v.Leave()
	r := v.d.api.enablePeer(peer.ctx, 0)
	if r == codePeerEnabled {
		return nil
	}
	return v.d.check("cuCtxEnablePeerAccess", r)
}
