package machine

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/internal/program/draft"
	"github.com/symgrad/symgrad/internal/values"
	"github.com/symgrad/symgrad/tensor"
)

// lowered is a program made from a graph, and the nodes that its Outside values belong to.
type lowered struct {
	p       *program.Program
	inputs  []binding // dual values of parameters
	outputs []binding
	duals   []binding // gradients of parameters apart from their nodes
	states  []state
	hooks   []*hook
	calls   []*call // of Env.Calls
	groups  []*dist.Group
	marks   []mark          // settings of ops that the program depends on
	samples int             // in this rank's batch
	drops   map[uintptr]int // number of each dropout and random node, by op

	exchange *exchange     // exchange of gradients by steps; nil with calls, or without exchange
	fixed    []fixed       // values whose memory is known
	norm     program.ID    // norm of the gradients; None if no update measures it
	skipped  program.ID    // number of skipped updates; None if none is skipped
	follow   []*program.ID // IDs outside the steps, to renumber when values are removed
}

// binding is a node and the Outside value that is its memory.
type binding struct {
	node  *gorgonia.Node
	id    program.ID
	shape []int
	param int    // index in graph.params for a gradient; else -1
	given *[]int // shape that the op's own Do returns if the node has another; else nil

	slot   bool // the value is a bucket of gradients or weights; elements start at offset
	offset int
}

// state is memory of an op that lasts from step to step.
type state struct {
	id program.ID
	at tensor.Buffer
}

// fixed is an Outside value whose memory is known when the program is made.
type fixed struct {
	id program.ID
	at tensor.Buffer
}

// group returns the number of a group in the program. All collectives of a group share it, as a run
// is announced once to each number.
func (l *lowered) group(g *dist.Group) int {
	if i := slices.Index(l.groups, g); i >= 0 {
		return i
	}
	l.groups = append(l.groups, g)
	return len(l.groups) - 1
}

// work has the parts of a lowering that its families of rules share.
type work struct {
	*draft.Builder
	out   *lowered
	sizes *sizes
}

// newWork returns the parts for an empty program.
func newWork(name string) work {
	b := draft.New(name)
	return work{Builder: b, out: &lowered{p: b.Program, drops: map[uintptr]int{}, norm: program.None, skipped: program.None}}
}

// outside returns a new Outside value with a fixed binding to b.
func (w *work) outside(name string, role program.Role, b tensor.Buffer, shape ...int) program.ID {
	id := w.Program.Add(program.Value{Name: name, DType: b.DType(), Shape: shape, Role: role, Place: program.Outside})
	w.out.fixed = append(w.out.fixed, fixed{id, b})
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
	w.out.states = append(w.out.states, state{id, at})
	return w.Whole(id), nil
}

// call adds a step that runs a host function.
func (w *work) call(f *call, in, out []program.View) {
	w.out.calls = append(w.out.calls, f)
	w.Add(program.Step{Op: &program.Call{Func: len(w.out.calls) - 1, Label: f.label, Copies: f.op != nil}, In: in, Out: out})
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
