package lower

import (
	"fmt"
	"strings"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/compile/program/draft"
	"github.com/symgrad/symgrad/tensor"
)

// current is a node that is being lowered, with its inputs.
type current struct {
	n     *gorgonia.Node
	kids  gorgonia.Nodes
	in    []draft.Operand
	dtype tensor.DType
	f     *fields
}

// Called returns the node's name; an unnamed input gets `node` and its ID. Gorgonia would call it
// by a nil operation.
func Called(n *gorgonia.Node) string {
	if name := n.Name(); !n.IsVar() || !strings.HasPrefix(name, "%!") {
		return name
	}
	return fmt.Sprintf("node %x", n.ID())
}

// NameOf returns a readable name of a node: its name or expression. A gradient is named after its
// parameter.
func NameOf(n *gorgonia.Node) string {
	for _, of := range n.DerivOf() {
		if of.IsVar() {
			return "d " + Called(of)
		}
	}
	return strings.ReplaceAll(Called(n), "\n", " ")
}
