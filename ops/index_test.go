package ops

import (
	"testing"

	"gorgonia.org/gorgonia"
)

// TestRenewIndexKnowsTheTable: RenewIndex does nothing where gorgonia's graph has no such field.
func TestRenewIndexKnowsTheTable(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewScalar(g, gorgonia.Float64, gorgonia.WithName("x"))
	gorgonia.Must(gorgonia.Log(x))
	at, ok := indexOf(g)
	if !ok || len(*at) == 0 {
		t.Fatalf("the table of a graph is %v, %t: gorgonia's ExprGraph has changed", at, ok)
	}
	RenewIndex(g)
	if len(*at) != 0 {
		t.Errorf("the table still has %v", *at)
	}
	RenewIndex(nil)
}
