package oracle_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/tensor"
)

// graph builds a program in the form that package machine makes from a graph.
type graph struct{ p *program.Program }

func newGraph(name string) *graph {
	return &graph{&program.Program{Name: name, Clock: program.None}}
}

func (g *graph) value(name string, role program.Role, place program.Place, shape ...int) program.ID {
	return g.p.Add(program.Value{Name: name, DType: tensor.F32, Shape: shape, Role: role, Place: place})
}

func (g *graph) input(name string, shape ...int) program.ID {
	return g.value(name, program.Input, program.Outside, shape...)
}

func (g *graph) output(name string, shape ...int) program.ID {
	return g.value(name, program.Output, program.Outside, shape...)
}

func (g *graph) temp(name string, shape ...int) program.ID {
	return g.value(name, program.Temp, program.Arena, shape...)
}

func view(id program.ID, strides ...int) program.View {
	return program.View{Value: id, Strides: strides}
}

func (g *graph) step(name string, op program.Op, in, out []program.View) {
	g.p.Steps = append(g.p.Steps, program.Step{Name: name, Op: op, In: in, Out: out})
}

func views(v ...program.View) []program.View { return v }

// apply adds a Map with one result: op of the In, and of a number if it takes one more.
func (g *graph) apply(name string, op program.Scalar, number float64, shape []int, out program.View, in ...program.View) {
	m := &program.Map{Space: shape}
	for k := range in {
		m.Code = append(m.Code, program.Instr{Op: program.Load, A: k})
	}
	if len(in) == 1 && (op == program.Mul || op == program.Div || op == program.GreaterEqual) {
		m.Code = append(m.Code, program.Instr{Op: program.Const, Value: number})
	}
	if op != program.Load {
		m.Code = append(m.Code, program.Instr{Op: op, A: 0, B: min(1, len(m.Code)-1)})
	}
	m.Stores = []int{len(m.Code) - 1}
	g.step(name, m, in, views(out))
}

func (g *graph) sum(name string, shape []int, reduced []bool, out, in program.View) {
	g.step(name, &program.Reduce{Space: shape, Reduced: reduced, Code: []program.Instr{{Op: program.Load}}}, views(in), views(out))
}

func (g *graph) matmul(name string, m, n, k int, a, b, out program.View) {
	g.step(name, &program.MatMul{Batch: 1, M: m, N: n, K: k, Alpha: 1}, views(a, b), views(out))
}

// lossOf adds -mean(sum(y * log softmax(x))) over rows of classes, and dx.
func (g *graph) lossOf(rows, classes int, x, y, loss, dx program.ID) {
	s, shape := g.temp("logp", rows, classes, 1), []int{rows, classes}
	row, rows3 := []int{classes, 1}, []int{classes, 1, 1}
	g.step("softmax", &program.Softmax{Outer: rows, Axis: classes, Inner: 1, Log: true}, views(view(x, rows3...)), views(view(s, rows3...)))
	prod, perRow, total, mean, d := g.temp("y*logp", rows, classes), g.temp("per row", rows), g.temp("total"), g.temp("mean"), g.temp("dlogp", rows, classes)
	g.apply("y*logp", program.Mul, 0, shape, view(prod, row...), view(y, row...), view(s, row...))
	g.sum("per row", shape, []bool{false, true}, view(perRow, 1, 0), view(prod, row...))
	g.sum("total", []int{rows}, []bool{true}, view(total, 0), view(perRow, 1))
	g.apply("mean", program.Div, float64(rows), nil, view(mean), view(total))
	g.apply("loss", program.Neg, 0, nil, view(loss), view(mean))
	if dx == program.None {
		return
	}
	g.apply("dlogp", program.Mul, float64(float32(-1/float64(rows))), shape, view(d, row...), view(y, row...))
	g.step("dx", &program.SoftmaxGrad{Outer: rows, Axis: classes, Inner: 1, Log: true}, views(view(s, rows3...), view(d, rows3...)), views(view(dx, rows3...)))
}

// optimized returns p optimized and planned; results are compared within a bound.
func optimized(t *testing.T, p *program.Program, bound float64) *program.Program {
	t.Helper()
	want := run(t, p, 1)
	best := clone(p)
	if err := program.Optimize(best); err != nil {
		t.Fatal(err)
	}
	planned(t, best)
	got := run(t, best, 1)
	for k, id := range lookedAt(p) {
		v := &p.Values[id]
		for e := range v.Len() {
			w, x := program.Element(v.DType, want[k], e), program.Element(v.DType, got[k], e)
			if !(math.Abs(w-x) <= bound*max(1, math.Abs(w))) && w != x {
				t.Fatalf("%q[%d] is %g, want %g\n%v\n%v", v.Name, e, x, w, p, best)
			}
		}
	}
	return best
}

// opsOf returns the operations of a program, by the first word of each.
func opsOf(p *program.Program) string {
	var all []string
	for i := range p.Steps {
		all = append(all, strings.Fields(p.Steps[i].Op.String())[0])
	}
	return strings.Join(all, " ")
}

func wantOps(t *testing.T, p *program.Program, want string) {
	t.Helper()
	if got := opsOf(p); got != want {
		t.Errorf("steps %q, want %q\n%v", got, want, p)
	}
}

func TestCrossEntropyIsFound(t *testing.T) {
	for _, rows := range []int{8, 10} { // a tenth is rounded
		g := newGraph("cross-entropy")
		x, y := g.input("x", rows, 3), g.input("y", rows, 3)
		g.lossOf(rows, 3, x, y, g.output("loss"), g.output("dx", rows, 3))
		wantOps(t, optimized(t, g.p, 1e-5), "map crossentropy")
	}
}

// The gradient does not follow from the loss. A program may compute the loss after the gradient and
// its readers, or may overwrite the targets in between.
func TestCrossEntropyStaysWhereItsGradientComesFirst(t *testing.T) {
	for _, between := range []string{"a reader of the gradient", "other targets"} {
		g := newGraph(between)
		x, y, dx := g.input("x", 8, 3), g.input("y", 8, 3), g.output("dx", 8, 3)
		g.lossOf(8, 3, x, y, g.output("loss"), dx)
		forward, scaled, grad := g.p.Steps[1:len(g.p.Steps)-2], g.p.Steps[len(g.p.Steps)-2], g.p.Steps[len(g.p.Steps)-1]
		g.p.Steps = append(slices.Clone(g.p.Steps[:1]), scaled)
		if between == "other targets" {
			g.apply("y", program.Mul, 3, []int{8, 3}, view(y, 3, 1), view(y, 3, 1))
			g.p.Steps = append(append(g.p.Steps, forward...), grad)
		} else {
			g.p.Steps = append(g.p.Steps, grad)
			g.apply("turned", program.Load, 0, []int{8, 3}, view(g.output("turned", 3, 8), 1, 8), view(dx, 3, 1))
			g.p.Steps = append(g.p.Steps, forward...)
		}
		optimized(t, g.p, 1e-5)
	}
}

func TestCrossEntropyWithoutGradient(t *testing.T) {
	g := newGraph("loss")
	g.lossOf(4, 5, g.input("x", 4, 5), g.input("y", 4, 5), g.output("loss"), program.None)
	wantOps(t, optimized(t, g.p, 1e-5), "map crossentropy")
}

func TestCrossEntropyStaysWhereItsPartsAreNeeded(t *testing.T) {
	tests := map[string]func(g *graph){
		"another factor in the gradient": func(g *graph) {
			m, _ := g.p.Steps[6].Op.(*program.Map)
			m.Code[1].Value = 0.5
		},
		"logarithms that somebody reads": func(g *graph) {
			g.apply("copy", program.Load, 0, []int{12}, view(g.output("copy", 12), 1), view(2+2, 1))
		},
		"targets that change": func(g *graph) {
			s := program.Step{
				Name: "y", Op: &program.Map{Space: []int{12}, Code: []program.Instr{{Op: program.Load}, {Op: program.Neg}}, Stores: []int{1}},
				In: views(view(1, 1)), Out: views(view(1, 1)),
			}
			g.p.Steps = append(g.p.Steps[:6:6], append([]program.Step{s}, g.p.Steps[6:]...)...)
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			g := newGraph("cross-entropy")
			x, y := g.input("x", 4, 3), g.input("y", 4, 3)
			g.lossOf(4, 3, x, y, g.output("loss"), g.output("dx", 4, 3))
			change(g)
			if got := opsOf(optimized(t, g.p, 1e-5)); strings.Contains(got, "crossentropy") {
				t.Errorf("steps %q", got)
			}
		})
	}
}

// convolution adds gorgonia.Conv2d, a ReLU and their gradients: im2col, products with channels
// last, and transposes.
func convolution(w program.Window, k int) *graph {
	g := newGraph("convolution")
	x, f := g.input("x", w.N, w.C, w.H, w.W), g.input("filter", k, w.C, w.R, w.S)
	y, dx, df := g.output("y", w.N, k, w.OutH, w.OutW), g.output("dx", w.N, w.C, w.H, w.W), g.output("df", k, w.C, w.R, w.S)
	m, n := w.N*w.OutH*w.OutW, w.C*w.R*w.S
	cols, t := g.temp("cols", w.N, w.OutH, w.OutW, n), g.temp("t", 1, m, k)
	whole := func(id program.ID) program.View { return g.p.Whole(id) }
	g.step("im2col", &program.Im2Col{Window: w}, views(whole(x)), views(whole(cols)))
	g.matmul("conv", m, k, n, view(cols, 0, n, 1), view(f, 0, 1, n), view(t, 0, k, 1))
	shape := []int{w.N, k, w.OutH, w.OutW}
	first := view(t, w.OutH*w.OutW*k, 1, w.OutW*k, k)
	mask, d := g.temp("mask", shape...), g.temp("dy", w.N, w.OutH, w.OutW, k)
	g.apply("mask", program.GreaterEqual, 0, shape, whole(mask), first)
	g.apply("relu", program.Mul, 0, shape, whole(y), first, whole(mask))
	dy := g.temp("d relu", shape...)
	g.apply("d relu", program.Mul, 0, shape, whole(dy), whole(y), whole(mask))
	s := g.p.Whole(dy).Strides
	g.apply("transpose", program.Load, 0, []int{w.N, w.OutH, w.OutW, k}, whole(d), view(dy, s[0], s[2], s[3], s[1]))
	dcols := g.temp("dcols", 1, m, n)
	g.matmul("dcols", m, n, k, view(d, 0, k, 1), view(f, 0, n, 1), whole(dcols))
	g.matmul("df", k, n, m, view(d, 0, 1, k), view(cols, 0, n, 1), view(df, 0, n, 1))
	back := view(dcols, program.Contiguous([]int{w.N, w.OutH, w.OutW, n})...)
	g.step("dx", &program.Col2Im{Window: w}, views(back), views(whole(dx)))
	return g
}

func windows() []program.Window {
	plain := program.Window{N: 2, C: 3, H: 6, W: 5, R: 3, S: 2, StrideH: 1, StrideW: 1, DilationH: 1, DilationW: 1, OutH: 4, OutW: 4}
	other := program.Window{N: 3, C: 1, H: 7, W: 8, R: 2, S: 3, PadH: 1, PadW: 2, StrideH: 2, StrideW: 1, DilationH: 2, DilationW: 2, OutH: 4, OutW: 8}
	point := program.Window{N: 1, C: 4, H: 3, W: 3, R: 1, S: 1, StrideH: 1, StrideW: 1, DilationH: 1, DilationW: 1, OutH: 3, OutW: 3}
	return []program.Window{plain, other, point}
}

func TestConvolutionsAreFound(t *testing.T) {
	for i, w := range windows() {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			p := optimized(t, convolution(w, 5).p, 1e-4)
			wantOps(t, p, "conv map convgradfilter convgradinput")
		})
	}
}

// same optimizes p and requires the same bits.
func same(t *testing.T, p *program.Program) *program.Program {
	t.Helper()
	want := run(t, p, 2)
	best := clone(p)
	if err := program.Optimize(best); err != nil {
		t.Fatal(err)
	}
	planned(t, best)
	compare(t, "optimized", p, best, want, run(t, best, 2))
	return best
}

func TestRandomNumbersStayWithTheirElements(t *testing.T) {
	draw := func(g *graph) program.ID {
		g.p.Clock = g.p.Add(program.Value{Name: "clock", DType: tensor.U64, Shape: []int{2}, Role: program.Input, Place: program.Outside})
		keep := g.temp("keep", 4, 6)
		code := []program.Instr{{Op: program.Rand, Key: 3, PerUnit: 6}}
		g.step("keep", &program.Map{Space: []int{4, 6}, Code: code, Stores: []int{0}}, nil, views(g.p.Whole(keep)))
		return keep
	}
	t.Run("transposed", func(t *testing.T) {
		g := newGraph("transposed")
		keep, x, y := draw(g), g.input("x", 6, 4), g.output("y", 6, 4)
		g.apply("y", program.Add, 0, []int{6, 4}, g.p.Whole(y), view(keep, 1, 6), g.p.Whole(x))
		wantOps(t, same(t, g.p), "map map")
	})
	t.Run("a part", func(t *testing.T) {
		g := newGraph("part")
		keep, x, y := draw(g), g.input("x", 2, 6), g.output("y", 2, 6)
		lower := program.View{Value: keep, Offset: 12, Strides: []int{6, 1}}
		g.apply("y", program.Add, 0, []int{2, 6}, g.p.Whole(y), lower, g.p.Whole(x))
		wantOps(t, same(t, g.p), "map map")
	})
	t.Run("reshaped", func(t *testing.T) {
		g := newGraph("reshaped")
		keep, x, y := draw(g), g.input("x", 24), g.output("y", 24)
		g.apply("y", program.Add, 0, []int{24}, g.p.Whole(y), view(keep, 1), g.p.Whole(x))
		wantOps(t, same(t, g.p), "map")
	})
	t.Run("read twice", func(t *testing.T) {
		g := newGraph("twice")
		keep, x := draw(g), g.input("x", 4, 6)
		y, z := g.output("y", 4, 6), g.output("z", 4)
		g.apply("y", program.Add, 0, []int{4, 6}, g.p.Whole(y), g.p.Whole(keep), g.p.Whole(x))
		g.sum("z", []int{4, 6}, []bool{false, true}, view(z, 1, 0), g.p.Whole(keep))
		wantOps(t, same(t, g.p), "map sum")
	})
}

func TestFusionAcrossHalvesKeepsMoreBits(t *testing.T) {
	g := newGraph("halves")
	x, y := g.input("x", 64), g.output("y", 64)
	mid := g.p.Add(program.Value{Name: "mid", DType: tensor.BF16, Shape: []int{64}})
	g.apply("mid", program.Mul, 1+1.0/512, []int{64}, view(mid, 1), view(x, 1))
	g.apply("y", program.Mul, 512, []int{64}, view(y, 1), view(mid, 1))
	wantOps(t, optimized(t, g.p, 1.0/64), "map")
}

func TestIntegersBetweenStepsStay(t *testing.T) {
	g := newGraph("integers")
	x, y := g.input("x", 8), g.output("y", 8)
	mid := g.p.Add(program.Value{Name: "mid", DType: tensor.I32, Shape: []int{8}})
	g.apply("mid", program.Mul, 3, []int{8}, view(mid, 1), view(x, 1))
	g.apply("y", program.Mul, 0.5, []int{8}, view(y, 1), view(mid, 1))
	wantOps(t, same(t, g.p), "map map")
}

func TestSumsOfProductsAreAccumulated(t *testing.T) {
	g := newGraph("sums")
	a, b, out := g.input("a", 3, 4), g.input("b", 3, 4), g.output("out", 4, 4)
	x, y := g.temp("x", 1, 4, 4), g.temp("y", 1, 4, 4)
	g.matmul("x", 4, 4, 3, view(a, 0, 1, 4), view(b, 0, 4, 1), view(x, 0, 4, 1))
	g.matmul("y", 4, 4, 3, view(b, 0, 1, 4), view(a, 0, 4, 1), view(y, 0, 4, 1))
	g.apply("out", program.Add, 0, []int{4, 4}, view(out, 4, 1), view(y, 4, 1), view(x, 4, 1))
	p := same(t, g.p)
	wantOps(t, p, "matmul matmul")
	if got := p.Steps[1].Op.String(); !strings.HasSuffix(got, "added") || p.Steps[0].Out[0].Value != out {
		t.Errorf("got %q\n%v", got, p)
	}
}

func TestUpdatesInPlaceSeeWhatTheyShould(t *testing.T) {
	g := newGraph("updates")
	w := g.value("w", program.Param, program.Outside, 8)
	before, after := g.output("before", 8), g.output("after", 8)
	twice := g.temp("twice", 8)
	g.apply("twice", program.Mul, 2, []int{8}, view(twice, 1), view(w, 1))
	g.apply("w", program.Mul, 3, []int{8}, view(w, 1), view(w, 1))
	g.apply("before", program.Mul, 1.5, []int{8}, view(before, 1), view(twice, 1))
	g.apply("after", program.Mul, 1.5, []int{8}, view(after, 1), view(w, 1))
	same(t, g.p)
}

// A function with two readers and a product between them is stored in between, unless the first
// reader also reads the function's input.
func TestFunctionsAreComputedAgain(t *testing.T) {
	for _, test := range []struct {
		again, reads bool
		outs         int // of the first step
	}{{false, true, 2}, {true, false, 2}, {true, true, 1}} {
		g := newGraph("gate")
		x, u, w, dx := g.input("x", 3, 4), g.input("u", 3, 4), g.input("w", 4, 4), g.output("dx", 3, 4)
		s, y, z := g.temp("s", 3, 4), g.temp("y", 3, 4), g.temp("z", 1, 3, 4)
		shape, of := []int{3, 4}, u
		if test.reads {
			of = x
		}
		g.apply("s", program.Sigmoid, 0, shape, view(s, 4, 1), view(of, 4, 1))
		g.apply("y", program.Mul, 0, shape, view(y, 4, 1), view(x, 4, 1), view(s, 4, 1))
		g.matmul("z", 3, 4, 4, view(y, 0, 4, 1), view(w, 0, 4, 1), view(z, 0, 4, 1))
		g.apply("dx", program.Mul, 0, shape, view(dx, 4, 1), view(z, 4, 1), view(s, 4, 1))
		g.p.Again = test.again
		p := same(t, g.p)
		wantOps(t, p, "map matmul map")
		if got := len(p.Steps[0].Out); got != test.outs {
			t.Errorf("again %v, reads %v: the first step has %d results, want %d\n%v", test.again, test.reads, got, test.outs, p)
		}
	}
}
