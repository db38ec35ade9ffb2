package cuda

import (
	"fmt"
	"sync/atomic"
)

// Module holds kernels and variables loaded onto a device.
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
	// PTX is text and needs a NUL at its end; a cubin contains its length.
	image = append(image[:len(image):len(image)], 0)
	var h uintptr
	if err := v.inside("cuModuleLoadData", func() int32 { return v.d.api.moduleLoad(&h, &image[0]) }); err != nil {
		return nil, fmt.Errorf("image of %d B for %s: %w", len(image)-1, v, err)
	}
	m := &Module{v: v}
	m.h.Store(h)
	return m, nil
}

// errModuleClosed is the error of calls on a closed module.
var errModuleClosed = fmt.Errorf("cuda: the module: %w", ErrClosed)

// Handle returns the CUmodule; 0 after Close.
func (m *Module) Handle() uintptr { return m.h.Load() }

// Device returns the device of the module.
func (m *Module) Device() *Device { return m.v }

// Function returns the kernel with this name in the image. C++ mangles names, so kernels are extern
// "C". Its code is loaded, so that no launch waits for loading.
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
	// Without this the driver loads code at the first launch and waits for running work. That hangs
	// if the running work waits for this launch.
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
		// A kernel with more parameters than Args can hold gets one too many here, so that takes
		// rejects every Args: the driver would read past the list of addresses.
		for i := uint64(0); i <= mostArgs && api.funcParam(f.h, i, &offset, &bytes) == success; i++ {
			f.params = append(f.params, uint16(bytes))
		}
	}
	return f, nil
}

// Global returns a variable of the module by its name in the image. Errors: *Error, ErrClosed.
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

// Function is a kernel. It is valid until its module is closed.
type Function struct {
	m      *Module
	name   string
	h      uintptr  // CUfunction
	params []uint16 // bytes of each parameter
	known  bool     // params is known
}

// FunctionAttribute is a numeric property of a kernel, a CUfunction_attribute.
type FunctionAttribute int32

// The attributes of kernels, with cuda.h's numbers.
const (
	FunctionMaxThreads  FunctionAttribute = 0 // threads per block
	FunctionShared      FunctionAttribute = 1 // static bytes per block
	FunctionConstant    FunctionAttribute = 2 // bytes
	FunctionLocal       FunctionAttribute = 3 // bytes per thread: spilled registers and arrays
	FunctionRegisters   FunctionAttribute = 4 // per thread
	FunctionMaxDynamic  FunctionAttribute = 8 // limit of dynamic shared bytes per block: see AllowShared
	functionSetMaxBytes                   = int32(FunctionMaxDynamic)
)

// Name returns the name of Module.Function.
func (f *Function) Name() string { return f.name }

// Handle returns the CUfunction.
func (f *Function) Handle() uintptr { return f.h }

// Device returns the device of the kernel.
func (f *Function) Device() *Device { return f.m.v }

// Attribute returns the value of a for the kernel. Errors: *Error, ErrClosed.
func (f *Function) Attribute(a FunctionAttribute) (int, error) {
	if f.m.h.Load() == 0 {
		return 0, errModuleClosed
	}
	var n int32
	err := f.m.v.inside("cuFuncGetAttribute", func() int32 { return f.m.v.d.api.funcAttr(&n, int32(a), f.h) })
	return int(n), err
}

// AllowShared permits launches with more than 48 KiB of dynamic shared memory per block. Errors:
// *Error beyond the device's limit; ErrClosed.
func (f *Function) AllowShared(bytes int) error {
	if f.m.h.Load() == 0 {
		return errModuleClosed
	}
	return f.m.v.inside("cuFuncSetAttribute", func() int32 { return f.m.v.d.api.funcSet(f.h, functionSetMaxBytes, int32(bytes)) })
}

// Resident returns the number of blocks that a multiprocessor runs at the same time, each with
// threads threads and shared bytes of dynamic shared memory. Blocks that wait for each other must
// number at most that times Device.SMs. Errors: *Error, ErrClosed.
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
