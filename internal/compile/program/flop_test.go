package program

import (
	"fmt"
	"testing"
)

// The FLOP of each operation of Table. A new operation needs an entry here, and a case in flop if
// it multiplies matrices.
func TestProductsOfEveryOperationAreCounted(t *testing.T) {
	const attention = 2 * 2 * 2 * 2 * AttentionTile * AttentionTile * 32
	want := map[string]int64{
		"*program.MatMul":         2 * 2 * 3 * 4 * 5,
		"*program.Conv":           2 * (2 * 5 * 2 * 2) * (3 * 2 * 2), // outputs, times elements of a window
		"*program.ConvGradInput":  2 * (2 * 5 * 2 * 2) * (3 * 2 * 2),
		"*program.ConvGradFilter": 2 * (2 * 5 * 2 * 2) * (3 * 2 * 2),
		"*program.Attention":      attention,
		"*program.AttentionGrad":  2 * attention,
	}
	for _, name := range []string{
		"Map", "Reduce", "Integer", "Im2Col", "Col2Im", "MaxPool", "MaxPoolGrad", "AvgPool", "AvgPoolGrad", "Softmax", "SoftmaxGrad",
		"CrossEntropy", "SparseCrossEntropy", "Gather", "GatherGrad", "BatchNorm", "BatchNormGrad", "Collective", "Call",
	} {
		want["*program."+name] = 0
	}
	all := int64(0)
	p := &Program{}
	for _, e := range Table() {
		name := fmt.Sprintf("%T", e.Op)
		flop, ok := want[name]
		if !ok {
			t.Errorf("%s: does it multiply matrices? Add it here, and to flop", name)
		}
		one := e.Program()
		if got := FLOP(one); got != flop {
			t.Errorf("%s: %d FLOP, want %d", name, got, flop)
		}
		all += flop
		p.Steps = append(p.Steps, one.Steps...)
	}
	if got := FLOP(p); got != all {
		t.Errorf("all: %d FLOP, want %d", got, all)
	}
}
