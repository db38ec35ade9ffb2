package ddp

import (
	"fmt"
	"reflect"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Input is the value of an input node for RunPart: one row, along the first axis, for each sample.
type Input struct {
	Node  *gorgonia.Node
	Value gorgonia.Value // a *tensor.Dense of Gorgonia; may be nil for no rows
}

// letter is a machine whose inputs may have any number of rows, as *machine.Machine.
type letter interface {
	Let(n *gorgonia.Node, v gorgonia.Value) error
}

// partRun is a call of RunPart.
type partRun struct {
	d      *DDP
	vm     gorgonia.VM
	inputs []Input
}

func (x *partRun) run(rows int) error {
	d, vm, inputs := x.d, x.vm, x.inputs
	fixed, err := checkPart(vm, rows, inputs)
	if err != nil {
		return err
	}
	if rows == 0 {
		return x.runWithout()
	}
	if m, ok := vm.(letter); ok {
		for _, in := range inputs {
			if err := m.Let(in.Node, in.Value); err != nil {
				return err
			}
		}
		if err := d.SetWeight(float64(rows)); err != nil {
			return err
		}
		return vm.RunAll()
	}
	pieces := rows / gcd(rows, fixed)
	if pieces > 1 && (d.plan.staged() || d.cfg.VirtualRanks > 0 || d.rows.single != "") {
		return fmt.Errorf("%w: the graph has %d rows, and %s", dist.ErrUnsupported, fixed, x.whyWhole())
	}
	if err := d.SetWeight(float64(rows / pieces)); err != nil {
		return err
	}
	defer func() { d.batch.weight = float64(rows) }()
	for k := range pieces - 1 {
		if err := letPiece(inputs, k*fixed, fixed, rows); err != nil {
			return err
		}
		if err := d.NoSync(vm.RunAll); err != nil {
			return err
		}
		vm.Reset()
	}
	if err := letPiece(inputs, (pieces-1)*fixed, fixed, rows); err != nil {
		return err
	}
	return vm.RunAll()
}

// whyWhole explains why a part cannot be run in pieces.
func (x *partRun) whyWhole() string {
	d := x.d
	const remedy = ": use package machine, or DropLast of the sampler"
	switch {
	case d.plan.staged():
		return fmt.Sprintf("with Stage %d the ranks must have equal numbers of runs%s", d.cfg.Stage, remedy)
	case d.cfg.VirtualRanks > 0:
		return "with VirtualRanks each run is a rank" + remedy
	}
	return fmt.Sprintf("%s needs all rows in one run%s", d.rows.single, remedy)
}

// checkPart checks the arguments of RunPart. Returns: the rows of the graph's inputs, which only
// some machines can change.
func checkPart(vm gorgonia.VM, rows int, inputs []Input) (fixed int, err error) {
	switch {
	case vm == nil:
		return 0, fmt.Errorf("%w: no machine", dist.ErrInvalid)
	case rows < 0:
		return 0, fmt.Errorf("%w: a negative number of rows", dist.ErrInvalid)
	case len(inputs) == 0:
		return 0, fmt.Errorf("%w: no inputs", dist.ErrInvalid)
	}
	for i, in := range inputs {
		if in.Node == nil || in.Node.IsScalar() {
			return 0, fmt.Errorf("%w: input %d has no rows: give its node a first axis for them", dist.ErrInvalid, i)
		}
		if i == 0 {
			fixed = in.Node.Shape()[0]
		}
		if n := in.Node.Shape()[0]; n != fixed {
			return 0, fmt.Errorf("%w: input %q has %d rows in the graph, and %q has %d", dist.ErrInvalid,
				in.Node.Name(), n, inputs[0].Node.Name(), fixed)
		}
		if rows == 0 {
			continue
		}
		v, ok := in.Value.(*gtensor.Dense)
		if !ok {
			return 0, fmt.Errorf("%w: the value of input %q is a %T, want a *tensor.Dense", dist.ErrInvalid, in.Node.Name(), in.Value)
		}
		if v.Shape().IsScalar() || v.Shape()[0] != rows || !v.Shape()[1:].Eq(in.Node.Shape()[1:]) || v.Dtype() != in.Node.Dtype() {
			return 0, fmt.Errorf("%w: the value of input %q is %v %v, want %d rows of %v %v", dist.ErrInvalid, in.Node.Name(),
				v.Dtype(), v.Shape(), rows, in.Node.Dtype(), in.Node.Shape()[1:])
		}
		if !tensor.PackedDense(v) {
			return 0, fmt.Errorf("%w: the value of input %q is a view whose rows are not one after the other: clone it", dist.ErrInvalid, in.Node.Name())
		}
	}
	return fixed, nil
}

// runWithout takes part in a step without rows.
func (x *partRun) runWithout() error {
	for _, in := range x.inputs {
		if in.Node.Value() == nil {
			zeros := gtensor.New(gtensor.Of(in.Node.Dtype()), gtensor.WithShape(in.Node.Shape()...))
			if err := gorgonia.Let(in.Node, zeros); err != nil {
				return err
			}
		}
	}
	if err := x.d.SetWeight(0); err != nil {
		return err
	}
	return x.vm.RunAll()
}

// letPiece gives each input n rows of its value, from row first on, wrapping around at the end.
func letPiece(inputs []Input, first, n, rows int) error {
	for _, in := range inputs {
		v := in.Value
		if n != rows {
			v = piece(v.(*gtensor.Dense), first, n, rows) // checkPart has checked the type
		}
		if err := gorgonia.Let(in.Node, v); err != nil {
			return err
		}
	}
	return nil
}

func piece(v *gtensor.Dense, first, n, rows int) *gtensor.Dense {
	from := reflect.ValueOf(v.Data())
	shape := v.Shape().Clone()
	width := shape.TotalSize() / rows
	to := reflect.MakeSlice(from.Type(), n*width, n*width)
	for i := range n {
		at := (first + i) % rows * width
		reflect.Copy(to.Slice(i*width, (i+1)*width), from.Slice(at, at+width))
	}
	shape[0] = n
	return gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(to.Interface()))
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
