package train

import (
	"fmt"

	"gorgonia.org/gorgonia"
)

// newVM is the machine that computes outputs. Compiled for them alone it leaves out what nobody reads, the gradient of the
// inputs among it: a matrix product.
//
// Owns: the caller closes it.
func newVM(outputs ...*gorgonia.Node) (gorgonia.VM, error) {
	g := outputs[0].Graph()
	prog, locations, err := gorgonia.CompileFunction(g, leaves(outputs), outputs)
	if err != nil {
		return nil, fmt.Errorf("compile: %w", err)
	}
	return gorgonia.NewTapeMachine(g, gorgonia.WithPrecompiled(prog, locations)), nil
}

// leaves is the inputs and parameters that nodes depend on, in the order in which they are found.
func leaves(nodes gorgonia.Nodes) gorgonia.Nodes {
	var found gorgonia.Nodes
	seen := map[int64]bool{}
	for left := append(gorgonia.Nodes(nil), nodes...); len(left) > 0; {
		n := left[len(left)-1]
		left = left[:len(left)-1]
		if seen[n.ID()] {
			continue
		}
		seen[n.ID()] = true
		if n.Op() == nil {
			found = append(found, n)
		}
		for it := n.Graph().From(n.ID()); it.Next(); {
			left = append(left, it.Node().(*gorgonia.Node))
		}
	}
	return found
}
