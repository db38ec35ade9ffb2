package machine_test

import (
	"slices"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/optim"
)

// TestFootprintSaysWhatIsNarrow compiles a perceptron for a GPU, which may be missing: with bf16
// and f16 the operands of large products are narrow, by name, and the stream of gradients is not.
func TestFootprintSaysWhatIsNarrow(t *testing.T) {
	for compute, dtype := range map[string]string{"": "", "tf32": "", "bf16": "bf16", "f16": "f16"} {
		n := newNet()
		const rows, width = 512, 512 // products of 2^27 multiplications
		n.x = n.input("x", rows, width)
		n.classify(n.affine("1", G.Must(G.Tanh(n.affine("0", n.x, width, width))), width, width), rows, width)
		f, err := machine.Foresee(n.g, machine.Config{Device: machine.CUDA, Compute: compute, Solver: &optim.Config{Name: optim.SGD}}, n.cost)
		if err != nil {
			t.Fatal(err)
		}
		p := f.Precision
		var narrow []string
		for _, r := range p.Narrow {
			narrow = append(narrow, r.Name)
			if r.DType != dtype || r.Bytes != 2*width*width {
				t.Errorf("%q: %+v", compute, r)
			}
		}
		at := slices.IndexFunc(p.Kinds, func(k machine.Kind) bool { return k.DType == dtype })
		if dtype == "" {
			if len(p.Kinds) != 1 || p.Kinds[0].DType != "f32" || narrow != nil || strings.Contains(p.String(), "rounded") {
				t.Errorf("%q: %v", compute, p)
			}
			continue
		}
		slices.Sort(narrow)
		if at < 0 || p.Kinds[at].Values < 4 || p.Kinds[at].Bytes < 4*2*rows*width || !slices.Equal(narrow, []string{"w0", "w1"}) {
			t.Errorf("%q: %v", compute, p)
		}
		if s := p.String(); !strings.Contains(s, `parameters rounded for products: "w0" `+dtype+" (524288 B)") || len(p.Largest) != 5 {
			t.Errorf("%q: %s", compute, s)
		}
	}
}

// TestExplainSaysWhatIsComputedAgain counts the repeated steps.
func TestExplainSaysWhatIsComputedAgain(t *testing.T) {
	for _, mode := range []machine.Recompute{machine.RecomputeNone, machine.RecomputeBlocks} {
		n := dropouts(16, 32, 16)
		cfg := recomputing(mode)
		cfg.Solver = &optim.Config{Name: optim.SGD}
		m := newMachine(t, n.g, cfg, n.cost)
		again := strings.Count(m.Explain(), " again\" |")
		if got := m.Footprint().Precision.Again; got != again || got > 0 != (mode == machine.RecomputeBlocks) ||
			strings.Contains(m.Explain(), "computed again in the backward pass") != (again > 0) {
			t.Errorf("%s: %d steps, %d in\n%s", mode, got, again, m.Explain())
		}
	}
}
