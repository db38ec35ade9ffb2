package ops

import (
	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Operation describes a collective of a graph, for machines that run graphs without calling Do.
type Operation struct {
	Group     *dist.Group
	Tensor    string // name of the tensor, for errors and traces
	Kind      dist.Kind
	Red       dist.RedOp // for Kinds that reduce; includes the weights before the sum
	After     dist.RedOp // weights after the sum; Sum means none
	Peer      int        // the root, or the peer of Send and Recv
	HasResult bool       // on this rank; if false, the result is zeros
}

// Describe returns the collective of a node. ok is false if n is no collective of this package.
func Describe(n *gorgonia.Node) (Operation, bool) {
	c, ok := n.Op().(*collective)
	if !ok {
		return Operation{}, false
	}
	return Operation{
		Group: c.g, Tensor: c.label(), Kind: c.kind, Red: c.pre, After: c.post, Peer: c.peer, HasResult: c.hasResult(),
	}, true
}

// Placed is a Reducer that has memory for its gradient, so that a machine that plans its memory can
// compute the gradient there.
type Placed interface {
	Reducer
	// Place returns the memory of the gradient in the next run, before and after the reduction.
	// gradient is the zero Buffer if the gradient must be passed to Start, because it is added to
	// earlier gradients. Both may differ in another run. Owns: the memory stays the Reducer's,
	// until it is closed.
	Place() (gradient, reduced tensor.Buffer)
	// Filled is Start for a gradient that is in its memory already.
	Filled() error
	// Reduced is Wait without the value: the reduced gradient is in its memory.
	Reduced() error
}

// Reducer returns the reducer that Bind set, or nil.
func (h *Hook) Reducer() Reducer { return h.red }

// Run calls Step.Begin.
func (b *Begin) Run() error { return b.overlap.step.Begin() }

// Run calls Step.Join.
func (j *Join) Run() error { return j.overlap.step.Join() }
