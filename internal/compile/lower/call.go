package lower

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/values"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// Call is a host function of a program: one of the fields says which.
type Call struct {
	label   string
	begin   *ops.Begin
	join    *ops.Join
	start   *Hook
	wait    *Hook
	message *ops.Operation
	hook    func(in, out []tensor.Buffer) error // of ddp, for a bucket
	Op      gorgonia.Op                         // runs by its Do; in has the forms of its inputs
	in      []look
}

// look is the form of a value of Gorgonia.
type look struct {
	gdt    gtensor.Dtype
	shape  []int
	scalar bool
}

// Run runs the function.
func (f *Call) Run(in, out []tensor.Buffer) error {
	switch {
	case f.begin != nil:
		return f.begin.Run()
	case f.join != nil:
		return f.join.Run()
	case f.start != nil:
		return f.start.give(in[0])
	case f.wait != nil:
		return f.wait.take(out)
	case f.hook != nil:
		return f.hook(in, out)
	case f.message != nil:
		return communicate(f.message, in[0], out[0])
	}
	return f.do(in, out[0])
}

// communicate sends or receives a message, or runs a barrier.
func communicate(op *ops.Operation, in, out tensor.Buffer) error {
	g := op.Group
	var w dist.Work
	var err error
	switch op.Kind {
	case dist.KindSend:
		clear(out.Raw())
		w, err = g.Send(in, op.Peer)
	case dist.KindRecv:
		w, err = g.Recv(out, op.Peer)
	default:
		w, err = g.Barrier()
	}
	if err == nil {
		err = w.Wait()
	}
	if err == nil && op.Kind == dist.KindBarrier {
		copy(out.Raw(), in.Raw())
	}
	return err
}

// give passes the gradient in b to its reducer.
func (h *Hook) give(b tensor.Buffer) error {
	red := h.Hook.Reducer()
	if red == nil {
		return fmt.Errorf("gradient of %q: %w", h.Hook.Param().Name(), ops.ErrNotAttached)
	}
	if p, ok := red.(ops.Placed); ok && h.InPlace {
		return p.Filled()
	}
	if s, ok := red.(stager); ok && h.Grad == program.None {
		return s.StartFrom(b)
	}
	v, err := values.Over(b, h.gdt, h.Shape, len(h.Shape) == 0)
	if err != nil {
		return err
	}
	return red.Start(v)
}

// take waits for the reduced gradient and puts it into out, if the program reads it.
func (h *Hook) take(out []tensor.Buffer) error {
	red := h.Hook.Reducer()
	if red == nil {
		return fmt.Errorf("gradient of %q: %w", h.Hook.Param().Name(), ops.ErrNotAttached)
	}
	if p, ok := red.(ops.Placed); ok && (h.Placed || len(out) == 0) {
		return p.Reduced()
	}
	v, err := red.Wait()
	if err != nil || len(out) == 0 {
		return err
	}
	return values.Copy(out[0], v)
}

// do runs an op by its Do on copies of its inputs: Gorgonia's YOLOv3 changes its input in place,
// and the input may be the user's memory.
func (f *Call) do(in []tensor.Buffer, out tensor.Buffer) error {
	args := make([]gorgonia.Value, len(in))
	for i, l := range f.in {
		own, err := values.New(in[i].DType(), in[i].Len())
		if err != nil {
			return fmt.Errorf("input %d: %w", i, err)
		}
		copy(own.Raw(), in[i].Raw())
		if args[i], err = values.Over(own, l.gdt, slices.Clone(l.shape), l.scalar); err != nil {
			return fmt.Errorf("input %d: %w", i, err)
		}
	}
	var v gorgonia.Value
	var err error
	if p := values.Try(func() { v, err = f.Op.Do(args...) }); p != nil {
		return p
	}
	if err != nil {
		return err
	}
	if v == nil {
		return fmt.Errorf("its Do returns %w", ErrNoValue)
	}
	return values.Copy(out, v)
}
