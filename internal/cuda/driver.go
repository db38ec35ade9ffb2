package cuda

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/internal/dl"
)

// leastDriver is the oldest CUDA that a driver may be for: the first with all functions of the
// table under these names.
const leastDriver = 12000

// Driver is libcuda of this process, initialised. It is safe for concurrent use.
type Driver struct {
	cfg     Config
	lib     *dl.Library
	front   front
	api     api
	version int
	name    string // for errors
	closed  atomic.Bool

	mu       sync.Mutex // of what follows
	devices  []*Device  // by index; nil until asked for
	compiler *Compiler
}

// Open loads the driver's library and initialises it.
//
// Owns: the caller closes the Driver; the library stays loaded (see internal/dl). Errors:
// dl.ErrNotFound where there is no libcuda, with every place that was tried; ErrTooOld; ErrNoDevice
// where there is no GPU; *Error for what else the driver says; ErrInvalid for a wrong cfg.
func Open(cfg Config) (*Driver, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	lib, err := dl.Open(dl.Search{Name: "libcuda", Override: cfg.Driver, Sonames: []string{"libcuda.so.1"}, Dirs: cfg.dirs()})
	if err != nil {
		return nil, fmt.Errorf("cuda: %w: it comes with NVIDIA's driver; in a container, the host's must be mounted", err)
	}
	d := &Driver{cfg: cfg, lib: lib, name: lib.Path()}
	if err := lib.Bind(&d.front); err != nil {
		return nil, fmt.Errorf("cuda: %s is no driver's library: %w", lib.Path(), err)
	}
	var version int32
	if err := d.check("cuDriverGetVersion", d.front.version(&version)); err != nil {
		return nil, err
	}
	if err := d.accept(int(version)); err != nil {
		return nil, err
	}
	if err := lib.Bind(&d.api); err != nil {
		return nil, fmt.Errorf("cuda: %s: %w", d.name, err)
	}
	if err := d.check("cuInit", d.api.init(0)); err != nil {
		return nil, err
	}
	var n int32
	if err := d.check("cuDeviceGetCount", d.api.deviceCount(&n)); err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, fmt.Errorf("cuda: %w: %s sees no GPU: is there one in CUDA_VISIBLE_DEVICES?", ErrNoDevice, d.name)
	}
	d.devices = make([]*Device, n)
	return d, nil
}

// accept takes the driver's version, or refuses it.
func (d *Driver) accept(version int) error {
	d.version = version
	d.name = fmt.Sprintf("CUDA %s (%s)", versionText(version), d.lib.Path())
	if version < leastDriver {
		return fmt.Errorf("cuda: %w: %s is a driver for CUDA %s, and %s is the oldest that will do: update NVIDIA's driver to 525 or later",
			ErrTooOld, d.lib.Path(), versionText(version), versionText(leastDriver))
	}
	return nil
}

// Version is the CUDA that the driver is for: 13000 means 13.0.
func (d *Driver) Version() int { return d.version }

// Count is the number of devices that the process sees.
func (d *Driver) Count() int { return len(d.devices) }

// Path is the file that the driver's library was loaded from.
func (d *Driver) Path() string { return d.lib.Path() }

// Config is what Open was given.
func (d *Driver) Config() Config { return d.cfg }

// String is "CUDA 13.0 (/usr/lib/libcuda.so.580.65.06)".
func (d *Driver) String() string { return d.name }

// Device is the i-th device that the process sees. The first call makes the device's primary
// context, which the CUDA runtime and all libraries in the process share; later calls give the same
// Device.
//
// Owns: the Driver. Errors: ErrNoDevice when there are no more than i devices, ErrClosed, *Error.
func (d *Driver) Device(i int) (*Device, error) {
	if i < 0 || i >= len(d.devices) {
		return nil, fmt.Errorf("cuda: device %d: %w: %s sees %d, numbered from 0", i, ErrNoDevice, d.name, len(d.devices))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return nil, errClosed
	}
	if d.devices[i] == nil {
		v, err := newDevice(d, i)
		if err != nil {
			return nil, fmt.Errorf("device %d: %w", i, err)
		}
		d.devices[i] = v
	}
	return d.devices[i], nil
}

// Close gives the devices' contexts back. What was made on the devices must be closed before; later
// calls on them answer ErrClosed. Idempotent.
//
// Errors: *Error.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return nil
	}
	var errs []error
	for _, v := range d.devices {
		if v != nil {
			errs = append(errs, v.close())
		}
	}
	d.closed.Store(true)
	return errors.Join(errs...)
}

// errClosed is made once, because the hot path returns it.
var errClosed = fmt.Errorf("cuda: the driver: %w", ErrClosed)

// check is nil for success, and otherwise an *Error in the driver's words.
func (d *Driver) check(call string, code int32) error {
	if code == success {
		return nil
	}
	return d.failure(call, code)
}

// Check is nil for the code of a success, and else the *Error of a call of the driver that another
// package has bound.
func (d *Driver) Check(call string, code int32) error { return d.check(call, code) }

// failure is the *Error of a code.
//
//go:noinline
func (d *Driver) failure(call string, code int32) error {
	e := &Error{Call: call, Code: int(code), Name: "CUresult", Text: "the driver has no text for it", Library: d.name}
	var p unsafe.Pointer
	if d.front.errorName(code, &p) == success && p != nil {
		e.Name = cText(p)
	}
	p = nil
	if d.front.errorString(code, &p) == success && p != nil {
		e.Text = cText(p)
	}
	return fmt.Errorf("cuda: %w", e)
}

// cText is a C string.
func cText(p unsafe.Pointer) string {
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
