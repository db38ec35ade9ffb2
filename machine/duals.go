package machine

import (
	"fmt"
	"slices"

	gtensor "gorgonia.org/tensor"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/compile/lower"
	"github.com/symgrad/symgrad/internal/compile/values"
)

// makeDuals sets Dual of parameters whose gradient must be a value apart from the gradient node:
//
//   - all is set, or the program has set a gradient of its own.
//   - Another parameter has the same gradient node.
//   - The gradient is a constant. Solvers set gradients to 0, and the constant 1 is one node in all
//     graphs of a process.
//   - The value is a tensor without dimensions. Solvers expect its gradient to be one too, and
//     scalar nodes have numbers.
func makeDuals(g *lower.Parts, all bool) error {
	seen := gorgonia.NewNodeSet()
	for i := range g.Params {
		p := &g.Params[i]
		first := seen.Add(p.Grad)
		own, err := p.Node.Grad()
		has := err == nil && own != nil && own != p.Grad.Value()
		constant := lower.IsConstant(p.Grad) && p.Node.Value() != nil
		flat := p.Node.IsScalar() && isTensor(p.Node.Value())
		p.Dual = has || all || !first || constant || flat
		if !p.Dual || has {
			continue
		}
		if err := makeDual(p); err != nil {
			return fmt.Errorf("gradient of %q: %w", lower.Called(p.Node), err)
		}
	}
	return nil
}

func isTensor(v gorgonia.Value) bool {
	_, ok := v.(gtensor.Tensor)
	return ok
}

// makeDual gives a parameter a gradient value of its own, set to 0.
func makeDual(p *lower.Param) error {
	v := p.Node.Value()
	if v == nil {
		return fmt.Errorf("the parameter has %w; give it one with gorgonia.WithValue, WithInit or Let before New", ErrNoValue)
	}
	dt, err := values.DType(v.Dtype())
	if err != nil {
		return err
	}
	b, err := values.New(dt, max(v.Shape().TotalSize(), 1))
	if err != nil {
		return err
	}
	d, err := values.Over(b, v.Dtype(), slices.Clone([]int(v.Shape())), p.Node.IsScalar() && !isTensor(v))
	if err != nil {
		return err
	}
	return values.Try(func() { gorgonia.WithGrad(d)(p.Node) })
}

// shapesOf returns the shapes with which the graph's inputs were built.
func shapesOf(g *lower.Parts) map[*gorgonia.Node][]int {
	all := map[*gorgonia.Node][]int{}
	for _, n := range g.Nodes {
		if !n.IsVar() {
			continue
		}
		if shape, known := g.Built[n]; known {
			all[n] = shape
			continue
		}
		all[n] = nil
		if !n.IsScalar() {
			all[n] = slices.Clone([]int(n.Shape()))
		}
		g.Built[n] = all[n]
	}
	return all
}
