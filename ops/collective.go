package ops

import (
	"fmt"
	"hash"
	"hash/fnv"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// collective is one operation of a group as an op of a graph. All verbs share it; what differs
// between them is in the tables of issue and adjoint.
type collective struct {
	kind dist.Kind
	g    *dist.Group
	peer int        // root of a rooted kind, peer of Send and Recv
	pre  dist.RedOp // the reduction: weights before the sum
	post dist.RedOp // weights after it: Sum for none; only adjoints have others
	in   form       // of the first child
	out  form       // of the result

	number int    // among the collectives of the graph
	tensor string // what is communicated, for errors and traces
	node   *gorgonia.Node
	auto   string // the node's name when the user gave none
}

// Arity is 1. More children may be hung on for the order of execution; Do ignores their values.
func (c *collective) Arity() int { return 1 }

// Type is a → the result's type. It is a new value at every call, because gorgonia recycles it
// after type inference.
func (c *collective) Type() hm.Type {
	return hm.NewFnType(hm.TypeVariable('a'), c.out.typ)
}

// InferShape is the result's shape.
func (c *collective) InferShape(...gorgonia.DimSizer) (gtensor.Shape, error) {
	return c.out.shape.Clone(), nil
}

// Do runs the operation and waits for it. Extra inputs are ignored.
func (c *collective) Do(inputs ...gorgonia.Value) (gorgonia.Value, error) {
	return c.UsePreallocDo(nil, inputs...)
}

// UsePreallocDo is Do into prealloc, if that fits and does not share memory with the input. The
// tape machine has none to offer, since CallsExtern is false; machines that plan their memory have.
// An error is final: the operation must not be tried again by Do.
func (c *collective) UsePreallocDo(prealloc gorgonia.Value, inputs ...gorgonia.Value) (gorgonia.Value, error) {
	if len(inputs) == 0 {
		return nil, fmt.Errorf("%v: %w: no input", c, dist.ErrInvalid)
	}
	return c.run(prealloc, inputs[0])
}

// ReturnsPtr is true: the result is memory that later ops may overwrite.
func (c *collective) ReturnsPtr() bool { return true }

// CallsExtern is false, although a backend may call foreign code: under a batching BLAS the
// compiler flushes queued products before an op only when that op is not extern, and a collective
// reads its input at once.
func (c *collective) CallsExtern() bool { return false }

// OverwritesInput is -1: none.
func (c *collective) OverwritesInput() int { return -1 }

// WriteHash writes what sets this op apart from all others of its graph: its number among them.
func (c *collective) WriteHash(h hash.Hash) {
	_, _ = fmt.Fprintf(h, "symgrad collective %d %v", c.number, c.kind)
}

// Hashcode is the hash of WriteHash.
func (c *collective) Hashcode() uint32 {
	h := fnv.New32a()
	c.WriteHash(h)
	return h.Sum32()
}

// String is "allreduce sum", "gather to 0", "recv from 2".
func (c *collective) String() string {
	s := c.kind.String()
	switch {
	case c.kind.Reduces():
		s += " " + c.pre.String()
		if c.kind == dist.KindReduce {
			s += fmt.Sprintf(" to %d", c.peer)
		}
	case c.kind == dist.KindGather || c.kind == dist.KindSend:
		s += fmt.Sprintf(" to %d", c.peer)
	case c.kind == dist.KindBroadcast || c.kind == dist.KindScatter || c.kind == dist.KindRecv:
		s += fmt.Sprintf(" from %d", c.peer)
	}
	if c.post.Kind != dist.RedSum {
		s += " scaled"
	}
	return s
}

// apply adds c to the graph of x, as the operation on what is named tensor.
func (c *collective) apply(x *gorgonia.Node, tensor string) (*gorgonia.Node, error) {
	c.number = numberIn(x.Graph())
	c.tensor = tensor
	n, err := gorgonia.ApplyOp(c, x)
	if err != nil {
		return nil, fmt.Errorf("%v of %q, rank %d/%d: %w", c, tensor, c.g.Rank(), c.g.Size(), err)
	}
	if n.Op() != c {
		return nil, fmt.Errorf("%v of %q, rank %d/%d: %w: gorgonia takes it for node %q, which hashes alike; rename an input",
			c, tensor, c.g.Rank(), c.g.Size(), dist.ErrInvalid, n.Name())
	}
	c.node, c.auto = n, n.Name()
	return n, nil
}

// numberIn is one more than the highest number of a collective in g. It depends on the graph alone,
// so that equal graphs hash alike on all ranks.
func numberIn(g *gorgonia.ExprGraph) int {
	last := 0
	for _, n := range g.AllNodes() {
		if c, ok := n.Op().(*collective); ok {
			last = max(last, c.number)
		}
	}
	return last + 1
}

// label is the tensor's name in errors and traces: the result's if the user named it, else the
// input's.
func (c *collective) label() string {
	if c.node != nil {
		if name := c.node.Name(); name != c.auto {
			return name
		}
	}
	return c.tensor
}

// run does the operation on in, in prealloc if that can be. The group works on buffers, not on
// tensor headers: gorgonia transposes headers in place.
//
// Errors: those of the group; dist.ErrDevice for a group of GPUs, whose graphs package machine
// runs.
func (c *collective) run(prealloc, in gorgonia.Value) (gorgonia.Value, error) {
	if on := c.g.Device(); on != tensor.Host {
		return nil, fmt.Errorf("%v of %q, rank %d/%d: %w: the group is on %v, and the values that this machine has are in host memory: "+
			"run the graph by package machine", c, c.label(), c.g.Rank(), c.g.Size(), dist.ErrDevice, on)
	}
	src, err := c.in.read(in)
	if err != nil {
		return nil, fmt.Errorf("%v of %q, rank %d/%d: %w", c, c.label(), c.g.Rank(), c.g.Size(), err)
	}
	out, dst, err := c.out.place(prealloc, in)
	if err != nil {
		return nil, fmt.Errorf("%v of %q, rank %d/%d: %w", c, c.label(), c.g.Rank(), c.g.Size(), err)
	}
	w, err := c.issue(dst, src)
	if err != nil {
		return nil, err
	}
	if err := w.Wait(); err != nil {
		return nil, err
	}
	switch {
	case c.kind == dist.KindBarrier:
		copy(dst.Raw(), src.Raw())
	case !c.hasResult():
		clear(dst.Raw())
	}
	scale(dst, c.post, c.g.Size())
	return out, nil
}

// hasResult reports whether the operation writes to dst on this rank.
func (c *collective) hasResult() bool {
	switch c.kind {
	case dist.KindReduce, dist.KindGather:
		return c.g.Rank() == c.peer
	case dist.KindSend:
		return false
	}
	return true
}

// issue starts the operation.
func (c *collective) issue(dst, src tensor.Buffer) (dist.Work, error) {
	g := c.g.Named(c.label())
	switch c.kind {
	case dist.KindAllReduce:
		return g.AllReduce(dst, src, c.pre)
	case dist.KindReduce:
		return g.Reduce(dst, src, c.pre, c.peer)
	case dist.KindBroadcast:
		return g.Broadcast(dst, src, c.peer)
	case dist.KindAllGather:
		return g.AllGather(dst, src)
	case dist.KindReduceScatter:
		return g.ReduceScatter(dst, src, c.pre)
	case dist.KindAllToAll:
		return g.AllToAll(dst, src)
	case dist.KindGather:
		return g.Gather(dst, src, c.peer)
	case dist.KindScatter:
		return g.Scatter(dst, src, c.peer)
	case dist.KindSend:
		return g.Send(src, c.peer)
	case dist.KindRecv:
		return g.Recv(dst, c.peer)
	case dist.KindBarrier:
		return g.Barrier()
	}
	return dist.Work{}, fmt.Errorf("%v: %w", c.kind, dist.ErrUnsupported)
}
