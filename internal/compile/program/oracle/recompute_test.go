package oracle_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

var recomputes = []program.Recompute{program.RecomputeNone, program.RecomputeBlocks, program.RecomputeAuto, program.RecomputeMost}

// TestRecomputeKeepsResults repeats steps of random programs wherever that is possible: with random
// numbers, in-place updates, collectives and parts of values between them.
func TestRecomputeKeepsResults(t *testing.T) {
	again := 0
	rapid.Check(t, func(r *rapid.T) {
		raw := randomProgram(r)
		seed := rapid.Uint64().Draw(r, "seed")
		want := run(r, raw, seed)
		for _, mode := range recomputes[1:] {
			p := clone(raw)
			p.Recompute, p.ArenaLimit = mode, 1
			p.Again, p.Rows = rapid.Bool().Draw(r, "again"), rapid.Bool().Draw(r, "rows")
			if err := program.Optimize(p); err != nil {
				r.Fatalf("Optimize: %v\n%v", err, raw)
			}
			planned(r, p)
			compare(r, "recomputed", raw, p, want, run(r, p, seed))
			again += strings.Count(p.String(), " again\"")
		}
	})
	if again == 0 {
		t.Error("nothing was ever computed again")
	}
}

// deep is the forward and the backward pass of layers h = tanh(h w) * mask, with masks of random
// numbers, and updates of the weights in place. Forward and backward pass read each weight.
func deep(layers, rows, n int) *program.Program {
	g := newGraph("deep")
	g.p.Clock = g.p.Add(program.Value{Name: "clock", DType: tensor.U64, Shape: []int{2}, Role: program.Input, Place: program.Outside})
	shape, row := []int{rows, n}, []int{n, 1}
	h := []program.ID{g.input("x", rows, n)}
	var w, keep []program.ID
	for l := range layers {
		name := string(rune('a' + l))
		w = append(w, g.value("w"+name, program.Param, program.Outside, n, n))
		pre, act := g.temp("pre"+name, rows, n), g.temp("act"+name, rows, n)
		g.matmul("pre"+name, rows, n, n, view(h[l], 0, n, 1), view(w[l], 0, n, 1), view(pre, 0, n, 1))
		g.apply("act"+name, program.Tanh, 0, shape, view(act, row...), view(pre, row...))
		mask, next := g.temp("mask"+name, rows, n), g.temp("h"+name, rows, n)
		g.step("mask"+name, &program.Map{
			Space: shape, Stores: []int{2},
			Code: []program.Instr{{Op: program.Rand, Key: uint64(l)}, {Op: program.Const, Value: 0.3}, {Op: program.Less, A: 0, B: 1}},
		}, nil, views(g.p.Whole(mask)))
		g.apply("h"+name, program.Mul, 0, shape, view(next, row...), view(act, row...), view(mask, row...))
		h, keep = append(h, next), append(keep, mask)
	}
	d := h[layers]
	for l := layers - 1; l >= 0; l-- {
		name := string(rune('a' + l))
		masked, back := g.temp("masked"+name, rows, n), g.temp("back"+name, rows, n)
		g.apply("masked"+name, program.Mul, 0, shape, view(masked, row...), view(d, row...), view(keep[l], row...))
		dw := g.value("dw"+name, program.Gradient, program.Outside, n, n)
		g.matmul("dw"+name, n, n, rows, view(h[l], 0, 1, n), view(masked, 0, n, 1), view(dw, 0, n, 1))
		g.matmul("back"+name, rows, n, n, view(masked, 0, n, 1), view(w[l], 0, 1, n), view(back, 0, n, 1))
		d = back
		g.apply("update"+name, program.Sub, 0, []int{n, n}, view(w[l], n, 1), view(w[l], n, 1), view(dw, n, 1))
	}
	return g.p
}

// TestRecomputeTakesTheRootOfTheMemory: with n layers of one size, 2 sqrt(n) results are in memory
// at a time. Without it that is 2n-1: a mask and a result for each layer, as the last result is not
// read.
func TestRecomputeTakesTheRootOfTheMemory(t *testing.T) {
	const layers, size = 16, 256 // bytes of each result
	for _, c := range []struct {
		mode         program.Recompute
		limit        int64
		arena, again int // in results, in steps
	}{
		{program.RecomputeNone, 0, 31, 0},
		{program.RecomputeBlocks, 0, 8, 23},
		{program.RecomputeAuto, 0, 31, 0},
		{program.RecomputeAuto, 31 * size, 31, 0},
		{program.RecomputeAuto, 30 * size, 29, 3}, // masks, which come from no input
		{program.RecomputeAuto, 15 * size, 14, 17},
		{program.RecomputeAuto, 10 * size, 10, 21},
		{program.RecomputeAuto, size, 8, 23}, // impossible: the least
	} {
		raw := deep(layers, 8, 8)
		want := run(t, raw, 1)
		p := clone(raw)
		p.Recompute, p.ArenaLimit = c.mode, c.limit
		if err := program.Optimize(p); err != nil {
			t.Fatal(err)
		}
		planned(t, p)
		compare(t, "recomputed", raw, p, want, run(t, p, 1))
		if again := strings.Count(p.String(), " again\""); p.Arena != int64(c.arena)*size || again != c.again {
			t.Errorf("mode %d, limit %d: an arena of %d results, %d steps again, want %d and %d", c.mode, c.limit, p.Arena/size, again, c.arena, c.again)
		}
	}
}

// TestRecomputeKeepsWhatItCannotCompute: where the weights of layer a change in the backward pass,
// before it needs the result of layer a, that is kept. The other layers are computed again.
func TestRecomputeKeepsWhatItCannotCompute(t *testing.T) {
	const layers = 9
	for _, changes := range []bool{false, true} {
		raw := deep(layers, 8, 8)
		if changes {
			w := program.ID(slices.IndexFunc(raw.Values, func(v program.Value) bool { return v.Name == "wa" }))
			g := &graph{p: raw}
			g.apply("change", program.Neg, 0, []int{8, 8}, view(w, 8, 1), view(w, 8, 1))
			last, at := len(raw.Steps)-1, 4*layers+4 // after one layer's backward pass
			raw.Steps = slices.Insert(raw.Steps[:last:last], at, raw.Steps[last])
		}
		want := run(t, raw, 1)
		p := clone(raw)
		p.Recompute = program.RecomputeBlocks
		if err := program.Optimize(p); err != nil {
			t.Fatal(err)
		}
		planned(t, p)
		compare(t, "recomputed", raw, p, want, run(t, p, 1))
		if s := p.String(); strings.Contains(s, "prea again") == changes || !strings.Contains(s, "preb again") {
			t.Errorf("changes %v:\n%v", changes, s)
		}
	}
}
