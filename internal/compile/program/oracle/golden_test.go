package oracle_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

var update = flag.Bool("update", false, "write testdata/*.txt anew")

// perceptron is one layer with a ReLU, the loss, its gradients, their reduction and a step of Adam,
// as in a graph.
func perceptron() *program.Program {
	g := newGraph("perceptron")
	const rows, in, out = 8, 4, 3
	x, y := g.input("x", rows, in), g.input("y", rows, out)
	param := func(name string, shape ...int) program.ID {
		return g.value(name, program.Param, program.Outside, shape...)
	}
	w, b := param("w", in, out), param("b", out)
	t, pre, mask, h := g.temp("x*w", 1, rows, out), g.temp("pre", rows, out), g.temp("mask", rows, out), g.temp("h", rows, out)
	g.matmul("x*w", rows, out, in, view(x, 0, in, 1), view(w, 0, out, 1), view(t, 0, out, 1))
	shape, row := []int{rows, out}, []int{out, 1}
	g.apply("pre", program.Add, 0, shape, view(pre, row...), view(t, row...), view(b, 0, 1))
	g.apply("mask", program.GreaterEqual, 0, shape, view(mask, row...), view(pre, row...))
	g.apply("h", program.Mul, 0, shape, view(h, row...), view(pre, row...), view(mask, row...))
	loss, dh, dpre := g.output("loss"), g.temp("dh", rows, out), g.temp("dpre", rows, out)
	g.lossOf(rows, out, h, y, loss, dh)
	g.apply("dpre", program.Mul, 0, shape, view(dpre, row...), view(mask, row...), view(dh, row...))
	grad := func(name string, shape ...int) program.ID {
		return g.value(name, program.Gradient, program.Outside, shape...)
	}
	db, dw := grad("db", out), grad("dw", in, out)
	g.sum("db", shape, []bool{true, false}, view(db, 0, 1), view(dpre, row...))
	g.matmul("dw", in, out, rows, view(x, 0, 1, in), view(dpre, 0, out, 1), view(dw, 0, out, 1))
	for _, pair := range [][2]program.ID{{b, db}, {w, dw}} {
		g.step("mean", &program.Collective{Kind: dist.KindAllReduce, Red: dist.Avg}, views(g.p.Whole(pair[1])), views(g.p.Whole(pair[1])))
		g.adam(pair[0], pair[1])
	}
	return g.p
}

// adam is a step of Adam without bias correction.
func (g *graph) adam(w, grad program.ID) {
	v := g.p.Values[w]
	state := func(name string) program.ID {
		return g.value(name+" of "+v.Name, program.State, program.Outside, v.Shape...)
	}
	m, s := state("m"), state("v")
	code := []program.Instr{
		{Op: program.Load},
		{Op: program.Load, A: 1},
		{Op: program.Load, A: 2},
		{Op: program.Load, A: 3}, // w, g, m, v
		{Op: program.Const, Value: 0.9},
		{Op: program.Const, Value: 0.1},
		{Op: program.Const, Value: 0.99},
		{Op: program.Const, Value: 0.01},
		{Op: program.Mul, A: 4, B: 2},
		{Op: program.Mul, A: 5, B: 1},
		{Op: program.Add, A: 8, B: 9}, // m
		{Op: program.Square, A: 1},
		{Op: program.Mul, A: 7, B: 11},
		{Op: program.Mul, A: 6, B: 3},
		{Op: program.Add, A: 12, B: 13}, // v
		{Op: program.Abs, A: 14},
		{Op: program.Sqrt, A: 15},
		{Op: program.Add, A: 16, B: 5},
		{Op: program.Div, A: 10, B: 17},
		{Op: program.Sub, A: 0, B: 18},
	}
	a, b, c, d := g.p.Whole(w), g.p.Whole(grad), g.p.Whole(m), g.p.Whole(s)
	g.step("adam "+v.Name, &program.Map{Space: v.Shape, Code: code, Stores: []int{19, 10, 14}}, views(a, b, c, d), views(a, c, d))
}

// layout is transposes, a slice and a concatenation around a product.
func layout() *program.Program {
	g := newGraph("layout")
	x, out := g.input("x", 6, 4), g.output("both", 8, 3)
	t := g.temp("xT", 4, 6)
	g.apply("xT", program.Load, 0, []int{4, 6}, view(t, 6, 1), view(x, 1, 4))
	half := g.temp("half", 4, 3)
	g.apply("half", program.Load, 0, []int{4, 3}, view(half, 3, 1), program.View{Value: t, Offset: 3, Strides: []int{6, 1}})
	prod := g.temp("product", 1, 4, 3)
	g.matmul("product", 4, 3, 6, view(t, 0, 6, 1), view(g.input("m", 6, 3), 0, 3, 1), view(prod, 0, 3, 1))
	g.apply("top", program.Load, 0, []int{4, 3}, view(out, 3, 1), view(prod, 3, 1))
	g.apply("bottom", program.Load, 0, []int{4, 3}, program.View{Value: out, Offset: 12, Strides: []int{3, 1}}, view(half, 3, 1))
	return g.p
}

// mask is a dropout between other steps.
func mask() *program.Program {
	g := newGraph("dropout")
	g.p.Clock = g.p.Add(program.Value{Name: "clock", DType: tensor.U64, Shape: []int{2}, Role: program.Input, Place: program.Outside})
	x, y := g.input("x", 4, 6), g.output("y", 4, 6)
	keep, a := g.temp("keep", 4, 6), g.temp("tanh", 4, 6)
	code := []program.Instr{{Op: program.Rand, Key: 3, PerUnit: 6}, {Op: program.Const, Value: 0.8}, {Op: program.Less, A: 0, B: 1}, {Op: program.Div, A: 2, B: 1}}
	g.step("keep", &program.Map{Space: []int{24}, Code: code, Stores: []int{3}}, nil, views(view(keep, 1)))
	g.apply("tanh", program.Tanh, 0, []int{4, 6}, view(a, 6, 1), view(x, 6, 1))
	g.apply("y", program.Mul, 0, []int{4, 6}, view(y, 6, 1), view(a, 6, 1), view(keep, 6, 1))
	return g.p
}

func TestGolden(t *testing.T) {
	programs := []*program.Program{perceptron(), convolution(windows()[0], 5).p, layout(), mask(), sharded()}
	for _, p := range programs {
		t.Run(p.Name, func(t *testing.T) {
			best := optimized(t, p, 1e-4)
			plain := clone(p)
			if err := program.Pack(plain); err != nil {
				t.Fatal(err)
			}
			planned(t, plain)
			got := "packed and planned\n" + plain.String() + "\noptimized and planned\n" + best.String()
			file := filepath.Join("testdata", strings.ReplaceAll(p.Name, " ", "-")+".txt")
			if *update {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s differs; -update writes it anew:\n%s", file, got)
			}
		})
	}
}
