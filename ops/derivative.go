package ops

import (
	"fmt"
	"hash"
	"strings"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// derivative passes on the result of an op whose derivative is wrong or missing in gorgonia
// v0.9.18:
//
//	Do:      y = inputs[last]               // of the op
//	SymDiff: the gradients of the op's inputs, by rule
//
// Nodes that used the op's node use this node instead, so the gradient never reaches the op itself.
type derivative struct {
	of   *gorgonia.Node // the op's node
	rule derivativeRule
}

// derivativeRule makes the gradients of an op's inputs in, from the op's node y and the gradient g
// of y.
type derivativeRule struct {
	wrt  func(inputs int) []bool // nil: all
	grad func(in gorgonia.Nodes, y, g *gorgonia.Node) (gorgonia.Nodes, error)
}

// Grad is gorgonia.Grad with the derivatives corrected that are wrong or missing in gorgonia
// v0.9.18: see docs/reference/gorgonia-differences.md. It adds nodes to the graph. ddp.Attach
// differentiates in the same way.
//
// Returns: the gradients, in the order of wrt. Errors: gorgonia's; dist.ErrUnsupported, naming node
// and op, for an op without a derivative. Some gradients are right only in package machine; a tape
// machine that runs them returns an error with node and op.
func Grad(cost *gorgonia.Node, wrt ...*gorgonia.Node) (gorgonia.Nodes, error) {
	if cost == nil || cost.Graph() == nil {
		return nil, fmt.Errorf("gradient: %w: no cost, or one without a graph", dist.ErrInvalid)
	}
	cost, err := CorrectDerivatives(cost)
	if err != nil {
		return nil, err
	}
	if _, err := Differentiable(cost); err != nil {
		return nil, err
	}
	return grad(cost, wrt)
}

// CorrectDerivatives prepares the nodes below cost for gorgonia.Grad: it adds a node with the right
// derivative after each op whose derivative gorgonia has wrong. Call it before the graph is
// differentiated; Grad and ddp.Attach do. A second call changes nothing.
//
// Returns: the node to differentiate. It is cost, or the node added after cost if cost is itself
// the result of such an op.
func CorrectDerivatives(cost *gorgonia.Node) (*gorgonia.Node, error) {
	RenewIndex(cost.Graph())
	below := Below(cost)
	last := cost
	for _, n := range cost.Graph().AllNodes() { // in the order of ids, so that all ranks do the same
		rule, wrong := ruleFor(n)
		if !wrong || !below.Contains(n) || n.Deriv() != nil {
			continue
		}
		users := Users(n)
		d := derivativeOf(n, users)
		if d == nil {
			var err error
			d, err = applyUnique(&derivative{of: n, rule: rule}, append(Children(n), n)...)
			if err != nil {
				return nil, err
			}
		}
		if n == cost {
			last = d
		}
		for _, u := range users {
			if u != d && below.Contains(u) {
				replaceChild(u, n, d)
			}
		}
	}
	return last, nil
}

// derivativeOf returns the node that CorrectDerivatives added after n, or nil.
func derivativeOf(n *gorgonia.Node, users gorgonia.Nodes) *gorgonia.Node {
	for _, u := range users {
		if d, is := u.Op().(*derivative); is && d.of == n {
			return u
		}
	}
	return nil
}

// replaceChild makes u use d instead of n.
func replaceChild(u, n, d *gorgonia.Node) {
	children := Children(u)
	for i, c := range children {
		if c == n {
			children[i] = d
		}
	}
	Rewire(u, children)
}

// Differentiable returns the nodes that the gradient of cost reaches.
//
// Errors: dist.ErrUnsupported for a node in between that gorgonia.Grad cannot differentiate:
// gorgonia would panic.
func Differentiable(cost *gorgonia.Node) (gorgonia.NodeSet, error) {
	seen := gorgonia.NewNodeSet(cost)
	for open := (gorgonia.Nodes{cost}); len(open) > 0; {
		n := open[len(open)-1]
		open = open[:len(open)-1]
		children := Children(n)
		if len(children) == 0 {
			continue
		}
		op, ok := n.Op().(gorgonia.SDOp)
		if !ok {
			return nil, fmt.Errorf("node %q: %w: %T has no symbolic derivative",
				n.Name(), dist.ErrUnsupported, n.Op())
		}
		wrt := op.DiffWRT(len(children))
		if len(wrt) < len(children) {
			return nil, fmt.Errorf("node %q: %w: %T reports for only %d of its %d inputs "+
				"whether it is differentiable",
				n.Name(), dist.ErrUnsupported, n.Op(), len(wrt), len(children))
		}
		for i, c := range children {
			if wrt[i] && seen.Add(c) {
				open = append(open, c)
			}
		}
	}
	return seen, nil
}

// WrongDerivative reports whether gorgonia.Grad has differentiated n with a wrong expression, which
// no machine can correct. why is a clause for an error.
func WrongDerivative(n *gorgonia.Node) (why string, wrong bool) {
	if n.Deriv() == nil || !wrongExpression(n) {
		return "", false
	}
	return "gorgonia.Grad differentiates it wrongly; differentiate with ops.Grad, or ddp.Attach", true
}

// Identity returns the number of the input that a node added by CorrectDerivatives passes on, for
// machines that run graphs without calling Do. ok is false for other nodes.
func Identity(n *gorgonia.Node) (input int, ok bool) {
	switch o := n.Op().(type) {
	case *derivative:
		return o.Arity() - 1, true
	case *tapeGradient:
		return 0, true
	}
	return 0, false
}

// Arity is the number of the op's inputs plus one.
func (d *derivative) Arity() int { return len(Children(d.of)) + 1 }

// Type returns the types of the inputs unchanged.
func (d *derivative) Type() hm.Type {
	var types []hm.Type
	for _, c := range Children(d.of) {
		types = append(types, c.Type())
	}
	return hm.NewFnType(append(types, d.of.Type(), d.of.Type())...)
}

// InferShape returns the shape of the op's result.
func (d *derivative) InferShape(...gorgonia.DimSizer) (gtensor.Shape, error) {
	return d.of.Shape(), nil
}

// Do returns a copy of the last input, because a tape machine reuses that input's memory after its
// last use. The scalar of a CTCLoss is a tensor without axes, which other ops reject; its copy is a
// number.
func (d *derivative) Do(inputs ...gorgonia.Value) (gorgonia.Value, error) {
	if len(inputs) == 0 {
		return nil, fmt.Errorf("%v: %w: no input", d, dist.ErrInvalid)
	}
	v := inputs[len(inputs)-1]
	if t, ok := v.(gtensor.Tensor); ok && d.of.IsScalar() {
		return scalarOf(t)
	}
	return gorgonia.CloneValue(v)
}

// scalarOf returns the only element of t.
func scalarOf(t gtensor.Tensor) (gorgonia.Value, error) {
	switch e := t.Data().(type) {
	case float64:
		return gorgonia.NewF64(e), nil
	case float32:
		return gorgonia.NewF32(e), nil
	case []float64:
		return gorgonia.NewF64(e[0]), nil
	case []float32:
		return gorgonia.NewF32(e[0]), nil
	}
	return nil, fmt.Errorf("%w: elements of type %v", dist.ErrDType, t.Dtype())
}

func (*derivative) ReturnsPtr() bool { return true }

func (*derivative) CallsExtern() bool { return false }

func (*derivative) OverwritesInput() int { return -1 }

// WriteHash writes the ID of the op's node, which no other op of the graph writes.
func (d *derivative) WriteHash(h hash.Hash) {
	_, _ = fmt.Fprintf(h, "symgrad derivative %d", d.of.ID())
}

func (d *derivative) Hashcode() uint32 { return hashOf(d) }

// String returns "derivative of log2".
func (d *derivative) String() string {
	return "derivative of " + strings.ReplaceAll(d.of.Op().String(), "\n", " ")
}

// DiffWRT is the op's own for its inputs, and false for its result.
func (d *derivative) DiffWRT(inputs int) []bool {
	wrt := make([]bool, inputs)
	for i := range max(inputs-1, 0) {
		wrt[i] = true
	}
	if d.rule.wrt != nil {
		copy(wrt, d.rule.wrt(inputs-1))
		wrt[inputs-1] = false
	}
	return wrt
}

// SymDiff returns the gradients by the rule.
func (d *derivative) SymDiff(inputs gorgonia.Nodes, _, g *gorgonia.Node) (gorgonia.Nodes, error) {
	last := len(inputs) - 1
	before := gorgonia.NewNodeSet(d.of.Graph().AllNodes()...)
	grads, err := d.rule.grad(inputs[:last], inputs[last], g)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", d, err)
	}
	for _, n := range d.of.Graph().AllNodes() {
		if !before.Contains(n) {
			gorgonia.WithGroupName("gradients")(n) // as gorgonia calls the nodes that it makes (const.go:17)
		}
	}
	return append(grads[:last:last], nil), nil
}
