package ops

import (
	"fmt"
	"hash"

	"github.com/chewxy/hm"
	"gonum.org/v1/gonum/graph"
	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// Begin marks the end of the forward pass: it is its input, the cost, and tells the Step.
type Begin struct {
	effect
	overlap *Overlap
}

// Start gives its first input, the gradient of a hook's output, to the hook's Reducer. Its value is
// that input, which nothing reads.
type Start struct {
	effect
	hook *Hook
}

// Wait is the reduced gradient of a hook's parameter. It ignores its inputs; they are there for the
// order.
type Wait struct {
	effect
	hook *Hook
}

// Join runs when all Starts have run, and tells the Step. Its value is that of a Start, which
// nothing reads.
type Join struct {
	effect
	overlap *Overlap
}

// Hook is the hook whose gradient is taken.
func (s *Start) Hook() *Hook { return s.hook }

// Hook is the hook whose gradient this is.
func (w *Wait) Hook() *Hook { return w.hook }

// Do calls Step.Begin.
func (b *Begin) Do(inputs ...gorgonia.Value) (gorgonia.Value, error) {
	return first(b, inputs, b.overlap.step.Begin)
}

// Do calls Step.Join.
func (j *Join) Do(inputs ...gorgonia.Value) (gorgonia.Value, error) {
	return first(j, inputs, j.overlap.step.Join)
}

// Do calls Reducer.Start.
func (s *Start) Do(inputs ...gorgonia.Value) (gorgonia.Value, error) {
	return first(s, inputs, func() error {
		if s.hook.red == nil {
			return fmt.Errorf("%v: %w", s, ErrNotAttached)
		}
		return s.hook.red.Start(inputs[0])
	})
}

// Do calls Reducer.Wait.
func (w *Wait) Do(...gorgonia.Value) (gorgonia.Value, error) {
	if w.hook.red == nil {
		return nil, fmt.Errorf("%v: %w", w, ErrNotAttached)
	}
	return w.hook.red.Wait()
}

// first calls fn and is the first of inputs, under a header of its own.
func first(op gorgonia.Op, inputs []gorgonia.Value, fn func() error) (gorgonia.Value, error) {
	if len(inputs) == 0 {
		return nil, fmt.Errorf("%v: %w: no input", op, dist.ErrInvalid)
	}
	if err := fn(); err != nil {
		return nil, err
	}
	return header(inputs[0]), nil
}

// String is "begin".
func (b *Begin) String() string { return "begin" }

// String is "start w0".
func (s *Start) String() string { return "start " + s.hook.param.Name() }

// String is "wait w0".
func (w *Wait) String() string { return "wait " + w.hook.param.Name() }

// String is "join".
func (j *Join) String() string { return "join" }

// Arity is 1, the cost.
func (b *Begin) Arity() int { return 1 }

// Arity is 3: gradient, hook and Begin.
func (s *Start) Arity() int { return 3 }

// Arity is 1, the Start; the Join is hung on later.
func (w *Wait) Arity() int { return 1 }

// Arity is 1, a Start; the others are hung on later.
func (j *Join) Arity() int { return 1 }

// Type is a → a.
func (b *Begin) Type() hm.Type { return hm.NewFnType(hm.TypeVariable('a'), hm.TypeVariable('a')) }

// Type is a → b → c → b: the gradient becomes the parameter's.
func (s *Start) Type() hm.Type {
	return hm.NewFnType(hm.TypeVariable('a'), hm.TypeVariable('b'), hm.TypeVariable('c'), hm.TypeVariable('b'))
}

// Type is a → a.
func (w *Wait) Type() hm.Type { return hm.NewFnType(hm.TypeVariable('a'), hm.TypeVariable('a')) }

// Type is a → a.
func (j *Join) Type() hm.Type { return hm.NewFnType(hm.TypeVariable('a'), hm.TypeVariable('a')) }

// InferShape is the cost's shape.
func (b *Begin) InferShape(...gorgonia.DimSizer) (gtensor.Shape, error) {
	return b.overlap.cost.Shape(), nil
}

// InferShape is the parameter's shape.
func (s *Start) InferShape(...gorgonia.DimSizer) (gtensor.Shape, error) {
	return s.hook.param.Shape(), nil
}

// InferShape is the parameter's shape.
func (w *Wait) InferShape(...gorgonia.DimSizer) (gtensor.Shape, error) {
	return w.hook.param.Shape(), nil
}

// InferShape is the first Start's shape.
func (j *Join) InferShape(inputs ...gorgonia.DimSizer) (gtensor.Shape, error) {
	if len(inputs) == 0 {
		return nil, fmt.Errorf("join: %w: no input", dist.ErrInvalid)
	}
	shape, ok := inputs[0].(gtensor.Shape)
	if !ok {
		return nil, fmt.Errorf("join: %w: %T is no shape", dist.ErrInvalid, inputs[0])
	}
	return shape.Clone(), nil
}

// WriteHash writes what sets this op apart; between the Begins of a graph that is the cost, its
// child.
func (b *Begin) WriteHash(h hash.Hash) { _, _ = fmt.Fprint(h, "symgrad begin") }

// WriteHash writes what sets this op apart from all others of its graph.
func (s *Start) WriteHash(h hash.Hash) { _, _ = fmt.Fprintf(h, "symgrad %v %d", s, s.hook.number) }

// WriteHash writes what sets this op apart from all others of its graph.
func (w *Wait) WriteHash(h hash.Hash) { _, _ = fmt.Fprintf(h, "symgrad %v %d", w, w.hook.number) }

// WriteHash writes what sets this op apart: the number of its first hook, which is in one Overlap
// only.
func (j *Join) WriteHash(h hash.Hash) {
	_, _ = fmt.Fprintf(h, "symgrad join %d", j.overlap.hooks[0].number)
}

// Hashcode is the hash of WriteHash.
func (b *Begin) Hashcode() uint32 { return hashOf(b) }

// Hashcode is the hash of WriteHash.
func (s *Start) Hashcode() uint32 { return hashOf(s) }

// Hashcode is the hash of WriteHash.
func (w *Wait) Hashcode() uint32 { return hashOf(w) }

// Hashcode is the hash of WriteHash.
func (j *Join) Hashcode() uint32 { return hashOf(j) }

// effect is what Begin, Start, Wait and Join have in common: they run for their effect, write into
// no input, and have no gradient of their own.
type effect struct{}

// ReturnsPtr is true.
func (effect) ReturnsPtr() bool { return true }

// CallsExtern is false: under a batching BLAS the compiler flushes queued products before an op
// only when that op is not extern, and a Start reads the gradient at once.
func (effect) CallsExtern() bool { return false }

// OverwritesInput is -1: none.
func (effect) OverwritesInput() int { return -1 }

// DiffWRT is false for every input.
func (effect) DiffWRT(inputs int) []bool { return make([]bool, inputs) }

// SymDiff is an error: there is no gradient of a gradient that other ranks had a part in.
func (effect) SymDiff(gorgonia.Nodes, *gorgonia.Node, *gorgonia.Node) (gorgonia.Nodes, error) {
	return nil, fmt.Errorf("gradient of a reduced gradient: %w", dist.ErrUnsupported)
}

// edge is a directed edge of a gorgonia graph, from parent to child.
type edge struct{ parent, child *gorgonia.Node }

// From is the parent.
func (e edge) From() graph.Node { return e.parent }

// To is the child.
func (e edge) To() graph.Node { return e.child }

// ReversedEdge is the edge from child to parent.
func (e edge) ReversedEdge() graph.Edge { return edge{e.child, e.parent} }
