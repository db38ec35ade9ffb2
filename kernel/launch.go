package kernel

import (
	"fmt"
	"reflect"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// Shape has the number of threads that run a kernel, and their shared memory.
type Shape struct {
	Grid     [3]uint32 // blocks in x, y, z; 0 means 1
	Block    [3]uint32 // threads of a block in x, y, z: at most 1024, at most 64 in z; 0 means 1
	Shared   uint32    // bytes of dynamic shared memory of a block (extern __shared__): at most 48 KiB, or the limit of AllowShared
	Together bool      // all blocks must run at once, so that they may wait for each other; otherwise Launch fails
}

const (
	mostThreads = 1024      // of a block, on every GPU
	mostDeep    = 64        // of a block in z, likewise
	freeShared  = 48 << 10  // without AllowShared: CUDA C++ Programming Guide, "Compute Capabilities"
	mostX       = 1<<31 - 1 // blocks of a grid
	mostYZ      = 1<<16 - 1
)

// launch returns s with its defaults, for a kernel with a limit of shared bytes of shared memory.
//
// Errors: ErrInvalid for a shape that no GPU has.
func (s Shape) launch(shared uint32) (cuda.Launch, error) {
	for axis := range 3 {
		s.Grid[axis] = max(s.Grid[axis], 1)
		s.Block[axis] = max(s.Block[axis], 1)
	}
	threads := uint64(1)
	for _, n := range s.Block {
		threads = min(threads*uint64(n), 1<<31) // no overflow
	}
	switch {
	case threads > mostThreads:
		return cuda.Launch{}, fmt.Errorf("%w: a block of %v threads has more than %d", dist.ErrInvalid, s.Block, mostThreads)
	case s.Block[2] > mostDeep:
		return cuda.Launch{}, fmt.Errorf("%w: a block of %v threads has more than %d in z", dist.ErrInvalid, s.Block, mostDeep)
	case s.Grid[0] > mostX || s.Grid[1] > mostYZ || s.Grid[2] > mostYZ:
		return cuda.Launch{}, fmt.Errorf("%w: a grid of %v blocks has more than %d, %d or %d", dist.ErrInvalid, s.Grid, mostX, mostYZ, mostYZ)
	case s.Shared > shared:
		return cuda.Launch{}, fmt.Errorf("%w: %d B of shared memory, more than %d; AllowShared allows more", dist.ErrInvalid, s.Shared, shared)
	}
	return cuda.Launch{Grid: s.Grid, Block: s.Block, Shared: s.Shared, Together: s.Together}, nil
}

// Function is a kernel of a Module.
type Function struct {
	module *Module
	name   string
	f      *cuda.Function

	// Guarded by the module's lock.
	args   *cuda.Args
	shared uint32 // limit of a launch's bytes
}

// Name returns the name in the image.
func (f *Function) Name() string { return f.name }

// AllowShared raises the limit of dynamic shared memory of a block above 48 KiB.
//
// Errors: ErrClosed; the driver's for more than the device has.
func (f *Function) AllowShared(bytes uint32) error {
	m := f.module
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("shared memory of %s of %s: module: %w", f.name, m.name, dist.ErrClosed)
	}
	if err := f.f.AllowShared(int(bytes)); err != nil {
		return fmt.Errorf("%d B of shared memory for %s of %s: %w", bytes, f.name, m.name, kindOf(err))
	}
	f.shared = bytes
	return nil
}

// Resident returns the number of blocks of the shape's size that an idle GPU runs at once. No more
// blocks may wait for each other.
//
// Errors: ErrInvalid for a shape that no GPU has; ErrClosed; the driver's.
func (f *Function) Resident(shape Shape) (int, error) {
	m := f.module
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0, fmt.Errorf("resident blocks of %s of %s: module: %w", f.name, m.name, dist.ErrClosed)
	}
	l, err := shape.launch(f.shared)
	if err != nil {
		return 0, fmt.Errorf("resident blocks of %s of %s: %w", f.name, m.name, err)
	}
	n, err := f.f.Resident(int(l.Block[0]*l.Block[1]*l.Block[2]), l.Shared)
	if err != nil {
		return 0, fmt.Errorf("resident blocks of %s of %s: %w", f.name, m.name, kindOf(err))
	}
	return n * m.device.SMs(), nil
}

// Launch queues the kernel on s, as cuLaunchKernel does; Mark makes a Work of it. The arguments are
// those of the package's table, in the order of the kernel's parameters, each with the parameter's
// width. s is a stream of the module's device, of any group.
//
// Returns: when queued; the arguments' values were read. Owns: memory of the arguments belongs to
// the kernel until it has run. Errors: ErrInvalid and its kinds for a shape, for an argument, with
// its number, and for arguments whose number or widths differ from the kernel's (unknown to drivers
// before CUDA 12.4); ErrClosed for a closed module; ErrUnsupported if s is not a stream of a GPU;
// the driver's, also those of kernels that failed before.
func (f *Function) Launch(s dist.Stream, shape Shape, args ...any) error {
	stream, err := streamOf(s)
	if err != nil {
		return f.failed(err)
	}
	m := f.module
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := f.prepare(stream, shape, len(args))
	if err != nil {
		return f.failed(err)
	}
	f.args.Reset()
	for i, a := range args {
		v, err := valueOf(a, m.device.Tensor())
		if err != nil {
			return f.failed(fmt.Errorf("argument %d (%v): %w", i+1, reflect.TypeOf(a), err))
		}
		push(f.args, v)
	}
	if err := m.device.Enter(); err != nil {
		return f.failed(kindOf(err))
	}
	err = f.f.Launch(stream, l, f.args)
	m.device.Leave()
	if err != nil {
		return f.failed(kindOf(err))
	}
	return nil
}

// prepare checks all except the arguments. The module's lock is held.
func (f *Function) prepare(stream *cuda.Stream, shape Shape, args int) (cuda.Launch, error) {
	m := f.module
	switch {
	case m.closed:
		return cuda.Launch{}, fmt.Errorf("module: %w", dist.ErrClosed)
	case stream.Device() != m.device:
		return cuda.Launch{}, fmt.Errorf("%w: the stream is on %v, the module on %v", dist.ErrDevice, stream.Device().Tensor(), m.Device())
	case args > mostArgs:
		return cuda.Launch{}, fmt.Errorf("%w: %d arguments, at most %d: pass a pointer to a struct", dist.ErrInvalid, args, mostArgs)
	}
	return shape.launch(f.shared)
}

func (f *Function) failed(err error) error {
	return fmt.Errorf("launch %s of %s: %w", f.name, f.module.name, err)
}
