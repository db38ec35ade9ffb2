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

// cu keeps its handles in structs of one unexported field. They are converted by size; these lines
// compile only while that is the size of a handle.
var (
	_ [0]struct{} = [unsafe.Sizeof(cu.CUContext{}) - unsafe.Sizeof(uintptr(0))]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(cu.Stream{}) - unsafe.Sizeof(uintptr(0))]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(cu.DevicePtr(0)) - unsafe.Sizeof(uintptr(0))]struct{}{}
)

func contextHandle(c cu.CUContext) uintptr { return *(*uintptr)(unsafe.Pointer(&c)) }
func streamHandle(s cu.Stream) uintptr     { return *(*uintptr)(unsafe.Pointer(&s)) }
func streamOf(handle uintptr) cu.Stream    { return *(*cu.Stream)(unsafe.Pointer(&handle)) }

// Device returns d as a device of cu.
//
// Errors: dist.ErrDevice if d is no GPU, or one that the process does not see.
func Device(d tensor.Device) (cu.Device, error) {
	if d.Kind != tensor.CUDAKind {
		return 0, fmt.Errorf("culink: %w: %v is not a GPU", dist.ErrDevice, d)
	}
	v, err := cu.GetDevice(d.Index)
	if err != nil {
		return 0, fmt.Errorf("culink: %w: %v: %w", dist.ErrDevice, d, err)
	}
	return v, nil
}

// Context returns the context of this library's resources on d: the device's primary one. It need
// not be current; cu's calls need it current on their thread (cu.CUContext.Lock).
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

// Check returns nil if ctx is the context of this library's resources on d, so that both see each
// other's memory and streams.
//
// Errors: dist.ErrDevice for another context, with the remedy; those of Context.
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

// Pointer returns the address of b for cu's calls.
//
// Owns: the owner of the memory does not change. Errors: dist.ErrDevice for host memory.
func Pointer(b tensor.Buffer) (cu.DevicePtr, error) {
	if b.Device().Kind != tensor.CUDAKind {
		return 0, fmt.Errorf("culink: %w: %v is not in GPU memory", dist.ErrDevice, b)
	}
	return cu.DevicePtr(uintptr(b.Pointer())), nil
}

// Buffer returns n elements of type dt at p, on d, for collectives and kernels. The caller must
// know that they exist: the driver checks the address only when it is used.
//
// Owns: the memory stays cu's; the caller frees it after the operations on it are done. Errors:
// dist.ErrDevice if d is no GPU; those of tensor.FromPointer.
func Buffer(p cu.DevicePtr, n int, dt tensor.DType, d tensor.Device) (tensor.Buffer, error) {
	if d.Kind != tensor.CUDAKind {
		return tensor.Buffer{}, fmt.Errorf("culink: %w: %v is not a GPU", dist.ErrDevice, d)
	}
	at := uintptr(p)
	b, err := tensor.FromPointer(*(*unsafe.Pointer)(unsafe.Pointer(&at)), n, dt, d)
	if err != nil {
		return tensor.Buffer{}, fmt.Errorf("culink: %w", err)
	}
	return b, nil
}

// Stream returns s for cu's calls. Their work and this library's run in one order.
//
// Owns: it belongs to s and ends with it; never destroy it. Errors: dist.ErrUnsupported for a host
// stream.
func Stream(s dist.Stream) (cu.Stream, error) {
	g, ok := s.(*gpu.Stream)
	if !ok {
		return cu.Stream{}, fmt.Errorf("culink: %w: %T is not a stream of a GPU", dist.ErrUnsupported, s)
	}
	return streamOf(g.CUDA().Handle()), nil
}

// FromStream wraps cu's stream s as a stream of this library: a group's view On it queues
// operations in the order of cu's calls. like is a stream of a group on the device of s; s was made
// in that device's primary context.
//
// Owns: s stays cu's. Destroy it after the result is closed, which waits for its work. cu.NoStream
// is the default stream. Errors: dist.ErrUnsupported if like is no stream of a GPU.
func FromStream(like dist.Stream, s cu.Stream) (dist.Stream, error) {
	g, ok := like.(*gpu.Stream)
	if !ok {
		return nil, fmt.Errorf("culink: %w: %T is not a stream of a GPU", dist.ErrUnsupported, like)
	}
	return gpu.Wrap(g.CUDA().Device(), streamHandle(s)), nil
}
