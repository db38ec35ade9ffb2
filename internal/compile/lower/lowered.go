package lower

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
	"github.com/symgrad/symgrad/internal/compile/values"
	"github.com/symgrad/symgrad/tensor"
)

// Lowered is a program made from a graph, and the nodes that its Outside values belong to.
type Lowered struct {
	Program *program.Program
	Inputs  []Binding // dual values of parameters
	Outputs []Binding
	Duals   []Binding // gradients of parameters apart from their nodes
	States  []State
	Hooks   []*Hook
	Calls   []*Call // of Env.Calls
	Groups  []*dist.Group
	Marks   []Mark          // settings of ops that the program depends on
	Samples int             // in this rank's batch
	Drops   map[uintptr]int // number of each dropout and random node, by op

	Exchange *Exchange     // exchange of gradients by steps; nil with calls, or without exchange
	Fixed    []Fixed       // values whose memory is known
	Norm     program.ID    // norm of the gradients; None if no update measures it
	Skipped  program.ID    // number of skipped updates; None if none is skipped
	follow   []*program.ID // IDs outside the steps, to renumber when values are removed
}

// Binding is a node and the Outside value that is its memory.
type Binding struct {
	Node  *gorgonia.Node
	ID    program.ID
	Shape []int
	Param int    // index in Parts.Params for a gradient; else -1
	Given *[]int // shape that the op's own Do returns if the node has another; else nil

	Slot   bool // the value is a bucket of gradients or weights; elements start at offset
	Offset int
}

// State is memory of an op that lasts from step to step.
type State struct {
	ID program.ID
	At tensor.Buffer
}

// Fixed is an Outside value whose memory is known when the program is made.
type Fixed struct {
	ID program.ID
	At tensor.Buffer
}

// group returns the number of a group in the program. All collectives of a group share it, as a run
// is announced once to each number.
func (l *Lowered) group(g *dist.Group) int {
	if i := slices.Index(l.Groups, g); i >= 0 {
		return i
	}
	l.Groups = append(l.Groups, g)
	return len(l.Groups) - 1
}

// work has the parts of a lowering that its families of rules share.
type work struct {
	*draft.Builder
	out   *Lowered
	sizes *sizes
}

// newWork returns the parts for an empty program.
func newWork(name string) work {
	b := draft.New(name)
	return work{Builder: b, out: &Lowered{Program: b.Program, Drops: map[uintptr]int{}, Norm: program.None, Skipped: program.None}}
}

// outside returns a new Outside value with a fixed binding to b.
func (w *work) outside(name string, role program.Role, b tensor.Buffer, shape ...int) program.ID {
	id := w.Program.Add(program.Value{Name: name, DType: b.DType(), Shape: shape, Role: role, Place: program.Outside})
	w.out.Fixed = append(w.out.Fixed, Fixed{id, b})
	return id
}

// state returns the value of a tensor that an op keeps from step to step.
func (w *work) state(name string, t gtensor.Tensor) (draft.Operand, error) {
	d, ok := t.(*gtensor.Dense)
	if !ok {
		return draft.Operand{}, fmt.Errorf("%s: %T is not a dense tensor", name, t)
	}
	dt, err := values.DType(d.Dtype())
	if err != nil {
		return draft.Operand{}, fmt.Errorf("%s: %w", name, err)
	}
	at, err := values.Memory(d, dt)
	if err != nil {
		return draft.Operand{}, fmt.Errorf("%s: %w", name, err)
	}
	id := w.Program.Add(program.Value{
		Name: w.Label + " " + name, DType: dt, Shape: []int{at.Len()}, Role: program.State, Place: program.Outside,
	})
	w.out.States = append(w.out.States, State{id, at})
	return w.Whole(id), nil
}

// call adds a step that runs a host function.
func (w *work) call(f *Call, in, out []program.View) {
	w.out.Calls = append(w.out.Calls, f)
	w.Add(program.Step{Op: &program.Call{Func: len(w.out.Calls) - 1, Label: f.label, Copies: f.Op != nil || f.hook != nil}, In: in, Out: out})
}

// through adds a step with one result of the given shape.
func (w *work) through(op program.Op, in []draft.Operand, c *current, shape []int) (draft.Operand, error) {
	if c.f.err != nil {
		return draft.Operand{}, c.f.err
	}
	s := program.Step{Op: op}
	for _, o := range in {
		s.In = append(s.In, w.Stored(o).View)
	}
	to := w.Fresh(c.dtype, shape)
	s.Out = []program.View{to.View}
	w.Add(s)
	return to, nil
}

// Let sets v as the value of the output's node. A shape that differs from the node's is set
// afterwards, since gorgonia.UnsafeLet compares shapes.
func (b *Binding) Let(v gorgonia.Value) error {
	if err := gorgonia.UnsafeLet(b.Node, v); err != nil {
		return err
	}
	if d, ok := v.(*gtensor.Dense); ok && b.Given != nil {
		return d.Reshape(*b.Given...)
	}
	return nil
}
