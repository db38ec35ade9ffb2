package ops

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Reducer takes the computed gradient of one parameter and returns it reduced over the ranks.
// Package ddp implements it with buckets. The goroutine that runs the graph calls each method once
// in every run, Start before Wait.
type Reducer interface {
	// Start takes the gradient. It copies the elements it needs: the machine may overwrite grad
	// when Start has returned.
	Start(grad gorgonia.Value) error
	// Wait returns the reduced gradient, in the parameter's shape, under a header that no other
	// value uses. It may alias the memory that Start copied to; it is read until the next run.
	Wait() (gorgonia.Value, error)
}

// Hook is the identity between a parameter and the nodes that use it. Its gradient passes through
// two nodes. A Start node passes the gradient to a Reducer as soon as it is computed. A Wait node
// returns the reduced gradient that solvers see.
//
//	Do:      y = w
//	SymDiff: dw = Wait(Start(dy, y, begin))
//
// The output is the parameter itself, not a copy, unless a node of the graph could overwrite it
// (see Overlap.Grad). A Hook belongs to the graph in which it was made.
type Hook struct {
	param  *gorgonia.Node
	node   *gorgonia.Node
	number int // among the hooks of the graph
	copies bool
	owner  *Overlap
	red    Reducer
	start  *gorgonia.Node // set by SymDiff
	wait   *gorgonia.Node
}

// ErrNotAttached is returned when a graph with a Hook is differentiated before the Hook is added to
// an Overlap, or run before it is bound.
var ErrNotAttached = errors.New("the hook is not attached")

// NewHook adds a hook of param to its graph. The nodes whose gradients are to be reduced must use
// Hook.Node instead of param.
//
// Errors: dist.ErrInvalid when param is nil, without a graph, not an input, or has a hook.
func NewHook(param *gorgonia.Node) (*Hook, error) {
	if param == nil || param.Graph() == nil {
		return nil, fmt.Errorf("hook: %w: no parameter, or one without a graph", dist.ErrInvalid)
	}
	if !param.IsVar() {
		return nil, fmt.Errorf("hook of %q: %w: the node is the result of %v, not a parameter", param.Name(), dist.ErrInvalid, param.Op())
	}
	if HookOf(param) != nil {
		return nil, fmt.Errorf("hook of %q: %w: the parameter has a hook already", param.Name(), dist.ErrInvalid)
	}
	h := &Hook{param: param, number: hooksIn(param.Graph()) + 1}
	n, err := applyUnique(h, param)
	if err != nil {
		return nil, err
	}
	h.node = n
	return h, nil
}

// hooksIn returns the highest number of a hook in g. It depends on the graph alone, so that equal
// graphs have equal hashes on all ranks.
func hooksIn(g *gorgonia.ExprGraph) int {
	last := 0
	for _, n := range g.AllNodes() {
		if h, ok := n.Op().(*Hook); ok {
			last = max(last, h.number)
		}
	}
	return last
}

// HookOf returns the hook of param in its graph, or nil.
func HookOf(param *gorgonia.Node) *Hook {
	if param == nil || param.Graph() == nil {
		return nil
	}
	for _, n := range param.Graph().AllNodes() {
		if h, ok := n.Op().(*Hook); ok && h.param == param {
			return h
		}
	}
	return nil
}

// applyUnique is gorgonia.ApplyOp for an op whose node must not be merged with another.
//
// Errors: gorgonia's; dist.ErrInvalid if a node of the graph has the same 32-bit hash.
func applyUnique(op gorgonia.Op, children ...*gorgonia.Node) (*gorgonia.Node, error) {
	n, err := gorgonia.ApplyOp(op, children...)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", op, err)
	}
	if n.Op() != op {
		return nil, fmt.Errorf("%v: %w: gorgonia merges it with node %q, which has the same hash; rename a parameter",
			op, dist.ErrInvalid, n.Name())
	}
	return n, nil
}

// Param returns the parameter.
func (h *Hook) Param() *gorgonia.Node { return h.param }

// Node returns the hook's own node, which other nodes use as the parameter.
func (h *Hook) Node() *gorgonia.Node { return h.node }

// Copies reports whether the hook's output is a copy of the parameter.
func (h *Hook) Copies() bool { return h.copies }

// Bind sets the hook's reducer, and replaces an earlier one.
func (h *Hook) Bind(r Reducer) { h.red = r }

// Do returns the parameter, or a copy of it. Extra inputs are ignored.
func (h *Hook) Do(inputs ...gorgonia.Value) (gorgonia.Value, error) {
	if len(inputs) == 0 {
		return nil, fmt.Errorf("%v: %w: no input", h, dist.ErrInvalid)
	}
	if !h.copies {
		return header(inputs[0]), nil
	}
	v, err := gorgonia.CloneValue(inputs[0])
	if err != nil {
		return nil, fmt.Errorf("%v: %w", h, err)
	}
	return v, nil
}

// header returns v with a header of its own, over the same memory. Two nodes must not share a
// header: gorgonia recycles the headers of values that it unbinds, and products transpose the
// headers of their operands while they run.
func header(v gorgonia.Value) gorgonia.Value {
	if d, ok := v.(*gtensor.Dense); ok {
		return d.ShallowClone()
	}
	return v
}

// DiffWRT is true for the parameter.
func (h *Hook) DiffWRT(inputs int) []bool {
	wrt := make([]bool, inputs)
	if inputs > 0 {
		wrt[0] = true
	}
	return wrt
}

// SymDiff adds the Start and the Wait node. The hook's output is an input of Start, which keeps it
// alive until then. Otherwise the machine could let an elementwise op of the backward pass
// overwrite it, and the parameter with it.
//
// Errors: ErrNotAttached.
func (h *Hook) SymDiff(_ gorgonia.Nodes, output, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	if h.owner == nil {
		return nil, fmt.Errorf("%v: %w: use ddp.Attach instead of gorgonia.Grad", h, ErrNotAttached)
	}
	var err error
	if h.start, err = applyUnique(&Start{hook: h}, grad, output, h.owner.begin); err != nil {
		return nil, err
	}
	if h.wait, err = applyUnique(&Wait{hook: h}, h.start); err != nil {
		return nil, err
	}
	return gorgonia.Nodes{h.wait}, nil
}

// Arity is 1.
func (h *Hook) Arity() int { return 1 }

// Type is a → a.
func (h *Hook) Type() hm.Type { return hm.NewFnType(hm.TypeVariable('a'), hm.TypeVariable('a')) }

// InferShape returns the parameter's shape.
func (h *Hook) InferShape(...gorgonia.DimSizer) (gtensor.Shape, error) { return h.param.Shape(), nil }

// ReturnsPtr is true.
func (h *Hook) ReturnsPtr() bool { return true }

// CallsExtern is false.
func (h *Hook) CallsExtern() bool { return false }

// OverwritesInput is -1: none.
func (h *Hook) OverwritesInput() int { return -1 }

// WriteHash writes the hook's name and number, which no other node of the graph has.
func (h *Hook) WriteHash(w hash.Hash) { _, _ = fmt.Fprintf(w, "symgrad %v %d", h, h.number) }

// Hashcode returns the hash of WriteHash.
func (h *Hook) Hashcode() uint32 { return hashOf(h) }

// String returns "hook w0".
func (h *Hook) String() string { return "hook " + h.param.Name() }

func hashOf(op gorgonia.Op) uint32 {
	h := fnv.New32a()
	op.WriteHash(h)
	return h.Sum32()
}

// Elements returns the elements of v in C order: v's own memory, or a copy if that is in another
// order.
//
// Errors: v is nil, or its elements are of a type that cannot be communicated.
func Elements(v gorgonia.Value) (tensor.Buffer, error) {
	if v == nil {
		return tensor.Buffer{}, fmt.Errorf("%w: no value", dist.ErrInvalid)
	}
	b, err := alias(v)
	if err == nil {
		return b, nil
	}
	d, ok := v.(*gtensor.Dense)
	if !ok {
		return tensor.Buffer{}, err
	}
	dt, err := tensor.FromGorgonia(d.Dtype())
	if err != nil {
		return tensor.Buffer{}, err
	}
	return compact(d, dt)
}
