package oracle_test

import (
	"slices"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// twoLayers is y of two layers. If it learns, it has the gradients for a given dy and the updates
// of both weights.
func twoLayers(learns bool) *program.Program {
	const rows, width = 5, 4
	g := newGraph("perceptron")
	shape, square := []int{rows, width}, []int{width, width}
	x, dy, y, loss := g.input("x", rows, width), g.input("dy", rows, width), g.output("y", rows, width), g.output("db", width)
	var w [2]program.ID
	for k := range w {
		w[k] = g.value("w", program.Param, program.Outside, width, width)
	}
	h, a, da, dh := g.temp("h", 1, rows, width), g.temp("a", rows, width), g.temp("da", 1, rows, width), g.temp("dh", rows, width)
	g.matmul("h", rows, width, width, view(x, 0, width, 1), view(w[0], 0, width, 1), view(h, 0, width, 1))
	g.apply("a", program.Tanh, 0, shape, view(a, width, 1), view(h, width, 1))
	g.matmul("y", rows, width, width, view(a, 0, width, 1), view(w[1], 0, width, 1), view(y, 0, width, 1))
	if !learns {
		return g.p
	}
	g.sum("db", shape, []bool{true, false}, view(loss, 0, 1), view(dy, width, 1))
	gradient := func(name string, of, d, weight program.ID) {
		dw := g.temp(name, 1, width, width)
		g.matmul(name, width, width, rows, view(of, 0, 1, width), view(d, 0, width, 1), view(dw, 0, width, 1))
		g.apply("update "+name, program.Sub, 0, square, view(weight, width, 1), view(weight, width, 1), view(dw, width, 1))
	}
	g.matmul("da", rows, width, width, view(dy, 0, width, 1), view(w[1], 0, 1, width), view(da, 0, width, 1))
	gradient("dw2", a, dy, w[1])
	g.apply("dh", program.Mul, 0, shape, view(dh, width, 1), view(da, width, 1), view(a, width, 1))
	g.matmul("dx", rows, width, width, view(dh, 0, width, 1), view(w[0], 0, 1, width), view(g.output("dx", rows, width), 0, width, 1))
	gradient("dw1", x, dh, w[0])
	return g.p
}

// Products that other products follow from stay on Compute. The rest, with its readers, is on Side,
// which waits for its inputs and for readers of memory that it overwrites.
func TestWhatNoProductFollowsFromIsAside(t *testing.T) {
	p := twoLayers(true)
	p.Aside = true
	p = same(t, p)
	var main []string
	for _, s := range p.Steps {
		if s.Stream == program.Compute {
			main = append(main, s.Name)
		}
	}
	if want := []string{"h", "a", "da", "dh"}; !slices.Equal(main, want) {
		t.Errorf("on Compute are %v, want %v\n%v", main, want, p)
	}
}

// Without a product that Side could overlap there is one stream.
func TestNothingIsAsideByItself(t *testing.T) {
	p := twoLayers(false)
	p.Aside = true
	p = same(t, p)
	for _, s := range p.Steps {
		if s.Stream != program.Compute {
			t.Errorf("%s is on %v", s.Name, s.Stream)
		}
	}
}

// Compute may be ahead of Side by a bounded number of steps, so that memory is reused: a deep
// network needs memory for the gradients of some layers only.
func TestWhatIsAsideDoesNotKeepAllMemory(t *testing.T) {
	arena := func(depth int, aside bool) int64 {
		const rows, width = 64, 8
		g := newGraph("deep")
		d, w := g.input("dy", rows, width), g.input("w", width, width)
		for range depth {
			next, dw, sum := g.temp("d", 1, rows, width), g.temp("dw", 1, width, width), g.value("sum", program.State, program.Outside, width, width)
			g.matmul("dw", width, width, rows, view(d, 0, 1, width), view(d, 0, width, 1), view(dw, 0, width, 1))
			g.apply("sum", program.Add, 0, []int{width, width}, view(sum, width, 1), view(sum, width, 1), view(dw, width, 1))
			g.matmul("d", rows, width, width, view(d, 0, width, 1), view(w, 0, width, 1), view(next, 0, width, 1))
			d = next
		}
		g.p.Aside = aside
		return same(t, g.p).Arena
	}
	if deep, deeper := arena(60, true), arena(120, true); deep <= arena(60, false) || deeper != deep {
		t.Errorf("60 layers need %d B, and %d B with one stream; 120 need %d B", deep, arena(60, false), deeper)
	}
}
