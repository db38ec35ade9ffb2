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

// In Gorgonia's cuda build a machine runs ops with CUDADo on its device 0, and copies the values
// there and back. The collectives have CUDADo. Hook, Start and Wait do not, since a Reducer takes
// gradients where the solver is, on the host.
var _ gorgonia.CUDADoer = (*collective)(nil)

// CUDADo is Do for a machine whose values are on dev. It first waits for the machine's own queue,
// then runs the operation and waits for it.
//
// The machine's memory is managed: device and host use one address for it. So a group on that
// device and a group on the host both work on the memory where it is.
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

// runOn is run for values in the memory of the machine's device.
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

// wait runs the operation on the group's device. src and dst are host views of managed memory.
//
// Errors: ErrInvalid for an input that had to be copied, to memory that the device cannot address.
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

// finish returns when all the machine's queued work for dev is done. The machine batches its calls,
// and cuBLAS calls continue after they return. finish also ensures that the machine's goroutine for
// dev has started. A machine that is closed before its cuBLAS handle exists hangs: gorgonia v0.9.18
// copies the engine with its lock held.
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

// placeOn returns the value for a result of this form: prealloc if it fits and shares no memory
// with in, otherwise the machine's memory, which the machine frees after the register's last use.
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

// scalarAt returns a gorgonia scalar at an address.
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
