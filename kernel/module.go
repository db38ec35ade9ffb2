package kernel

import (
	"errors"
	"fmt"
	"sync"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// Module is compiled code on one device.
type Module struct {
	name   string
	device *cuda.Device

	mu     sync.Mutex // guards the fields below, and the arguments of its functions
	image  *cuda.Module
	end    func() error // of a library with code in the image; nil without one
	closed bool
}

// Compile compiles src for the device of s, and loads it there.
//
// Returns: when the code can be launched; the first time that takes NVRTC some 100 ms, later ones
// read a file. Owns: the caller closes the module, before the world of s.
//
// Errors: ErrUnsupported if s is not a stream of a GPU, or NVRTC is missing, with the searched
// locations. For text that calls NVSHMEM also if s is not the own stream of a group that has it, if
// nvJitLink, headers or the device part are missing, or if linking fails. ErrInvalid for compiler
// errors, with the log, and, with NVSHMEM, while s is captured.
func Compile(s dist.Stream, src Source) (*Module, error) {
	stream, err := gpuStream(s)
	if err == nil {
		err = src.check()
	}
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w", src.name(), err)
	}
	d := stream.CUDA().Device()
	m := &Module{name: src.name(), device: d}
	text := cuda.Source{Name: src.name(), Text: src.expanded(), Options: src.Options}
	if src.NVSHMEM {
		if m.image, m.end, err = stream.Build("nvshmem", text); err != nil {
			return nil, fmt.Errorf("compile %s with NVSHMEM on %v: %w", src.name(), d.Tensor(), kindOf(err))
		}
		return m, nil
	}
	image, err := compile(d, text)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", d.Tensor(), err)
	}
	if m.image, err = d.Load(image); err != nil {
		return nil, fmt.Errorf("load %s on %v: %w", src.name(), d.Tensor(), kindOf(err))
	}
	return m, nil
}

// Name returns the source's name.
func (m *Module) Name() string { return m.name }

// Device returns the device that has the code.
func (m *Module) Device() tensor.Device { return m.device.Tensor() }

// Function returns the kernel of that name: one that is declared extern "C" __global__, or a
// mangled name.
//
// Owns: it ends with the module. Errors: ErrInvalid for an unknown name; ErrClosed.
func (m *Module) Function(name string) (*Function, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, fmt.Errorf("function %q of %s: module: %w", name, m.name, dist.ErrClosed)
	}
	f, err := m.image.Function(name)
	if err != nil {
		return nil, fmt.Errorf("function %q of %s: %w (is it extern \"C\" __global__?): %w", name, m.name, dist.ErrInvalid, err)
	}
	args, err := cuda.NewArgs(mostArgs)
	if err != nil {
		return nil, fmt.Errorf("function %q of %s: %w", name, m.name, err)
	}
	return &Function{module: m, name: name, f: f, args: args, shared: freeShared}, nil
}

// Global returns the bytes of the __device__ or __constant__ variable of that name, as u8 on the
// device.
//
// Owns: it ends with the module. Errors: ErrInvalid for an unknown name; ErrClosed.
func (m *Module) Global(name string) (tensor.Buffer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return tensor.Buffer{}, fmt.Errorf("variable %q of %s: module: %w", name, m.name, dist.ErrClosed)
	}
	at, bytes, err := m.image.Global(name)
	if err != nil {
		return tensor.Buffer{}, fmt.Errorf("variable %q of %s: %w (is it extern \"C\" __device__?): %w", name, m.name, dist.ErrInvalid, err)
	}
	return bufferAt(at, bytes, m.device.Tensor())
}

// Close unloads the code. Kernels of it must have run: Synchronize the streams first. Idempotent.
func (m *Module) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	var err error
	if m.end != nil {
		err = m.end()
	}
	if err = errors.Join(err, m.image.Close()); err != nil {
		return fmt.Errorf("unload %s from %v: %w", m.name, m.device.Tensor(), err)
	}
	return nil
}
