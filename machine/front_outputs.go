package machine

import (
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/ops"
)

// output gives a node's value lasting memory. The step that computes it writes there if possible;
// otherwise it is copied.
func (l *lowering) output(n *gorgonia.Node) error {
	o, ok := l.values[n]
	if !ok {
		return nil
	}
	if w, isWait := n.Op().(*ops.Wait); isWait && (l.isSharded(w.Hook().Param()) || l.exchange != nil && (l.exchange.manner.local() || l.exchange.staged())) {
		return nil // a gradient without elements, or not reduced yet
	}
	b := binding{node: n, shape: slices.Clone(o.shape), param: -1}
	if i, ok := l.g.byGrad[n]; ok {
		b.param = i
	}
	role := program.Output
	if b.param < 0 && !l.resized {
		b.given = givenShape(n)
	}
	if b.param >= 0 {
		role = program.Gradient
	}
	switch {
	case l.isSlot(o):
		b.id, b.slot, b.offset = o.view.Value, true, o.view.Offset
	case l.isReduced(o):
		b.id = o.view.Value
	case l.claimable(o):
		b.id = o.view.Value
		v := &l.p.Values[b.id]
		v.Place, v.Role = program.Outside, role
	default:
		b.id = l.p.Add(program.Value{
			Name: l.label, DType: o.dtype, Shape: slices.Clone(o.shape), Role: role, Place: program.Outside,
		})
		l.copyTo(l.whole(b.id), o)
	}
	l.outputs = append(l.outputs, b)
	return nil
}

// givenShape returns the shape that an op's own Do gives to a value of one element, if the node's
// shape differs: (1) instead of a number, or a number instead of a slice of one element. It is nil
// for other nodes.
func givenShape(n *gorgonia.Node) *[]int {
	switch name := typeName(n.Op()); {
	case n.IsScalar() && (name == "gorgonia.tensordotOp" || name == "*gorgonia.dtConvOp"):
		return &[]int{1}
	case !n.IsScalar() && n.Shape().TotalSize() == 1 && name == "*gorgonia.sliceOp":
		return &[]int{}
	}
	return nil
}

// let sets v as the value of the output's node. A shape that differs from the node's is set
// afterwards, since gorgonia.UnsafeLet compares shapes.
func (b *binding) let(v gorgonia.Value) error {
	if err := gorgonia.UnsafeLet(b.node, v); err != nil {
		return err
	}
	if d, ok := v.(*gtensor.Dense); ok && b.given != nil {
		return d.Reshape(*b.given...)
	}
	return nil
}

// claimable reports whether an operand is all of a temporary value, so that the value can be the
// output's memory.
func (l *lowering) claimable(o operand) bool {
	if !l.isWhole(o) {
		return false
	}
	v := &l.p.Values[o.view.Value]
	return v.Place == program.Arena && v.Role == program.Temp
}

// isWhole reports whether an operand is all of a value, in C order.
func (l *lowering) isWhole(o operand) bool {
	return !o.isNum && o.view.Offset == 0 && l.p.Values[o.view.Value].Len() == o.len() &&
		slices.Equal(o.view.Strides, program.Contiguous(o.shape))
}

// dual stores a gradient in the parameter's Grad, apart from the gradient node. With DualValues it
// accumulates there.
func (l *lowering) dual(i int) error {
	p := l.g.params[i]
	o, ok := l.values[p.grad]
	if !ok || !p.dual || l.isSharded(p.node) || l.exchange.staged() {
		return nil
	}
	l.label = "d " + called(p.node)
	b := binding{node: p.node, shape: l.shapeOf(p.node), param: i}
	b.id = l.p.Add(program.Value{
		Name: l.label, DType: o.dtype, Shape: slices.Clone(b.shape), Role: program.Gradient, Place: program.Outside,
	})
	l.duals = append(l.duals, b)
	to := l.whole(b.id)
	m := l.newCode(b.shape)
	r := m.load(o)
	if l.cfg.DualValues {
		r = m.do(program.Add, m.load(to), r)
	}
	if m.err != nil {
		return m.err
	}
	l.add(m.mapTo(r, to))
	return nil
}

// isReduced reports whether an operand is the result of a Wait node, in the reducer's memory.
func (l *lowering) isReduced(o operand) bool {
	return l.isWhole(o) && slices.ContainsFunc(l.hooks, func(h *hook) bool { return h.reduced == o.view.Value })
}

// withGradients returns outputs and the gradients that must be computed with them. With
// Config.Solver these are all. Otherwise, unless the graph is run for its results, they are those
// that ddp.Attach exchanges, since an optimizer reads them after each run.
func withGradients(g *gorgonia.ExprGraph, cfg *Config, outputs gorgonia.Nodes) gorgonia.Nodes {
	if len(outputs) == 0 {
		return outputs
	}
	all := slices.Clone(outputs)
	seen := gorgonia.NewNodeSet(outputs...)
	here := gorgonia.NewNodeSet(g.AllNodes()...)
	for _, n := range g.AllNodes() {
		d := n.Deriv()
		if d == nil || !n.IsVar() || !here.Contains(d) && !isConstant(d) {
			continue
		}
		_, exchanged := d.Op().(*ops.Wait)
		if (cfg.Solver != nil || exchanged && !cfg.Eval) && seen.Add(d) {
			all = append(all, d)
		}
	}
	return all
}
