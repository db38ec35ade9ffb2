package optim

import (
	"fmt"
	"strings"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/ops"
)

// gradient is the flat memory of vg's gradient.
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

// isConstant reports whether the gradient that vg gave is a constant of the graph, as that of a in
// a+x is. The number belongs to gorgonia, which uses one for all graphs of a process: zeroing it
// would turn every 1 into a 0.
func isConstant(vg gorgonia.ValueGrad, grad gorgonia.Value) bool {
	n, isNode := vg.(*gorgonia.Node)
	if !isNode || n.Deriv() == nil {
		return false
	}
	op, isConst := n.Deriv().Op().(gorgonia.Valuer) // only gorgonia's two constant ops have a value
	if isConst {
		return op.Value() == grad
	}
	d, isDense := grad.(*gtensor.Dense)
	return isDense && d.IsManuallyManaged() && isReshaped(n.Deriv(), d)
}

// isReshaped reports whether grad lies in the memory of a constant that deriv is made of, as that
// of a in reshape(a) does for an a of shape (1): a scalar that gorgonia reshapes keeps its memory,
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

// label is vg's name with a space in front, or nothing: a node without a name prints as a nil
// operation.
func label(vg gorgonia.ValueGrad) string {
	if named, ok := vg.(gorgonia.Namer); ok && !missing(vg) {
		if name := named.Name(); !strings.HasPrefix(name, "%!") {
			return " " + name
		}
	}
	return ""
}

// ZeroGradients zeroes the gradient of every parameter of model, as Step does, without an update:
// for a step that is to be skipped after ErrNonFinite. All gradients are looked at before the first
// is zeroed. Errors: ErrNoGradient, ErrUnsupported, naming the parameter.
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
