package ops

import (
	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Operation is what a collective of a graph does, for machines that run graphs without calling Do.
type Operation struct {
	Group     *dist.Group
	Tensor    string // what is communicated, for errors and traces
	Kind      dist.Kind
	Red       dist.RedOp // of Kinds that reduce: with weights before the sum
	After     dist.RedOp // weights that the result is multiplied by: Sum for none
	Peer      int        // root, or peer of a message
	HasResult bool       // on this rank: else the result is zeros
}

// Describe is what a node does, if it is a collective of this package.
func Describe(n *gorgonia.Node) (Operation, bool) {
	c, ok := n.Op().(*collective)
	if !ok {
		return Operation{}, false
	}
	return Operation{
		Group: c.g, Tensor: c.label(), Kind: c.kind, Red: c.pre, After: c.post, Peer: c.peer, HasResult: c.hasResult(),
	}, true
}

// Placed is a Reducer whose gradient has a place in memory, where a machine that plans its memory
// can compute it.
type Placed interface {
	Reducer
	// Place is where the gradient is in the run that comes next, before and after it has been
	// reduced. The first is the zero Buffer when the gradient must be given to Start, because it is
	// added to what is there. Both may be others for another run. Owns: the memory stays the
	// Reducer's, until it is closed.
	Place() (gradient, reduced tensor.Buffer)
	// Filled is Start for a gradient that is in its place.
	Filled() error
	// Reduced is Wait, without its value: that is in its place.
	Reduced() error
}

// Reducer is what Bind has been given, or nil.
func (h *Hook) Reducer() Reducer { return h.red }

// Run calls Step.Begin.
func (b *Begin) Run() error { return b.overlap.step.Begin() }

// Run calls Step.Join.
func (j *Join) Run() error { return j.overlap.step.Join() }
