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

// collective is one operation of a group as an op of a graph. All kinds share this type; they
// differ in the tables of issue and adjoint.
type collective struct {
	kind dist.Kind
	g    *dist.Group
	peer int        // the root, or the peer of Send and Recv
	pre  dist.RedOp // the reduction: weights before the sum
	post dist.RedOp // weights after the sum; Sum means none. Only adjoints have weights here
	in   form       // of the first child
	out  form       // of the result

	number int    // among the collectives of the graph
	tensor string // name of the tensor, for errors and traces
	node   *gorgonia.Node
	auto   string // the node's name when the user gave none
}

// Arity is 1. More children may be added for the order of execution; Do ignores their values.
func (c *collective) Arity() int { return 1 }

// Type returns a → the result's type. Each call returns a new value, because gorgonia recycles it
// after type inference.
func (c *collective) Type() hm.Type {
	return hm.NewFnType(hm.TypeVariable('a'), c.out.typ)
}

func (c *collective) InferShape(...gorgonia.DimSizer) (gtensor.Shape, error) {
	return c.out.shape.Clone(), nil
}

// Do runs the operation and waits for it. Extra inputs are ignored.
func (c *collective) Do(inputs ...gorgonia.Value) (gorgonia.Value, error) {
	return c.UsePreallocDo(nil, inputs...)
}

// UsePreallocDo is Do with the result in prealloc, if that fits and shares no memory with the
// input. The tape machine passes none, since CallsExtern is false; machines that plan their memory
// do. An error is final: the caller must not retry with Do.
func (c *collective) UsePreallocDo(prealloc gorgonia.Value, inputs ...gorgonia.Value) (gorgonia.Value, error) {
	if len(inputs) == 0 {
		return nil, fmt.Errorf("%v: %w: no input", c, dist.ErrInvalid)
	}
	return c.run(prealloc, inputs[0])
}

// ReturnsPtr is true: the result is memory that later ops may overwrite.
func (c *collective) ReturnsPtr() bool { return true }

// CallsExtern is false, although a backend may call foreign code. Under a batching BLAS the
// compiler flushes queued products only before an op that is not extern, and a collective reads its
// input at once.
func (c *collective) CallsExtern() bool { return false }

func (c *collective) OverwritesInput() int { return -1 }

// WriteHash writes the op's number, which no other collective of the graph has.
func (c *collective) WriteHash(h hash.Hash) {
	_, _ = fmt.Fprintf(h, "symgrad collective %d %v", c.number, c.kind)
}

func (c *collective) Hashcode() uint32 {
	h := fnv.New32a()
	c.WriteHash(h)
	return h.Sum32()
}

// String returns "allreduce sum", "gather to 0" or "recv from 2".
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

// apply adds c to the graph of x, as an operation on the tensor of that name.
func (c *collective) apply(x *gorgonia.Node, tensor string) (*gorgonia.Node, error) {
	c.number = numberIn(x.Graph())
	c.tensor = tensor
	n, err := gorgonia.ApplyOp(c, x)
	if err != nil {
		return nil, fmt.Errorf("%v of %q, rank %d/%d: %w", c, tensor, c.g.Rank(), c.g.Size(), err)
	}
	if n.Op() != c {
		return nil, fmt.Errorf("%v of %q, rank %d/%d: %w: gorgonia merges it with node %q, which has the same hash; rename an input",
			c, tensor, c.g.Rank(), c.g.Size(), dist.ErrInvalid, n.Name())
	}
	c.node, c.auto = n, n.Name()
	return n, nil
}

// numberIn returns one more than the highest number of a collective in g. It depends on the graph
// alone, so that equal graphs have equal hashes on all ranks.
func numberIn(g *gorgonia.ExprGraph) int {
	last := 0
	for _, n := range g.AllNodes() {
		if c, ok := n.Op().(*collective); ok {
			last = max(last, c.number)
		}
	}
	return last + 1
}

// label returns the tensor's name in errors and traces: the result's name if the user set one,
// otherwise the input's.
func (c *collective) label() string {
	if c.node != nil {
		if name := c.node.Name(); name != c.auto {
			return name
		}
	}
	return c.tensor
}

// run runs the operation on in, with the result in prealloc if possible. The group gets buffers,
// not tensor headers, because gorgonia transposes headers in place.
//
// Errors: those of the group; dist.ErrDevice for a group of GPUs, whose graphs package machine
// runs.
func (c *collective) run(prealloc, in gorgonia.Value) (gorgonia.Value, error) {
	if on := c.g.Device(); on != tensor.Host {
		return nil, fmt.Errorf("%v of %q, rank %d/%d: %w: the group is on %v, and this machine's values are in host memory: "+
			"run the graph with package machine", c, c.label(), c.g.Rank(), c.g.Size(), dist.ErrDevice, on)
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
	g := c.g.With(dist.Hints{Name: c.label()})
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
