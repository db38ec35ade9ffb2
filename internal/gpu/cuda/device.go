package cuda

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/tensor"
)

// Device is one GPU and its primary context. It is safe for concurrent use, as are its objects
// unless they say otherwise.
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
	own   *Stream // for the blocking calls
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

// close releases the context.
func (v *Device) close() error {
	return errors.Join(v.own.Close(), v.d.check("cuDevicePrimaryCtxRelease_v2", v.d.api.release(v.dev)))
}

// identify reads the properties that never change.
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

// upToNUL returns the C string at the start of b.
func upToNUL(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// Driver returns the driver of the device.
func (v *Device) Driver() *Driver { return v.d }

// Index returns the device's number among those that the process sees.
func (v *Device) Index() int { return v.index }

// Name returns NVIDIA's name of the GPU, such as "NVIDIA H200".
func (v *Device) Name() string { return v.name }

// UUID identifies the GPU, or the MIG instance, in all processes.
func (v *Device) UUID() [16]byte { return v.uuid }

// PCI returns the GPU's address on the bus, such as "0000:1b:00.0".
func (v *Device) PCI() string { return v.pci }

// Arch returns the compute capability: 9, 0 for an H200.
func (v *Device) Arch() (major, minor int) { return v.major, v.minor }

// SMs returns the number of multiprocessors.
func (v *Device) SMs() int { return v.sms }

// Tensor returns the device as buffers name it.
func (v *Device) Tensor() tensor.Device { return tensor.CUDA(v.index) }

// Context returns the primary context, a CUcontext; the driver owns it.
func (v *Device) Context() uintptr { return v.ctx }

// String returns a text such as "cuda:0 (NVIDIA H200, 0000:1b:00.0)".
func (v *Device) String() string { return fmt.Sprintf("cuda:%d (%s, %s)", v.index, v.name, v.pci) }

// Enter locks the goroutine to its thread and makes the device's context current there, until
// Leave. Calls nest, also across devices; each successful Enter needs a Leave. It allocates
// nothing. Several calls are fastest between one Enter and Leave.
//
// Errors: ErrClosed, *Error; nothing has then changed.
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

// Leave undoes the last Enter and restores the thread's previous context.
func (v *Device) Leave() {
	// It fails only if other code has popped contexts of this thread that it did not push; then
	// there is nothing to restore.
	_, _ = v.d.api.ctxPop.Status(0)
	runtime.UnlockOSThread()
}

// inside calls fn between Enter and Leave and converts its status into an error.
func (v *Device) inside(call string, fn func() int32) error {
	if err := v.Enter(); err != nil {
		return err
	}
	defer v.Leave()
	return v.d.check(call, fn())
}

// call calls p on the hot path. A thread without a context gets the device's for the call.
func (v *Device) call(p *dl.Proc, name string, words ...uintptr) error {
	code, err := v.status(p, words...)
	if err == nil && code == success {
		return nil
	}
	return v.refused(name, code, err)
}

// poll is call for functions that may return "not ready": it returns true for success, false for
// not ready.
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

// refused returns the error of a failed call.
func (v *Device) refused(name string, code int32, err error) error {
	if err != nil {
		return err
	}
	return v.d.failure(name, code)
}

// status calls p and returns its status. If the driver rejects the thread's context, status calls p
// again with the device's context. That is safe: a rejected call had no effect.
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

// Synchronize waits for all work on the device's context. Errors: *Error, including those of failed
// kernels.
func (v *Device) Synchronize() error {
	return v.inside("cuCtxSynchronize", func() int32 { return v.d.api.ctxSync() })
}

// PriorityRange returns the lowest and the highest priority of streams. A smaller number is a
// higher priority: 0 and -5. Errors: *Error.
func (v *Device) PriorityRange() (least, greatest int, err error) {
	var lo, hi int32
	err = v.inside("cuCtxGetStreamPriorityRange", func() int32 { return v.d.api.priorityRange(&lo, &hi) })
	return int(lo), int(hi), err
}

// Memory returns the device's memory in bytes: free for all processes, and total. Errors: *Error.
func (v *Device) Memory() (free, total int64, err error) {
	var f, t uint64
	err = v.inside("cuMemGetInfo_v2", func() int32 { return v.d.api.memInfo(&f, &t) })
	return int64(f), int64(t), err
}

// CanAccess reports whether kernels of v can address memory of peer; always true for v itself.
// Errors: *Error.
func (v *Device) CanAccess(peer *Device) (bool, error) {
	if peer.index == v.index {
		return true, nil
	}
	var can int32
	err := v.d.check("cuDeviceCanAccessPeer", v.d.api.canAccess(&can, v.dev, peer.dev))
	return can != 0, err
}

// PeerAtomics reports whether atomics of v on memory of peer are atomic for all devices. Errors:
// *Error.
func (v *Device) PeerAtomics(peer *Device) (bool, error) {
	if peer.index == v.index {
		return true, nil
	}
	var can int32
	err := v.d.check("cuDeviceGetP2PAttribute", v.d.api.peerAttr(&can, peerAtomics, v.dev, peer.dev))
	return can != 0, err
}

// EnablePeer lets kernels and copies of v use addresses of peer's memory in this process, in this
// direction only. It may be called again. Memory of another process needs OpenIPC instead, which
// does this itself. Errors: dl.ErrUnsupported if the devices cannot; *Error.
func (v *Device) EnablePeer(peer *Device) error {
	if peer.index == v.index {
		return nil
	}
	can, err := v.CanAccess(peer)
	if err != nil {
		return err
	}
	if !can {
		return fmt.Errorf("cuda: %w: %s cannot address the memory of %s: there is no NVLink between them, and peer access over PCIe is off (IOMMU, ACS, or a virtual machine)",
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
