package ops

import (
	"fmt"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// AllReduce returns a node with the reduction of all ranks' x, on every rank of g.
//
// Shapes: any, including scalars; the result has x's shape. Collective: all ranks, same order; so
// is the gradient. Owns: the memory of a premulsum scalar (dist.PreMulSumAt) stays the caller's;
// every run reads it, in the backward pass too. Errors: dist.ErrInvalid and its kinds. Prod, min
// and max have no gradient: gorgonia.Grad returns an error.
func AllReduce(g *dist.Group, x *gorgonia.Node, red dist.RedOp) (*gorgonia.Node, error) {
	return build(&collective{kind: dist.KindAllReduce, g: g, pre: red}, x)
}

// Reduce is AllReduce on root and zeros of the same shape elsewhere.
//
// Shapes, Collective, Errors: as AllReduce; dist.ErrRoot.
func Reduce(g *dist.Group, x *gorgonia.Node, red dist.RedOp, root int) (*gorgonia.Node, error) {
	return build(&collective{kind: dist.KindReduce, g: g, pre: red, peer: root}, x)
}

// Broadcast returns a node with root's x, on every rank. The values of the other ranks' x are not
// used, and their gradient is zero.
//
// Shapes: any, including scalars; equal on all ranks. Collective: as AllReduce. Errors:
// dist.ErrInvalid, dist.ErrRoot.
func Broadcast(g *dist.Group, x *gorgonia.Node, root int) (*gorgonia.Node, error) {
	return build(&collective{kind: dist.KindBroadcast, g: g, peer: root}, x)
}

// AllGather returns a node with all ranks' x, joined along axis 0 in rank order, on every rank.
//
// Shapes: x (a, b, ...), equal on all ranks; the result (n*a, b, ...). Collective: as AllReduce.
// Errors: dist.ErrInvalid; dist.ErrCount for a scalar.
func AllGather(g *dist.Group, x *gorgonia.Node) (*gorgonia.Node, error) {
	return build(&collective{kind: dist.KindAllGather, g: g}, x)
}

// ReduceScatter returns, on rank r, a node with block r along axis 0 of the reduction of all ranks'
// x.
//
// Shapes: x (n*a, b, ...); the result (a, b, ...). Collective: as AllReduce. Errors: as AllReduce;
// dist.ErrCount when the ranks do not divide axis 0.
func ReduceScatter(g *dist.Group, x *gorgonia.Node, red dist.RedOp) (*gorgonia.Node, error) {
	return build(&collective{kind: dist.KindReduceScatter, g: g, pre: red}, x)
}

// AllToAll cuts x into n blocks along axis 0 and sends block r to rank r. It returns a node with
// the blocks received, in rank order.
//
// Shapes: x (n*a, b, ...); the result has x's shape. Collective: as AllReduce. Errors:
// dist.ErrInvalid; dist.ErrCount when the ranks do not divide axis 0.
func AllToAll(g *dist.Group, x *gorgonia.Node) (*gorgonia.Node, error) {
	return build(&collective{kind: dist.KindAllToAll, g: g}, x)
}

// Gather is AllGather on root and zeros of the same shape elsewhere.
//
// Shapes, Collective, Errors: as AllGather; dist.ErrRoot.
func Gather(g *dist.Group, x *gorgonia.Node, root int) (*gorgonia.Node, error) {
	return build(&collective{kind: dist.KindGather, g: g, peer: root}, x)
}

// Scatter returns, on rank r, a node with block r along axis 0 of root's x. The values of the other
// ranks' x are not used, and their gradient is zero.
//
// Shapes: x (n*a, b, ...) on every rank; the result (a, b, ...). Collective: as AllReduce. Errors:
// dist.ErrInvalid, dist.ErrRoot; dist.ErrCount when the ranks do not divide axis 0.
func Scatter(g *dist.Group, x *gorgonia.Node, root int) (*gorgonia.Node, error) {
	return build(&collective{kind: dist.KindScatter, g: g, peer: root}, x)
}

// Send sends x to the matching Recv of peer, and returns a token: a node with the scalar 0. The
// gradient of x comes from peer when the backward pass reaches the token. So add the token to the
// rank's cost, with any factor, or use it as the cost on a rank that has none; the loss does not
// change. An op that takes the token as input runs after the Send.
//
// The node runs until peer has taken x. In a ring, let every second rank receive first, or use
// AllToAll.
//
// Shapes: x has at least one dimension; the token has x's dtype if that is floating point,
// otherwise float64. Collective: with peer, in the order of the sends and receives between the two;
// the gradient is a Recv. Errors: dist.ErrInvalid; dist.ErrRank for a peer that is this rank or
// outside the group; dist.ErrCount for a scalar.
func Send(g *dist.Group, x *gorgonia.Node, peer int) (*gorgonia.Node, error) {
	c := &collective{kind: dist.KindSend, g: g, peer: peer}
	if err := c.check(x); err != nil {
		return nil, err
	}
	token := gtensor.Float64
	if c.in.dt.IsFloat() {
		token = c.in.gdt
	}
	var err error
	if c.out, err = newForm(token); err != nil {
		return nil, c.refuse(x, err)
	}
	return c.apply(x, called(x))
}

// Recv returns a node with the tensor of the matching Send of peer, of the given dtype and shape.
// It runs after the node after, whose value is not used: the token of a Send, an input, or any
// other node that Barrier accepts.
//
// The gradient is sent to peer only if after depends on a node that is passed to gorgonia.Grad,
// because Gorgonia differentiates only such nodes. On a stage of a pipeline pass a parameter, or a
// scalar input made for this. The gradient of after itself is zero.
//
// Shapes: shape has at least one dimension; dtype and shape are those of the Send. Collective: as
// Send; the gradient is a Send. Errors: as Send; dist.ErrDType when after has elements that cannot
// be communicated.
func Recv(g *dist.Group, after *gorgonia.Node, peer int, dt gtensor.Dtype, shape ...int) (*gorgonia.Node, error) {
	c := &collective{kind: dist.KindRecv, g: g, peer: peer}
	if err := c.check(after); err != nil {
		return nil, err
	}
	if len(shape) == 0 {
		return nil, c.refuse(after, fmt.Errorf("%w: no shape; a scalar is received as shape (1)", dist.ErrCount))
	}
	var err error
	if c.out, err = newForm(dt, shape...); err != nil {
		return nil, c.refuse(after, err)
	}
	return c.apply(after, called(after))
}

// Barrier returns x when every rank has reached the node. Its gradient passes through without a
// barrier.
//
// Shapes: any, including scalars; they may differ between ranks. Collective: all ranks, same order.
// Errors: dist.ErrInvalid.
func Barrier(g *dist.Group, x *gorgonia.Node) (*gorgonia.Node, error) {
	return build(&collective{kind: dist.KindBarrier, g: g}, x)
}
