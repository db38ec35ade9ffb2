package cudaexec

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/tensor"
)

// hostCall is a Call whose function works on copies of its operands. The device waits for it. A
// program that has one is queued step by step, since no CUDA graph waits for the host.
type hostCall struct {
	f       func(in, out []tensor.Buffer) error
	in, out []tensor.Buffer // on the host
	ready   *cuda.Event     // the device has the Ins
}

// refuse returns the error of a program with steps that a GPU cannot run.
func refuse(p *program.Program) error {
	for i := range p.Steps {
		if c, ok := p.Steps[i].Op.(*program.Call); ok && !c.Copies {
			return fmt.Errorf("cudaexec: %w: %s calls a function of the host: run the program on the host", dist.ErrUnsupported, stepName(p, i))
		}
	}
	return nil
}

// makeCalls allocates the host memory of all Calls.
func (x *Exec) makeCalls() error {
	for i := range x.p.Steps {
		op, ok := x.p.Steps[i].Op.(*program.Call)
		if !ok {
			continue
		}
		if op.Func < 0 || op.Func >= len(x.env.Calls) || x.env.Calls[op.Func] == nil {
			return fmt.Errorf("cudaexec: %w: %s: function %d of %d in the environment", dist.ErrInvalid, stepName(x.p, i), op.Func, len(x.env.Calls))
		}
		c := &hostCall{f: x.env.Calls[op.Func]}
		var err error
		if c.in, err = hostMemory(x.p, x.p.Steps[i].In); err != nil {
			return err
		}
		if c.out, err = hostMemory(x.p, x.p.Steps[i].Out); err != nil {
			return err
		}
		if c.ready, err = x.dev.NewEvent(); err != nil {
			return err
		}
		if x.calls == nil {
			x.calls = map[int]*hostCall{}
		}
		x.calls[i] = c
	}
	return nil
}

// hostMemory allocates host memory for the elements of views, from the offset of each view on.
func hostMemory(p *program.Program, views []program.View) ([]tensor.Buffer, error) {
	all := make([]tensor.Buffer, len(views))
	for k, v := range views {
		val := &p.Values[v.Value]
		n := val.Len() - v.Offset
		words := make([]uint64, n*val.DType.Size()/8+1) // aligned for all types
		b, err := tensor.FromPointer(unsafe.Pointer(unsafe.SliceData(words)), n, val.DType, tensor.Host)
		if err != nil {
			return nil, err
		}
		all[k] = b
	}
	return all, nil
}

// callHost runs step i, a Call: it waits for the device, copies the Ins to the host, calls the
// function, and copies the Outs back.
func (x *Exec) callHost(i int) error {
	c, s := x.calls[i], &x.p.Steps[i]
	if err := x.streams[x.order.on[i]].Record(c.ready); err != nil {
		return err
	}
	if err := x.await(c.ready); err != nil {
		return err
	}
	at := func(v program.View) uintptr {
		return x.addr[v.Value] + uintptr(v.Offset*x.p.Values[v.Value].DType.Size())
	}
	for k, b := range c.in {
		if b.Bytes() > 0 {
			if err := x.dev.CopyToHost(b.Pointer(), at(s.In[k]), b.Bytes()); err != nil {
				return fmt.Errorf("in %d: %w", k, err)
			}
		}
	}
	if err := c.f(c.in, c.out); err != nil {
		return err
	}
	for k, b := range c.out {
		if b.Bytes() > 0 {
			if err := x.dev.CopyFromHost(at(s.Out[k]), b.Pointer(), b.Bytes()); err != nil {
				return fmt.Errorf("out %d: %w", k, err)
			}
		}
	}
	return nil
}

// closeCalls frees the events of Calls.
func (x *Exec) closeCalls() error {
	var errs []error
	for i := range x.p.Steps {
		if c := x.calls[i]; c != nil {
			errs = append(errs, c.ready.Close())
		}
	}
	x.calls = nil
	return errors.Join(errs...)
}
