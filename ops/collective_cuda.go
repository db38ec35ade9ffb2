//go:build cuda

package ops

import (
	"fmt"
	"unsafe"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// In Gorgonia's cuda build a machine runs what has CUDADo on its device 0, and moves values there
// and back. The collectives have it; hooks, starts and waits have not, since a Reducer takes
// gradients where the solver is, on the host.
var _ gorgonia.CUDADoer = (*collective)(nil)

// CUDADo is Do for a machine whose values are on dev. It waits for the machine's own queue first,
// and for the operation.
//
// The machine's memory is managed: its device and the host address it alike. So a group on that
// device works on it where it is, and so does a group on the host.
//
// Errors: those of Do; dist.ErrDevice for a group on another device, with the remedy.
func (c *collective) CUDADo(extern gorgonia.External, dev gorgonia.Device, prealloc gorgonia.Value, inputs ...gorgonia.Value) (gorgonia.Value, error) {
	if len(inputs) == 0 {
		return nil, fmt.Errorf("%v: %w: no input", c, dist.ErrInvalid)
	}
	if dev == gorgonia.CPU {
		return c.run(prealloc, inputs[0])
	}
	out, err := c.runOn(extern, dev, prealloc, inputs[0])
	if err != nil {
		return nil, fmt.Errorf("%v of %q on gorgonia's %v: %w", c, c.label(), dev, err)
	}
	return out, nil
}

// runOn is run for values in the memory of a machine's device.
func (c *collective) runOn(extern gorgonia.External, dev gorgonia.Device, prealloc, in gorgonia.Value) (gorgonia.Value, error) {
	if on := c.g.Device(); on != tensor.Host && on != tensor.CUDA(int(dev)) {
		return nil, fmt.Errorf("%w: the group is on %v; let the rank see no other GPU (CUDA_VISIBLE_DEVICES), so that it is gorgonia's first",
			dist.ErrDevice, on)
	}
	if at := c.post.Scalar.At; !at.IsZero() && at.Device() != tensor.Host {
		return nil, fmt.Errorf("%w: the gradient needs the scalar on the host, and it is %v", dist.ErrUnsupported, at)
	}
	if err := finish(extern, dev); err != nil {
		return nil, err
	}
	src, err := c.in.read(in)
	if err != nil {
		return nil, err
	}
	out, err := c.out.placeOn(extern, dev, prealloc, in)
	if err != nil {
		return nil, err
	}
	dst, err := alias(out)
	if err != nil {
		return nil, err
	}
	if err := c.wait(in, src, dst); err != nil {
		return nil, err
	}
	switch {
	case c.kind == dist.KindBarrier:
		copy(dst.Raw(), src.Raw())
	case !c.hasResult():
		clear(dst.Raw())
	}
	scale(dst, c.post, c.g.Size())
	return out, nil
}

// wait does the operation on the group's device. src and dst are host views of managed memory.
//
// Errors: ErrInvalid for an input that had to be copied, to memory that the device has not.
func (c *collective) wait(in gorgonia.Value, src, dst tensor.Buffer) error {
	if on := c.g.Device(); on != tensor.Host {
		if uintptr(src.Pointer()) != in.Uintptr() {
			return fmt.Errorf("%w: the input is not contiguous in C order; copy it first", dist.ErrInvalid)
		}
		var err error
		if src, err = tensor.FromPointer(src.Pointer(), src.Len(), src.DType(), on); err != nil {
			return err
		}
		if dst, err = tensor.FromPointer(dst.Pointer(), dst.Len(), dst.DType(), on); err != nil {
			return err
		}
	}
	w, err := c.issue(dst, src)
	if err != nil {
		return err
	}
	return w.Wait()
}

// finish returns when all that the machine has queued for dev is done: its calls are batched, and
// those of cuBLAS run on after they have been made. The machine's goroutine for dev has begun by
// then: a machine that is closed before it has made its cuBLAS handle never comes back (gorgonia
// v0.9.18 copies the engine, with the lock held).
func finish(extern gorgonia.External, dev gorgonia.Device) error {
	m, ok := extern.(gorgonia.CUDAMachine)
	if !ok {
		return fmt.Errorf("%w: a %T runs nothing on a device", dist.ErrInvalid, extern)
	}
	contexts := m.Contexts()
	if int(dev) < 0 || int(dev) >= len(contexts) {
		return fmt.Errorf("%w: the machine has %d devices", dist.ErrInvalid, len(contexts))
	}
	contexts[dev].Synchronize()
	m.Signal()
	if err := contexts[dev].Errors(); err != nil { // the goroutine has ended
		return err
	}
	return contexts[dev].Do(func() error { return nil })
}

// placeOn is where a result of this form goes: prealloc if it fits and shares no memory with in,
// else memory of the machine's, which frees it when the register is used no more.
func (f form) placeOn(extern gorgonia.External, dev gorgonia.Device, prealloc, in gorgonia.Value) (gorgonia.Value, error) {
	if prealloc != nil && prealloc.Dtype() == f.gdt && prealloc.Shape().Eq(f.shape) && !overlap(prealloc, in) {
		if _, err := alias(prealloc); err == nil {
			return prealloc, nil
		}
	}
	bytes := int64(f.len()) * int64(f.dt.Size())
	mem, err := extern.Get(dev, bytes)
	if err != nil {
		return nil, fmt.Errorf("%d B for the result: %w", bytes, err)
	}
	if !f.scalar() {
		return gtensor.New(gtensor.Of(f.gdt), gtensor.WithShape(f.shape...), gtensor.FromMemory(mem.Uintptr(), uintptr(bytes))), nil
	}
	return f.scalarAt(mem.Uintptr())
}

// scalarAt is a scalar of gorgonia's at an address.
func (f form) scalarAt(at uintptr) (gorgonia.Value, error) {
	p := *(*unsafe.Pointer)(unsafe.Pointer(&at)) // managed memory, which Go's collector does not know
	switch f.gdt {
	case gtensor.Float64:
		return (*gorgonia.F64)(p), nil
	case gtensor.Float32:
		return (*gorgonia.F32)(p), nil
	case gtensor.Int64:
		return (*gorgonia.I64)(p), nil
	case gtensor.Int32:
		return (*gorgonia.I32)(p), nil
	case gtensor.Uint8:
		return (*gorgonia.U8)(p), nil
	}
	return nil, fmt.Errorf("%w: gorgonia has no %v scalar", dist.ErrDType, f.dt)
}
