package ops

import (
	"fmt"
	"strings"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// build checks c on x, infers the form of the result and adds the node to the graph.
func build(c *collective, x *gorgonia.Node) (*gorgonia.Node, error) {
	if err := c.check(x); err != nil {
		return nil, err
	}
	n := c.g.Size()
	c.out = c.in
	switch c.kind {
	case dist.KindAllGather, dist.KindGather:
		c.out = c.in.rows(n * c.in.shape[0])
	case dist.KindReduceScatter, dist.KindScatter:
		c.out = c.in.rows(c.in.shape[0] / n)
	}
	return c.apply(x, called(x))
}

// check sets c.in and checks everything that is known before the graph runs.
func (c *collective) check(x *gorgonia.Node) error {
	if c.g == nil || x == nil || x.Graph() == nil {
		return fmt.Errorf("%v: %w: no group, no node, or a node without a graph", c.kind, dist.ErrInvalid)
	}
	var err error
	if c.in, err = formOf(x); err != nil {
		return c.refuse(x, err)
	}
	if err = c.checkRank(); err == nil {
		err = c.checkDevice()
	}
	if err == nil {
		err = c.checkShape()
	}
	if err == nil {
		err = c.checkRed()
	}
	if err != nil {
		return c.refuse(x, err)
	}
	return nil
}

func (c *collective) checkRank() error {
	n := c.g.Size()
	switch {
	case !c.kind.Rooted() && !c.kind.PointToPoint():
	case c.kind.PointToPoint() && (c.peer < 0 || c.peer >= n):
		return fmt.Errorf("%w: peer %d is not in 0 to %d", dist.ErrRank, c.peer, n-1)
	case c.peer < 0 || c.peer >= n:
		return fmt.Errorf("%w: %d is not in 0 to %d", dist.ErrRoot, c.peer, n-1)
	case c.kind.PointToPoint() && c.peer == c.g.Rank():
		return fmt.Errorf("%w: peer %d is this rank", dist.ErrRank, c.peer)
	}
	return nil
}

// checkDevice rejects operations that no machine runs on a group of GPUs.
func (c *collective) checkDevice() error {
	on := c.g.Device()
	if on == tensor.Host || c.kind != dist.KindBarrier && !c.kind.PointToPoint() {
		return nil
	}
	return fmt.Errorf("%w: the group is on %v, and send, recv and barrier need a host group: "+
		"use a collective, or a host group", dist.ErrDevice, on)
}

// checkShape requires an axis 0 where the operation uses one, and a length that the ranks divide
// where it cuts the axis.
func (c *collective) checkShape() error {
	switch c.kind {
	case dist.KindAllReduce, dist.KindReduce, dist.KindBroadcast, dist.KindBarrier, dist.KindRecv:
		return nil
	}
	if c.in.scalar() {
		return fmt.Errorf("%w: a scalar has no axis 0; reshape it to (1)", dist.ErrCount)
	}
	n := c.g.Size()
	switch c.kind {
	case dist.KindReduceScatter, dist.KindScatter, dist.KindAllToAll:
		if rows := c.in.shape[0]; rows%n != 0 {
			return fmt.Errorf("%w: axis 0 has length %d, which %d ranks do not divide; pad it", dist.ErrCount, rows, n)
		}
	}
	return nil
}

func (c *collective) checkRed() error {
	if c.pre.Kind.Bitwise() {
		return fmt.Errorf("%w: a graph reduces numbers, not bits: %v is not supported", dist.ErrInvalid, c.pre)
	}
	if c.pre.Kind > dist.RedPreMulSum {
		return fmt.Errorf("%w: unknown reduction %v", dist.ErrInvalid, c.pre)
	}
	if c.pre.Kind != dist.RedPreMulSum {
		return nil
	}
	s := c.pre.Scalar
	switch {
	case s.DType != c.in.dt:
		return fmt.Errorf("%w: the premulsum scalar is %v", dist.ErrDType, s.DType)
	case s.At.IsZero():
	case s.At.Len() != 1:
		return fmt.Errorf("%w: the premulsum scalar has %d elements, not 1", dist.ErrCount, s.At.Len())
	case s.At.Device() != c.g.Device():
		return fmt.Errorf("%w: the premulsum scalar is on %v, and the group on %v", dist.ErrDevice, s.At.Device(), c.g.Device())
	}
	return nil
}

// refuse adds operation, input and rank to err: "scatter from 0 of "x" (Matrix float64, shape (5,
// 3)), rank 1/2: ...".
func (c *collective) refuse(x *gorgonia.Node, err error) error {
	return fmt.Errorf("%v of %q (%v, shape %v), rank %d/%d: %w", c, called(x), x.Type(), x.Shape(), c.g.Rank(), c.g.Size(), err)
}

// called returns the name of n, or "node" and its ID for an unnamed input. Gorgonia's name of an
// unnamed input starts with "%!", because it formats a nil op.
func called(n *gorgonia.Node) string {
	if name := n.Name(); !n.IsVar() || !strings.HasPrefix(name, "%!") {
		return name
	}
	return fmt.Sprintf("node %x", n.ID())
}
