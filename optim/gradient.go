package optim

import (
	"fmt"
	"strings"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/ops"
)

// gradient returns the flat memory of vg's gradient.
func gradient(vg gorgonia.ValueGrad) (flat, error) {
	if missing(vg) {
		return flat{}, fmt.Errorf("it is nil: %w", ErrNoGradient)
	}
	value, err := vg.Grad()
	if err != nil {
		return flat{}, fmt.Errorf("gradient: %w: call gorgonia.Grad with it before making the VM: %w", err, ErrNoGradient)
	}
	grad, err := flatten(value)
	if err != nil {
		return flat{}, fmt.Errorf("gradient: %w", err)
	}
	grad.constant = isConstant(vg, value)
	return grad, nil
}

// isConstant reports whether vg's gradient is a constant of the graph, like that of a in a+x. The
// number belongs to gorgonia, which shares it between all graphs of a process: zeroing it would
// turn every 1 into a 0.
func isConstant(vg gorgonia.ValueGrad, grad gorgonia.Value) bool {
	n, isNode := vg.(*gorgonia.Node)
	if !isNode || n.Deriv() == nil {
		return false
	}
	op, isConst := n.Deriv().Op().(gorgonia.Valuer) // only gorgonia's two constant ops are Valuers
	if isConst {
		return op.Value() == grad
	}
	d, isDense := grad.(*gtensor.Dense)
	return isDense && d.IsManuallyManaged() && isReshaped(n.Deriv(), d)
}

// isReshaped reports whether grad is in the memory of a constant below deriv. An example is the
// gradient of an a of shape (1) in reshape(a): a scalar that gorgonia reshapes keeps its memory,
// which is then not the tensor's own.
func isReshaped(deriv *gorgonia.Node, grad *gtensor.Dense) bool {
	for {
		children := ops.Children(deriv)
		if len(children) == 0 {
			return false
		}
		deriv = children[0]
		if op, isConst := deriv.Op().(gorgonia.Valuer); isConst {
			return op.Value().Uintptr() == grad.Uintptr()
		}
	}
}

// missing reports whether vg is nil or a nil node.
func missing(vg gorgonia.ValueGrad) bool {
	n, isNode := vg.(*gorgonia.Node)
	return vg == nil || isNode && n == nil
}

// label returns vg's name with a leading space, or "" without a name: such a node prints as a nil
// operation.
func label(vg gorgonia.ValueGrad) string {
	if named, ok := vg.(gorgonia.Namer); ok && !missing(vg) {
		if name := named.Name(); !strings.HasPrefix(name, "%!") {
			return " " + name
		}
	}
	return ""
}

// ZeroGradients zeroes the gradient of every parameter of model, as Step does, but updates nothing:
// for a step to skip after ErrNonFinite. It checks all gradients before it zeroes the first.
// Errors: ErrNoGradient, ErrUnsupported, naming the parameter.
func ZeroGradients(model []gorgonia.ValueGrad) error {
	grads := make([]flat, len(model))
	for i, vg := range model {
		grad, err := gradient(vg)
		if err != nil {
			return fmt.Errorf("zero gradients: parameter %d%s: %w", i, label(vg), err)
		}
		grads[i] = grad
	}
	for _, g := range grads {
		if !g.constant {
			clear(g.f32)
			clear(g.f64)
		}
	}
	return nil
}
