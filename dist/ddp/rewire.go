package ddp

import (
	"fmt"
	"strings"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// Param returns w's hook node, for use instead of w while the model is built. It is optional:
// Attach finds the users of w by itself, also those that Param was not used for, and names a node
// for which it cannot.
//
//	h, err := ddp.Param(w)
//	y, err := gorgonia.Mul(x, h)
//	d, err := ddp.Attach(world, cost, gorgonia.Nodes{w}, ddp.Config{}) // w, not h
//
// Errors: dist.ErrInvalid when w is no parameter.
func Param(w *gorgonia.Node) (*gorgonia.Node, error) {
	h := ops.HookOf(w)
	if h == nil {
		var err error
		if h, err = ops.NewHook(w); err != nil {
			return nil, fmt.Errorf("ddp: %w", err)
		}
	}
	return h.Node(), nil
}

// tryBuild is build with panics as errors: an op may panic on an unexpected graph, and the other
// ranks must get the error.
func (b *builder) tryBuild(learnables gorgonia.Nodes) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: an op of the graph panics: %v", dist.ErrInvalid, p)
		}
	}()
	return b.build(learnables)
}

// modelOf returns the nodes that cost is computed from, and the node to differentiate, which has
// cost's value. It corrects wrong derivatives of gorgonia.
func modelOf(cost *gorgonia.Node) (gorgonia.NodeSet, *gorgonia.Node, error) {
	if err := checkFresh(cost.Graph(), ops.Below(cost)); err != nil {
		return nil, nil, err
	}
	cost, err := ops.CorrectDerivatives(cost)
	if err != nil {
		return nil, nil, err
	}
	return ops.Below(cost), cost, nil
}

// checkFresh rejects a graph that gorgonia.Grad has differentiated: Grad would reuse the existing
// gradients, which no hook sees.
func checkFresh(g *gorgonia.ExprGraph, model gorgonia.NodeSet) error {
	for _, n := range g.AllNodes() {
		if model.Contains(n) && n.Deriv() != nil {
			return fmt.Errorf("node %q: %w: the graph has been differentiated; call Attach instead of gorgonia.Grad, or build the graph anew",
				n.Name(), dist.ErrInvalid)
		}
	}
	return nil
}

// giveName names a nameless input after its place. Gorgonia prints the same text, a nil operation,
// for all of them. The node keeps its hash, so the graph is unchanged.
func giveName(w *gorgonia.Node, place int) {
	if w != nil && w.IsVar() && strings.HasPrefix(w.Name(), "%!") {
		gorgonia.WithName(fmt.Sprintf("learnable %d", place))(w)
	}
}

// checkLearnables rejects nodes that cannot be parameters of cost's graph; valued requires values.
func checkLearnables(cost *gorgonia.Node, learnables gorgonia.Nodes, valued bool) error {
	index := make(map[*gorgonia.Node]int, len(learnables))
	for i, w := range learnables {
		giveName(w, i)
		switch {
		case w == nil:
			return fmt.Errorf("learnable %d: %w: it is nil", i, dist.ErrInvalid)
		case w.Graph() != cost.Graph():
			return fmt.Errorf("learnable %d, %q: %w: it is not in the graph of the cost", i, w.Name(), dist.ErrInvalid)
		case !w.IsVar():
			return fmt.Errorf("learnable %d, %q: %w: it is the result of %v, not a parameter", i, w.Name(), dist.ErrInvalid, w.Op())
		case w == cost:
			return fmt.Errorf("learnable %d, %q: %w: it is the cost", i, w.Name(), dist.ErrInvalid)
		case valued && w.Value() == nil:
			return fmt.Errorf("learnable %d, %q: %w: it has no value; give it one with gorgonia.WithValue, WithInit or Let before Attach",
				i, w.Name(), dist.ErrInvalid)
		}
		if dt := w.Dtype(); dt != gtensor.Float32 && dt != gtensor.Float64 {
			return fmt.Errorf("learnable %d, %q: %w: it is %v, want float32 or float64", i, w.Name(), dist.ErrDType, dt)
		}
		if valued {
			if _, err := valueMemory(w.Value()); err != nil {
				return fmt.Errorf("learnable %d, %q: %w", i, w.Name(), err)
			}
		}
		if j, ok := index[w]; ok {
			return fmt.Errorf("learnables %d and %d: %w: both are node %q; gorgonia makes inputs of one name, type and shape one node, so give each a name of its own",
				j, i, dist.ErrInvalid, w.Name())
		}
		index[w] = i
	}
	return nil
}

// checkApart rejects learnables whose values share memory: each would get its own memory and be
// trained separately.
func (b *builder) checkApart(learnables gorgonia.Nodes) error {
	d := b.d
	if d.imagined || !d.plan.sharded() && !d.team.onGPU() {
		return nil
	}
	values := make([]tensor.Buffer, len(learnables))
	for i, w := range learnables {
		var err error
		if values[i], err = valueMemory(w.Value()); err != nil {
			return fmt.Errorf("learnable %d, %q: %w", i, w.Name(), err)
		}
		for j, v := range values[:i] {
			if tensor.Overlap(v, values[i]) {
				return fmt.Errorf("learnables %d and %d, %q and %q: %w: their values share memory, which sharding and GPUs cannot keep; use one node in both places",
					j, i, learnables[j].Name(), w.Name(), dist.ErrAlias)
			}
		}
	}
	return nil
}

// hook puts a hook between each parameter and the nodes of the model that use it.
func hook(g *gorgonia.ExprGraph, model gorgonia.NodeSet, params gorgonia.Nodes) ([]*ops.Hook, error) {
	users := make(map[*gorgonia.Node]gorgonia.Nodes, len(params))
	for _, w := range params {
		users[w] = nil
	}
	for _, n := range g.AllNodes() { // in the order of ids, the same on all ranks
		if _, isHook := n.Op().(*ops.Hook); isHook || !model.Contains(n) {
			continue
		}
		seen := gorgonia.NewNodeSet()
		for _, c := range ops.Children(n) {
			if _, ok := users[c]; ok && seen.Add(c) {
				users[c] = append(users[c], n)
			}
		}
	}
	hooks := make([]*ops.Hook, len(params))
	for i, w := range params {
		if hooks[i] = ops.HookOf(w); hooks[i] == nil {
			h, err := ops.NewHook(w)
			if err != nil {
				return nil, err
			}
			hooks[i] = h
		}
		for _, n := range users[w] {
			if err := replace(n, w, hooks[i].Node()); err != nil {
				return nil, err
			}
		}
	}
	return hooks, nil
}

// replace replaces w by h among the children of n.
//
// Errors: dist.ErrUnsupported when gorgonia does not take the change.
func replace(n, w, h *gorgonia.Node) error {
	children := ops.Children(n)
	for i, c := range children {
		if c == w {
			children[i] = h
		}
	}
	ops.Rewire(n, children)
	if now := ops.Children(n); now.Contains(w) || !now.Contains(h) {
		return fmt.Errorf("node %q: %w: its inputs cannot be replaced; build it with ddp.Param(%s) instead of the parameter",
			n.Name(), dist.ErrUnsupported, w.Name())
	}
	return nil
}

// operations lists the program's nodes in the order in which they run, one a line. It omits shapes:
// lengths of batches may differ between ranks, and the parameters' shapes are compared separately.
func operations(g *gorgonia.ExprGraph, program gorgonia.NodeSet) ([]string, error) {
	sorted, err := ops.Sort(g)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, n := range sorted {
		if program.Contains(n) {
			lines = append(lines, fmt.Sprintf("node %d: %s", len(lines), kind(n)))
		}
	}
	return lines, nil
}

// kind describes a node's operation without shapes, and so without gorgonia's names that contain
// them.
func kind(n *gorgonia.Node) string {
	switch op := n.Op().(type) {
	case nil:
		return fmt.Sprintf("input %s %v", n.Name(), n.Dtype())
	case *ops.Hook, *ops.Begin, *ops.Start, *ops.Wait, *ops.Join:
		return fmt.Sprint(op)
	}
	if b, ok := ops.DescribeBatchNorm(n); ok {
		c := b.Layer.Config()
		return fmt.Sprintf("batch norm %v, momentum %v, epsilon %v, sum of costs %t", b.Part, c.Momentum, c.Epsilon, c.SumOfCosts)
	}
	name := fmt.Sprintf("%T", n.Op())
	switch name {
	case "gorgonia.elemBinOp", "gorgonia.elemUnaryOp", "gorgonia.linAlgBinOp":
		return name + " " + n.Op().String()
	}
	return name
}
