package cuda

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/symgrad/symgrad/internal/dl"
)

// leastDriver is the oldest CUDA version of a driver: the first with all functions of the table
// under these names.
const leastDriver = 12000

// Driver is the initialized libcuda of this process. It is safe for concurrent use.
type Driver struct {
	cfg     Config
	lib     *dl.Library
	front   front
	api     api
	version int
	name    string // for errors
	closed  atomic.Bool

	mu       sync.Mutex // protects the fields below
	devices  []*Device  // by index; nil until the first Device call
	compiler *Compiler
}

// Open loads the driver's library and initializes it.
//
// Owns: the caller closes the Driver; the library stays loaded (see internal/dl). Errors:
// dl.ErrNotFound without a libcuda, with every place that was tried; ErrTooOld; ErrNoDevice without
// a GPU; other errors of the driver as *Error; ErrInvalid for an invalid cfg.
func Open(cfg Config) (*Driver, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	lib, err := dl.Open(dl.Search{Name: "libcuda", Override: cfg.Driver, Sonames: []string{"libcuda.so.1"}, Dirs: cfg.dirs()})
	if err != nil {
		return nil, fmt.Errorf("cuda: %w: install NVIDIA's driver; in a container, mount the host's library", err)
	}
	d := &Driver{cfg: cfg, lib: lib, name: lib.Path()}
	if err := lib.Bind(&d.front); err != nil {
		return nil, fmt.Errorf("cuda: %s is not a library of the driver: %w", lib.Path(), err)
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
		return nil, fmt.Errorf("cuda: %w: %s sees no GPU: check CUDA_VISIBLE_DEVICES", ErrNoDevice, d.name)
	}
	d.devices = make([]*Device, n)
	return d, nil
}

// accept records the driver's version, and rejects it if it is too old.
func (d *Driver) accept(version int) error {
	d.version = version
	d.name = fmt.Sprintf("CUDA %s (%s)", versionText(version), d.lib.Path())
	if version < leastDriver {
		return fmt.Errorf("cuda: %w: %s is a driver for CUDA %s, the minimum is %s: update NVIDIA's driver to 525 or later",
			ErrTooOld, d.lib.Path(), versionText(version), versionText(leastDriver))
	}
	return nil
}

// Version returns the CUDA version of the driver: 13000 means 13.0.
func (d *Driver) Version() int { return d.version }

// Count returns the number of devices that the process sees.
func (d *Driver) Count() int { return len(d.devices) }

// Path returns the file that the driver's library was loaded from.
func (d *Driver) Path() string { return d.lib.Path() }

// Config returns the Config of Open.
func (d *Driver) Config() Config { return d.cfg }

// String returns a text such as "CUDA 13.0 (/usr/lib/libcuda.so.580.65.06)".
func (d *Driver) String() string { return d.name }

// Device returns the i-th device that the process sees. The first call retains the device's primary
// context, which the CUDA runtime and all libraries in the process share. Later calls return the
// same Device.
//
// Owns: the Driver. Errors: ErrNoDevice for an unknown i, ErrClosed, *Error.
func (d *Driver) Device(i int) (*Device, error) {
	if i < 0 || i >= len(d.devices) {
		return nil, fmt.Errorf("cuda: device %d: %w: %s sees %d devices, numbered from 0", i, ErrNoDevice, d.name, len(d.devices))
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

// Close releases the devices' contexts. All objects of the devices must be closed before; later
// calls on them return ErrClosed. Idempotent.
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

// errClosed is allocated once, because the hot path returns it.
var errClosed = fmt.Errorf("cuda: the driver: %w", ErrClosed)

// check returns nil for success, and otherwise an *Error.
func (d *Driver) check(call string, code int32) error {
	if code == success {
		return nil
	}
	return d.failure(call, code)
}

// Check returns nil for the code of a success, and otherwise an *Error, for a driver function that
// another package has bound.
func (d *Driver) Check(call string, code int32) error { return d.check(call, code) }

// failure returns the *Error of a code.
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

// cText returns the C string at p.
func cText(p unsafe.Pointer) string {
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
