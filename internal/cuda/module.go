package cuda

import (
	"fmt"
	"sync/atomic"
)

// Module is kernels and variables loaded onto a device.
type Module struct {
	v *Device
	h atomic.Uintptr // CUmodule; 0 when closed
}

// Load loads an image: a cubin of Compiler.Compile, a fatbin, or PTX. The driver copies it.
//
// Owns: the caller closes the module. Errors: ErrInvalid for an empty image, *Error.
func (v *Device) Load(image []byte) (*Module, error) {
	if len(image) == 0 {
		return nil, fmt.Errorf("cuda: %w: empty image", ErrInvalid)
	}
	// PTX is text, which ends with a NUL; a cubin knows its own length.
	image = append(image[:len(image):len(image)], 0)
	var h uintptr
	if err := v.inside("cuModuleLoadData", func() int32 { return v.d.api.moduleLoad(&h, &image[0]) }); err != nil {
		return nil, fmt.Errorf("image of %d B for %s: %w", len(image)-1, v, err)
	}
	m := &Module{v: v}
	m.h.Store(h)
	return m, nil
}

// errModuleClosed is what a closed module answers.
var errModuleClosed = fmt.Errorf("cuda: the module: %w", ErrClosed)

// Handle is the CUmodule; 0 after Close.
func (m *Module) Handle() uintptr { return m.h.Load() }

// Device is where the module is loaded.
func (m *Module) Device() *Device { return m.v }

// Function is the kernel with a name as it stands in the image: C++ mangles names, so kernels are
// extern "C". It is ready to run: no launch of it waits for code to be loaded.
//
// Owns: the module. Errors: *Error, ErrClosed.
func (m *Module) Function(name string) (*Function, error) {
	h := m.h.Load()
	if h == 0 {
		return nil, errModuleClosed
	}
	if err := m.v.Enter(); err != nil {
		return nil, err
	}
	defer m.v.Leave()
	api := &m.v.d.api
	f := &Function{m: m, name: name}
	if err := m.v.d.check("cuModuleGetFunction", api.moduleFunc(&f.h, h, name)); err != nil {
		return nil, fmt.Errorf("kernel %q: %w", name, err)
	}
	// The driver loads code when it is first launched, and then waits for what runs: for good, if
	// that waits for this launch.
	if api.funcLoad != nil {
		if err := m.v.d.check("cuFuncLoad", api.funcLoad(f.h)); err != nil {
			return nil, fmt.Errorf("kernel %q: %w", name, err)
		}
	}
	if _, err := f.Attribute(FunctionRegisters); err != nil {
		return nil, fmt.Errorf("kernel %q: %w", name, err)
	}
	if api.funcParam != nil {
		f.known = true
		var offset, bytes uint64
		// One more than Args can be: such a kernel takes none, where the driver would read behind
		// the list of addresses.
		for i := uint64(0); i <= mostArgs && api.funcParam(f.h, i, &offset, &bytes) == success; i++ {
			f.params = append(f.params, uint16(bytes))
		}
	}
	return f, nil
}

// Global is a variable of the module, by its name in the image. Errors: *Error, ErrClosed.
func (m *Module) Global(name string) (p uintptr, bytes int64, err error) {
	h := m.h.Load()
	if h == 0 {
		return 0, 0, errModuleClosed
	}
	var n uint64
	if err := m.v.inside("cuModuleGetGlobal_v2", func() int32 { return m.v.d.api.moduleGlobal(&p, &n, h, name) }); err != nil {
		return 0, 0, fmt.Errorf("variable %q: %w", name, err)
	}
	return p, int64(n), nil
}

// Close unloads the module; none of its kernels may be queued. Idempotent. Errors: *Error.
func (m *Module) Close() error {
	h := m.h.Swap(0)
	if h == 0 {
		return nil
	}
	return m.v.release("cuModuleUnload", func() int32 { return m.v.d.api.moduleUnload(h) })
}

// Function is a kernel. It ends with its module.
type Function struct {
	m      *Module
	name   string
	h      uintptr  // CUfunction
	params []uint16 // bytes of each parameter
	known  bool     // whether params is
}

// FunctionAttribute is a number that the driver knows of a kernel, a CUfunction_attribute.
type FunctionAttribute int32

// The attributes of kernels, with cuda.h's numbers.
const (
	FunctionMaxThreads  FunctionAttribute = 0 // of a block
	FunctionShared      FunctionAttribute = 1 // bytes a block, static
	FunctionConstant    FunctionAttribute = 2 // bytes
	FunctionLocal       FunctionAttribute = 3 // bytes a thread: registers that did not fit, and arrays
	FunctionRegisters   FunctionAttribute = 4 // a thread
	FunctionMaxDynamic  FunctionAttribute = 8 // bytes a block of dynamic shared memory, at most: see AllowShared
	functionSetMaxBytes                   = int32(FunctionMaxDynamic)
)

// Name is what Module.Function was given.
func (f *Function) Name() string { return f.name }

// Handle is the CUfunction.
func (f *Function) Handle() uintptr { return f.h }

// Device is where the kernel runs.
func (f *Function) Device() *Device { return f.m.v }

// Attribute is the value of a for the kernel. Errors: *Error, ErrClosed.
func (f *Function) Attribute(a FunctionAttribute) (int, error) {
	if f.m.h.Load() == 0 {
		return 0, errModuleClosed
	}
	var n int32
	err := f.m.v.inside("cuFuncGetAttribute", func() int32 { return f.m.v.d.api.funcAttr(&n, int32(a), f.h) })
	return int(n), err
}

// AllowShared lets launches have more dynamic shared memory than 48 KiB a block. Errors: *Error for
// more than the device has; ErrClosed.
func (f *Function) AllowShared(bytes int) error {
	if f.m.h.Load() == 0 {
		return errModuleClosed
	}
	return f.m.v.inside("cuFuncSetAttribute", func() int32 { return f.m.v.d.api.funcSet(f.h, functionSetMaxBytes, int32(bytes)) })
}

// Resident is how many blocks of threads threads and shared bytes of dynamic shared memory a
// multiprocessor runs at once. Blocks that wait for each other must not be more than that times
// Device.SMs. Errors: *Error, ErrClosed.
func (f *Function) Resident(threads int, shared uint32) (int, error) {
	if f.m.h.Load() == 0 {
		return 0, errModuleClosed
	}
	var n int32
	err := f.m.v.inside("cuOccupancyMaxActiveBlocksPerMultiprocessor", func() int32 {
		return f.m.v.d.api.occupancy(&n, f.h, int32(threads), uint64(shared))
	})
	return int(n), err
}
