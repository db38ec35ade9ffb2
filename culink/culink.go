//go:build cuda

package culink

import (
	"errors"
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/tensor"
)

// cu keeps its handles in structs of one unexported field. They are read and made through their
// size, which is that of a handle as long as these lines compile.
var (
	_ [0]struct{} = [unsafe.Sizeof(cu.CUContext{}) - unsafe.Sizeof(uintptr(0))]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(cu.Stream{}) - unsafe.Sizeof(uintptr(0))]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(cu.DevicePtr(0)) - unsafe.Sizeof(uintptr(0))]struct{}{}
)

func contextHandle(c cu.CUContext) uintptr { return *(*uintptr)(unsafe.Pointer(&c)) }
func streamHandle(s cu.Stream) uintptr     { return *(*uintptr)(unsafe.Pointer(&s)) }
func streamOf(handle uintptr) cu.Stream    { return *(*cu.Stream)(unsafe.Pointer(&handle)) }

// Device is d as cu has it.
//
// Errors: dist.ErrDevice when d is no GPU, or none that the process sees.
func Device(d tensor.Device) (cu.Device, error) {
	if d.Kind != tensor.CUDAKind {
		return 0, fmt.Errorf("culink: %w: %v is no GPU", dist.ErrDevice, d)
	}
	v, err := cu.GetDevice(d.Index)
	if err != nil {
		return 0, fmt.Errorf("culink: %w: %v: %w", dist.ErrDevice, d, err)
	}
	return v, nil
}

// Context is the context of all that this library has on d: the device's primary one. It need not
// be current anywhere; cu's calls need it current on their thread (cu.CUContext.Lock).
//
// Owns: the caller calls release when it no longer uses ctx, and never destroys it. Errors: those
// of Device; the driver's.
func Context(d tensor.Device) (ctx cu.CUContext, release func() error, err error) {
	v, err := Device(d)
	if err != nil {
		return ctx, nil, err
	}
	if ctx, err = v.RetainPrimaryCtx(); err != nil {
		return ctx, nil, fmt.Errorf("culink: primary context of %v: %w", d, err)
	}
	return ctx, v.ReleasePrimaryCtx, nil
}

// Check returns nil if ctx is the context of this library on d. Then both see each other's memory
// and streams.
//
// Errors: dist.ErrDevice for another one, with the remedy; those of Context.
func Check(ctx cu.CUContext, d tensor.Device) error {
	primary, release, err := Context(d)
	if err != nil {
		return err
	}
	if contextHandle(ctx) != contextHandle(primary) {
		err = fmt.Errorf("culink: %w: context %v is not the primary one of %v, which is %v: use culink.Context instead of cu's MakeContext",
			dist.ErrDevice, ctx, d, primary)
	}
	return errors.Join(err, release())
}

// Pointer is the address of b for cu's calls.
//
// Owns: the memory stays whose it is. Errors: dist.ErrDevice for memory of the host.
func Pointer(b tensor.Buffer) (cu.DevicePtr, error) {
	if b.Device().Kind != tensor.CUDAKind {
		return 0, fmt.Errorf("culink: %w: %v is in no GPU's memory", dist.ErrDevice, b)
	}
	return cu.DevicePtr(uintptr(b.Pointer())), nil
}

// Buffer is n elements of type dt at p, on d, for collectives and kernels. That they are there is
// the caller's word: the driver tells only when they are used.
//
// Owns: the memory stays cu's; it is not freed before the operations on it are done.
// Errors: dist.ErrDevice when d is no GPU; those of tensor.FromPointer.
func Buffer(p cu.DevicePtr, n int, dt tensor.DType, d tensor.Device) (tensor.Buffer, error) {
	if d.Kind != tensor.CUDAKind {
		return tensor.Buffer{}, fmt.Errorf("culink: %w: %v is no GPU", dist.ErrDevice, d)
	}
	at := uintptr(p)
	b, err := tensor.FromPointer(*(*unsafe.Pointer)(unsafe.Pointer(&at)), n, dt, d)
	if err != nil {
		return tensor.Buffer{}, fmt.Errorf("culink: %w", err)
	}
	return b, nil
}

// Stream returns s for cu's calls. Their work and this library's run in one order there.
//
// Owns: it stays s's; it is never destroyed, and ends with s. Errors: dist.ErrUnsupported for a
// stream of the host.
func Stream(s dist.Stream) (cu.Stream, error) {
	g, ok := s.(*gpu.Stream)
	if !ok {
		return cu.Stream{}, fmt.Errorf("culink: %w: %T is no stream of a GPU", dist.ErrUnsupported, s)
	}
	return streamOf(g.CUDA().Handle()), nil
}

// FromStream is cu's stream s as one of this library: a group's view On it queues operations in the
// order of cu's calls. like is a stream of a group on the device that s is of; s was made in that
// device's primary context.
//
// Owns: s stays cu's, and is destroyed after the result is closed, which waits for its work.
// cu.NoStream is the default stream. Errors: dist.ErrUnsupported when like is no stream of a GPU.
func FromStream(like dist.Stream, s cu.Stream) (dist.Stream, error) {
	g, ok := like.(*gpu.Stream)
	if !ok {
		return nil, fmt.Errorf("culink: %w: %T is no stream of a GPU", dist.ErrUnsupported, like)
	}
	return gpu.Wrap(g.CUDA().Device(), streamHandle(s)), nil
}
