package cudagen

import (
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// guardCases are Maps that keep their memory if a number is not 0, large and small, of all dtypes,
// for 0, NaN and others.
func guardCases() *builder {
	b := newBuilder("guards")
	code := []program.Instr{load(0), load(1), constant64(0), apply(program.Select, 0, 1, 2)}
	for _, dt := range floats {
		for _, flag := range []float64{0, 1, -0.5} {
			for _, n := range []int{3, 1000, 1 << 20} {
				x := b.whole(dt, bounds{-3, 3}, n)
				yes := program.View{Value: b.value(tensor.F32, bounds{flag, flag}), Strides: []int{0}}
				b.step(&program.Map{Space: []int{n}, Code: code, Stores: []int{3}}, views(yes, x), views(x))
			}
		}
	}
	return b
}

// TestGuardsEndBeforeTheyLoad expects the early return in in-place Maps only.
func TestGuardsEndBeforeTheyLoad(t *testing.T) {
	code := []program.Instr{load(0), load(1), constant64(0), apply(program.Select, 0, 1, 2)}
	for name, c := range map[string]struct {
		inPlace bool
		flag    []int
		want    bool
	}{
		"in place":          {true, []int{0}, true},
		"elsewhere":         {false, []int{0}, false},
		"flags of elements": {true, []int{1}, false},
	} {
		b := newBare(name)
		x := b.whole(tensor.F32, bounds{-1, 1}, 1<<20)
		out := x
		if !c.inPlace {
			out = b.empty(tensor.F32, 1<<20)
		}
		size := []int{1 << 20}[:c.flag[0]]
		flag := program.View{Value: b.value(tensor.F32, bounds{0, 1}, size...), Strides: c.flag}
		b.step(&program.Map{Space: []int{1 << 20}, Code: code, Stores: []int{3}}, views(flag, x), views(out))
		text, _, err := Generate(b.p, b.target())
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(text, "if (r0 != 0) return;"); got != c.want {
			t.Errorf("%s: a way out: %v, want %v", name, got, c.want)
		}
	}
}
