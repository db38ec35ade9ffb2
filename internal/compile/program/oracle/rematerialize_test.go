package oracle_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// fetched is a gathered value of which two ranks have a half each.
func (g *graph) fetched(name string, shape ...int) program.ID {
	n := program.Value{Shape: shape}
	half := g.value("half of "+name, program.Param, program.Outside, n.Len()/2)
	whole := g.temp(name, n.Len())
	g.step("fetch "+name, &program.Collective{Kind: dist.KindAllGather, Fetch: true}, views(g.p.Whole(half)), views(g.p.Whole(whole)))
	return whole
}

// sharded is the forward and the backward pass of four layers with parameters sharded over two
// ranks, and the reduce-scatter of each gradient, in the order of a graph.
func sharded() *program.Program {
	g := newGraph("sharded")
	const layers, rows, n = 4, 3, 4
	factor := g.value("factor", program.State, program.Outside)
	shape, row := []int{rows, n}, []int{n, 1}
	h := []program.ID{g.input("x", rows, n)}
	var w []program.ID
	for l := range layers {
		name := string(rune('0' + l))
		w = append(w, g.fetched("w"+name, n, n))
		pre, next := g.temp("pre"+name, rows, n), g.temp("h"+name, rows, n)
		g.matmul("pre"+name, rows, n, n, view(h[l], 0, n, 1), view(w[l], 0, n, 1), view(pre, 0, n, 1))
		g.apply("h"+name, program.Tanh, 0, shape, view(next, row...), view(pre, row...))
		h = append(h, next)
	}
	d := h[layers]
	for l := layers - 1; l >= 0; l-- {
		name := string(rune('0' + l))
		dw, part := g.temp("dw"+name, n*n), g.value("part of dw"+name, program.Gradient, program.Outside, n*n/2)
		g.matmul("dw"+name, n, n, rows, view(h[l], 0, 1, n), view(d, 0, n, 1), view(dw, 0, n, 1))
		g.step("reduce "+name, &program.Collective{Kind: dist.KindReduceScatter, Red: dist.RedOp{Kind: dist.RedPreMulSum}},
			views(g.p.Whole(dw), g.p.Whole(factor)), views(g.p.Whole(part)))
		back, next := g.temp("back"+name, rows, n), g.temp("d"+name, rows, n)
		g.matmul("back"+name, rows, n, n, view(d, 0, n, 1), view(w[l], 0, 1, n), view(back, 0, n, 1))
		g.apply("d"+name, program.Mul, 0, shape, view(next, row...), view(back, row...), view(h[l], row...))
		d = next
	}
	out := g.output("dx", rows, n)
	g.apply("dx", program.Load, 0, shape, view(out, row...), view(d, row...))
	return g.p
}

// TestRematerializeKeepsResults makes programs that use fetched values repeatedly and in any order.
func TestRematerializeKeepsResults(t *testing.T) {
	again := 0
	rapid.Check(t, func(r *rapid.T) {
		m := &maker{t: r, p: &program.Program{Name: "random", Clock: program.None}}
		m.p.Clock = m.p.Add(program.Value{Name: "clock", DType: tensor.U64, Shape: []int{2}, Role: program.Input, Place: program.Outside})
		m.outside()
		for range m.n(2, 6) {
			m.fetch()
			for range m.n(0, 3) {
				m.step()
			}
		}
		for range m.n(4, 30) {
			m.step()
		}
		for i := range m.p.Values {
			if v := &m.p.Values[i]; v.Place == program.Arena && m.n(0, 5) == 0 && !strings.HasPrefix(v.Name, "fetched") {
				v.Role = program.Output
			}
		}
		raw, seed := m.p, rapid.Uint64().Draw(r, "seed")
		want := run(r, raw, seed)

		p := clone(raw)
		if err := program.Rematerialize(p); err != nil {
			r.Fatalf("Rematerialize: %v\n%v", err, raw)
		}
		again += strings.Count(p.String(), " again")
		if err := program.Pack(p); err != nil {
			r.Fatalf("Pack: %v", err)
		}
		planned(r, p)
		compare(r, "rematerialized", raw, p, want, run(r, p, seed))

		best := clone(raw)
		best.Recompute = rapid.SampledFrom(recomputes).Draw(r, "recompute")
		if err := program.Optimize(best); err != nil {
			r.Fatalf("Optimize: %v\n%v", err, raw)
		}
		planned(r, best)
		compare(r, "optimized and planned", raw, best, want, run(r, best, seed))
	})
	if again == 0 {
		t.Error("nothing was ever fetched again")
	}
}

// fetch adds a value of which each rank has a half.
func (m *maker) fetch() {
	shape := append([]int{2 * m.n(1, 3)}, m.shape()...)
	shape = shape[:min(len(shape), 3)]
	whole := program.Value{Name: "fetched", DType: tensor.F32, Shape: shape}
	half := m.p.Add(program.Value{Name: "half", DType: tensor.F32, Shape: []int{whole.Len() / 2}, Role: program.Param, Place: program.Outside})
	if m.n(0, 5) == 0 { // it is written, too
		m.states = append(m.states, half)
		m.things = append(m.things, m.whole(half))
	}
	id := m.p.Add(whole)
	m.add(program.Step{
		Name: "fetch", Op: &program.Collective{Kind: dist.KindAllGather, Fetch: true},
		In: []program.View{m.p.Whole(half)}, Out: []program.View{m.p.Whole(id)},
	}, m.whole(id))
}
