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

// Begin marks the end of the forward pass: it calls Step.Begin and passes on its input, the cost.
type Begin struct {
	effect
	overlap *Overlap
}

// Start passes its first input, the gradient of a hook's output, to the hook's Reducer. Its value
// is that input, which no node reads.
type Start struct {
	effect
	hook *Hook
}

// Wait returns the reduced gradient of a hook's parameter. It ignores its inputs, which only fix
// the order.
type Wait struct {
	effect
	hook *Hook
}

// Join runs when all Starts have run, and calls Step.Join. Its value is that of a Start, which no
// node reads.
type Join struct {
	effect
	overlap *Overlap
}

// Hook returns the hook whose gradient is passed on.
func (s *Start) Hook() *Hook { return s.hook }

// Hook returns the hook whose gradient is returned.
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

// first calls fn and returns the first of inputs, under a header of its own.
func first(op gorgonia.Op, inputs []gorgonia.Value, fn func() error) (gorgonia.Value, error) {
	if len(inputs) == 0 {
		return nil, fmt.Errorf("%v: %w: no input", op, dist.ErrInvalid)
	}
	if err := fn(); err != nil {
		return nil, err
	}
	return header(inputs[0]), nil
}

// String returns "begin".
func (b *Begin) String() string { return "begin" }

// String returns "start w0".
func (s *Start) String() string { return "start " + s.hook.param.Name() }

// String returns "wait w0".
func (w *Wait) String() string { return "wait " + w.hook.param.Name() }

// String returns "join".
func (j *Join) String() string { return "join" }

// Arity is 1, the cost.
func (b *Begin) Arity() int { return 1 }

// Arity is 3: gradient, hook and Begin.
func (s *Start) Arity() int { return 3 }

// Arity is 1, the Start; the Join is added later.
func (w *Wait) Arity() int { return 1 }

// Arity is 1, a Start; the others are added later.
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

// InferShape returns the cost's shape.
func (b *Begin) InferShape(...gorgonia.DimSizer) (gtensor.Shape, error) {
	return b.overlap.cost.Shape(), nil
}

// InferShape returns the parameter's shape.
func (s *Start) InferShape(...gorgonia.DimSizer) (gtensor.Shape, error) {
	return s.hook.param.Shape(), nil
}

// InferShape returns the parameter's shape.
func (w *Wait) InferShape(...gorgonia.DimSizer) (gtensor.Shape, error) {
	return w.hook.param.Shape(), nil
}

// InferShape returns the first Start's shape.
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

// WriteHash writes the op's name. The Begins of a graph differ by their child, the cost.
func (b *Begin) WriteHash(h hash.Hash) { _, _ = fmt.Fprint(h, "symgrad begin") }

// WriteHash writes the op's name and its hook's number, which no other node of the graph has.
func (s *Start) WriteHash(h hash.Hash) { _, _ = fmt.Fprintf(h, "symgrad %v %d", s, s.hook.number) }

// WriteHash writes the op's name and its hook's number, which no other node of the graph has.
func (w *Wait) WriteHash(h hash.Hash) { _, _ = fmt.Fprintf(h, "symgrad %v %d", w, w.hook.number) }

// WriteHash writes the number of the first hook, which is in one Overlap only.
func (j *Join) WriteHash(h hash.Hash) {
	_, _ = fmt.Fprintf(h, "symgrad join %d", j.overlap.hooks[0].number)
}

// Hashcode returns the hash of WriteHash.
func (b *Begin) Hashcode() uint32 { return hashOf(b) }

// Hashcode returns the hash of WriteHash.
func (s *Start) Hashcode() uint32 { return hashOf(s) }

// Hashcode returns the hash of WriteHash.
func (w *Wait) Hashcode() uint32 { return hashOf(w) }

// Hashcode returns the hash of WriteHash.
func (j *Join) Hashcode() uint32 { return hashOf(j) }

// effect has the methods that Begin, Start, Wait and Join share: they run for their effect,
// overwrite no input, and have no gradient.
type effect struct{}

func (effect) ReturnsPtr() bool { return true }

// CallsExtern is false: under a batching BLAS the compiler flushes queued products only before an
// op that is not extern, and a Start reads the gradient at once.
func (effect) CallsExtern() bool { return false }

func (effect) OverwritesInput() int { return -1 }

// DiffWRT is false for every input.
func (effect) DiffWRT(inputs int) []bool { return make([]bool, inputs) }

// SymDiff returns an error: a gradient of a reduced gradient is not supported.
func (effect) SymDiff(gorgonia.Nodes, *gorgonia.Node, *gorgonia.Node) (gorgonia.Nodes, error) {
	return nil, fmt.Errorf("gradient of a reduced gradient: %w", dist.ErrUnsupported)
}

// edge is a directed edge of a gorgonia graph, from parent to child.
type edge struct{ parent, child *gorgonia.Node }

// From returns the parent.
func (e edge) From() graph.Node { return e.parent }

// To returns the child.
func (e edge) To() graph.Node { return e.child }

// ReversedEdge returns the edge from child to parent.
func (e edge) ReversedEdge() graph.Edge { return edge{e.child, e.parent} }
