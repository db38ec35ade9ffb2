package ops

import (
	"fmt"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// AllReduce is, on every rank of g, the reduction of all ranks' x.
//
// Shapes: any, scalars included; the result is like x. Collective: all ranks, same order; so is the
// gradient. Owns: the memory of a premulsum scalar (dist.PreMulSumAt) stays the caller's and is
// read whenever the graph runs, in the backward pass too. Errors: dist.ErrInvalid and its kinds.
// Prod, min and max cannot be differentiated: gorgonia.Grad through them is an error.
func AllReduce(g *dist.Group, x *gorgonia.Node, red dist.RedOp) (*gorgonia.Node, error) {
	return build(&collective{kind: dist.KindAllReduce, g: g, pre: red}, x)
}

// Reduce is AllReduce on root and zeros of the same shape elsewhere.
//
// Shapes, Collective, Errors: as AllReduce; dist.ErrRoot.
func Reduce(g *dist.Group, x *gorgonia.Node, red dist.RedOp, root int) (*gorgonia.Node, error) {
	return build(&collective{kind: dist.KindReduce, g: g, pre: red, peer: root}, x)
}

// Broadcast is root's x on every rank. The values of the other ranks' x are not used, and their
// gradient is zero.
//
// Shapes: any, scalars included; the same on all ranks. Collective: as AllReduce. Errors:
// dist.ErrInvalid, dist.ErrRoot.
func Broadcast(g *dist.Group, x *gorgonia.Node, root int) (*gorgonia.Node, error) {
	return build(&collective{kind: dist.KindBroadcast, g: g, peer: root}, x)
}

// AllGather is, on every rank, all ranks' x one after the other along axis 0, in rank order.
//
// Shapes: x (a, b, ...), the same on all ranks; the result (n*a, b, ...). Collective: as AllReduce.
// Errors: dist.ErrInvalid; dist.ErrCount for a scalar.
func AllGather(g *dist.Group, x *gorgonia.Node) (*gorgonia.Node, error) {
	return build(&collective{kind: dist.KindAllGather, g: g}, x)
}

// ReduceScatter is, on rank r, block r along axis 0 of the reduction of all ranks' x.
//
// Shapes: x (n*a, b, ...); the result (a, b, ...). Collective: as AllReduce. Errors: as AllReduce;
// dist.ErrCount when the ranks do not divide axis 0.
func ReduceScatter(g *dist.Group, x *gorgonia.Node, red dist.RedOp) (*gorgonia.Node, error) {
	return build(&collective{kind: dist.KindReduceScatter, g: g, pre: red}, x)
}

// AllToAll cuts x into n blocks along axis 0, sends block r to rank r, and is the blocks received,
// in rank order.
//
// Shapes: x (n*a, b, ...), and so is the result. Collective: as AllReduce. Errors: dist.ErrInvalid;
// dist.ErrCount when the ranks do not divide axis 0.
func AllToAll(g *dist.Group, x *gorgonia.Node) (*gorgonia.Node, error) {
	return build(&collective{kind: dist.KindAllToAll, g: g}, x)
}

// Gather is AllGather on root and zeros of the same shape elsewhere.
//
// Shapes, Collective, Errors: as AllGather; dist.ErrRoot.
func Gather(g *dist.Group, x *gorgonia.Node, root int) (*gorgonia.Node, error) {
	return build(&collective{kind: dist.KindGather, g: g, peer: root}, x)
}

// Scatter is, on rank r, block r along axis 0 of root's x. The values of the other ranks' x are not
// used, and their gradient is zero.
//
// Shapes: x (n*a, b, ...) on every rank; the result (a, b, ...). Collective: as AllReduce. Errors:
// dist.ErrInvalid, dist.ErrRoot; dist.ErrCount when the ranks do not divide axis 0.
func Scatter(g *dist.Group, x *gorgonia.Node, root int) (*gorgonia.Node, error) {
	return build(&collective{kind: dist.KindScatter, g: g, peer: root}, x)
}

// Send gives x to the matching Recv of peer, and is a token: the scalar 0. The gradient of x is
// what peer has for it, which arrives when the backward pass reaches the token. So add the token to
// the rank's cost, or use it as the cost on a rank that has none; the loss stays the same. What the
// cost multiplies the token with does not matter. An op made with the token as its input runs after
// the Send.
//
// Send returns when peer has taken x. In a ring, let every second rank receive first, or use
// AllToAll.
//
// Shapes: x of rank 1 or more; the token has x's dtype if that is floating point, else float64.
// Collective: with peer, in the order of the sends and receives between the two; the gradient is a
// Recv. Errors: dist.ErrInvalid; dist.ErrRank for a peer that is this rank or none; dist.ErrCount
// for a scalar.
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

// Recv is what the matching Send of peer gives: a tensor of the given dtype and shape. It runs
// after the node after, which is any node that a Barrier takes and whose value is not used: the
// token of a Send, say, or an input.
//
// The gradient goes back to peer only if after leads to a node that is passed to gorgonia.Grad,
// because Gorgonia differentiates nothing else: on a stage of a pipeline pass a parameter, or a
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

// Barrier is x, given when every rank has reached it. Its gradient is that of x, without a barrier.
//
// Shapes: any, scalars included; they may differ between ranks. Collective: all ranks, same order.
// Errors: dist.ErrInvalid.
func Barrier(g *dist.Group, x *gorgonia.Node) (*gorgonia.Node, error) {
	return build(&collective{kind: dist.KindBarrier, g: g}, x)
}
