package ddp

import (
	"fmt"
	"hash"
	"hash/fnv"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// node is the common part of the ops of Stage 3. They compute nothing, and none writes into an
// input.
type node struct {
	name  string // unique in the graph
	shape gtensor.Shape
}

// ReturnsPtr returns true.
func (*node) ReturnsPtr() bool { return true }

// CallsExtern returns false.
func (*node) CallsExtern() bool { return false }

// OverwritesInput returns -1: none.
func (*node) OverwritesInput() int { return -1 }

// InferShape returns the fixed shape.
func (o *node) InferShape(...gorgonia.DimSizer) (gtensor.Shape, error) { return o.shape.Clone(), nil }

// WriteHash writes the name, which is unique in the graph.
func (o *node) WriteHash(h hash.Hash) { _, _ = fmt.Fprint(h, "symgrad "+o.name) }

// Hashcode returns the hash of WriteHash.
func (o *node) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

// String returns the name: "part w0".
func (o *node) String() string { return o.name }

// adopt is the identity of a shard of parameters, between its memory and its allgather. It takes
// over values that the parameters' nodes were given since the last run.
type adopt struct {
	node
	d      *DDP
	bucket int
}

// Arity returns 1.
func (*adopt) Arity() int { return 1 }

// Type returns a → a.
func (*adopt) Type() hm.Type { return hm.NewFnType(hm.TypeVariable('a'), hm.TypeVariable('a')) }

// Do returns the shard, under a new header.
func (o *adopt) Do(inputs ...gorgonia.Value) (gorgonia.Value, error) {
	if len(inputs) == 0 {
		return nil, fmt.Errorf("%v: %w: no input", o, dist.ErrInvalid)
	}
	if err := o.d.ready(); err != nil {
		return nil, fmt.Errorf("%v: %w", o, err)
	}
	for _, s := range o.d.buckets[o.bucket].slots {
		if err := s.adopt(); err != nil {
			return nil, o.d.stepError(err)
		}
	}
	return headerOf(inputs[0]), nil
}

// part is a parameter as its users read it: a part of a gathered bucket, in the parameter's shape.
// Its inputs are the parameter's hook, which gets the gradient, and the bucket, which is known once
// the graph has been differentiated.
type part struct {
	node
	hook   *ops.Hook
	offset int // of the first element in the bucket
}

// Arity returns 1; the bucket becomes an input later.
func (*part) Arity() int { return 1 }

// Type returns a → a.
func (*part) Type() hm.Type { return hm.NewFnType(hm.TypeVariable('a'), hm.TypeVariable('a')) }

// Do returns a view of the bucket; a copy if a node might write into it, as with hooks.
func (o *part) Do(inputs ...gorgonia.Value) (gorgonia.Value, error) {
	if len(inputs) < 2 {
		return nil, fmt.Errorf("%v: %w: it is not attached", o, dist.ErrInvalid)
	}
	all, err := ops.Elements(inputs[1])
	if err != nil {
		return nil, fmt.Errorf("%v: %w", o, err)
	}
	b, err := all.Slice(o.offset, o.offset+o.shape.TotalSize())
	if err != nil {
		return nil, fmt.Errorf("%v: %w", o, err)
	}
	if len(o.shape) == 0 {
		return number(b)
	}
	v, err := tensor.View(b, o.shape.Clone()...)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", o, err)
	}
	if o.hook.Copies() {
		return gorgonia.CloneValue(v)
	}
	return v, nil
}

// number returns the one element of b as a scalar.
func number(b tensor.Buffer) (gorgonia.Value, error) {
	if x, err := tensor.Data[float64](b); err == nil {
		return gorgonia.NewF64(x[0]), nil
	}
	x, err := tensor.Data[float32](b)
	if err != nil {
		return nil, err
	}
	return gorgonia.NewF32(x[0]), nil
}

// DiffWRT returns true for the hook.
func (*part) DiffWRT(inputs int) []bool {
	wrt := make([]bool, inputs)
	if inputs > 0 {
		wrt[0] = true
	}
	return wrt
}

// SymDiff returns the gradient, for the hook, through a hold that keeps output alive until then.
// Otherwise a tape machine may let output's last reader overwrite it, and with it memory that
// another node reads under another name.
func (o *part) SymDiff(inputs gorgonia.Nodes, output, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	n, err := applyOnce(&hold{node{"hold " + o.name, o.shape}}, grad, output)
	if err != nil {
		return nil, err
	}
	grads := make(gorgonia.Nodes, len(inputs))
	grads[0] = n
	return grads, nil
}

// hold returns its first input and keeps its second alive until then.
type hold struct{ node }

// Arity returns 2: gradient and part.
func (*hold) Arity() int { return 2 }

// Type returns a → b → b: the gradient becomes the parameter's.
func (*hold) Type() hm.Type {
	return hm.NewFnType(hm.TypeVariable('a'), hm.TypeVariable('b'), hm.TypeVariable('b'))
}

// Do returns the first input, under a new header.
func (o *hold) Do(inputs ...gorgonia.Value) (gorgonia.Value, error) {
	if len(inputs) == 0 {
		return nil, fmt.Errorf("%v: %w: no input", o, dist.ErrInvalid)
	}
	return headerOf(inputs[0]), nil
}

// headerOf returns v under a new header, over the same memory: two nodes must not share a header.
func headerOf(v gorgonia.Value) gorgonia.Value {
	if d, ok := v.(*gtensor.Dense); ok {
		return d.ShallowClone()
	}
	return v
}

// applyOnce is gorgonia.ApplyOp for an op that must stay a node of its own.
//
// Errors: gorgonia's; a node of the graph with the same 32-bit hash.
func applyOnce(op gorgonia.Op, children ...*gorgonia.Node) (*gorgonia.Node, error) {
	n, err := gorgonia.ApplyOp(op, children...)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", op, err)
	}
	if n.Op() != op {
		return nil, fmt.Errorf("%v: %w: gorgonia takes it for node %q, whose hash is equal; rename a parameter", op, dist.ErrInvalid, n.Name())
	}
	return n, nil
}

// Gathered locates a parameter in its gathered bucket: elements from Offset on of the second input
// of its node, in Shape.
type Gathered struct {
	Offset int
	Shape  []int // empty for a scalar
}

// PartOf describes a node that Stage 3 has added to a graph, for machines that run graphs without
// calling Do. isPart: it is the parameter g. same: it returns its first input. Neither: it is not
// of Stage 3.
func PartOf(n *gorgonia.Node) (g Gathered, isPart, same bool) {
	switch o := n.Op().(type) {
	case *part:
		return Gathered{o.offset, o.shape}, true, false
	case *adopt, *hold:
		return Gathered{}, false, true
	}
	return Gathered{}, false, false
}

// Sharded returns the learnables of a graph whose values are spread over all ranks, so that their
// nodes have no elements to read.
func Sharded(g *gorgonia.ExprGraph) gorgonia.NodeSet {
	all := gorgonia.NewNodeSet()
	for _, n := range g.AllNodes() {
		h, ok := n.Op().(*ops.Hook)
		if !ok {
			continue
		}
		if s, ok := h.Reducer().(*slot); ok && s.d.plan.gathers() {
			all.Add(h.Param())
		}
	}
	return all
}

// IsShard reports whether an input is a shard of parameters, and so not a part of the batch.
func IsShard(n *gorgonia.Node) bool {
	_, is := ShardOf(n)
	return is
}

// ShardOf returns the bucket, in the Plan, whose shard an input is: the one in Layout.Own. It
// returns false for other nodes.
func ShardOf(n *gorgonia.Node) (bucket int, ok bool) {
	if n.Op() != nil || n.Graph() == nil {
		return 0, false
	}
	for _, user := range ops.Users(n) {
		if o, is := user.Op().(*adopt); is {
			return o.bucket, true
		}
	}
	return 0, false
}
