package machine_test

import (
	"reflect"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/machine"
)

// list returns an input with the elements of a slice.
func list(g *G.ExprGraph, name string, elements any) *G.Node {
	n := reflect.ValueOf(elements).Len()
	return G.NodeFromAny(g, gtensor.New(gtensor.WithShape(n), gtensor.WithBacking(elements)), G.WithName(name))
}

// TestIntegersAreThoseOfTheTapeMachine runs arithmetic on each integer type that Gorgonia supports.
// Numbers are so large that floating-point numbers would round them, or that sums wrap around.
func TestIntegersAreThoseOfTheTapeMachine(t *testing.T) {
	functions := map[string]func(a, b *G.Node) (*G.Node, error){
		"Add": G.Add, "Sub": G.Sub, "HadamardProd": G.HadamardProd, "HadamardDiv": G.HadamardDiv, "MinBetween": G.MinBetween, "MaxBetween": G.MaxBetween,
		"Lt":          func(a, b *G.Node) (*G.Node, error) { return G.Lt(a, b, false) },
		"Gte":         func(a, b *G.Node) (*G.Node, error) { return G.Gte(a, b, true) },
		"Eq":          func(a, b *G.Node) (*G.Node, error) { return G.Eq(a, b, false) },
		"Ne":          func(a, b *G.Node) (*G.Node, error) { return G.Ne(a, b, true) },
		"of a square": func(a, b *G.Node) (*G.Node, error) { return G.Sub(G.Must(G.HadamardProd(a, a)), b) },
	}
	for _, c := range [][2]any{
		{[]int{1<<53 + 1, -7, 1 << 62}, []int{1 << 53, 2, 1 << 62}},
		{[]int64{1<<53 + 1, -7, -1 << 63}, []int64{1 << 53, 2, -1}},
		{[]int32{1<<24 + 1, -7, -1 << 31}, []int32{1 << 24, 2, 3}},
		{[]int16{200, -7, 32767}, []int16{200, 2, 9}},
		{[]int8{100, -7, -128}, []int8{100, 2, 3}},
		{[]uint8{200, 7, 255}, []uint8{100, 2, 255}},
		{[]uint16{60000, 7, 1}, []uint16{60000, 2, 3}},
		{[]uint32{1<<32 - 1, 7, 1}, []uint32{1 << 31, 2, 3}},
		{[]uint64{1<<64 - 1, 7, 1}, []uint64{1<<63 + 1, 2, 3}},
		{[]uint{1<<64 - 1, 7, 1}, []uint{1<<63 + 1, 2, 3}},
	} {
		for name, f := range functions {
			build := func() (*G.ExprGraph, *G.Node) {
				g := G.NewGraph()
				return g, G.Must(f(list(g, "a", c[0]), list(g, "b", c[1])))
			}
			g, want := build()
			run(t, G.NewTapeMachine(g))
			h, got := build()
			run(t, newMachine(t, h, plain))
			if !reflect.DeepEqual(got.Value().Data(), want.Value().Data()) {
				t.Errorf("%s of %T: %v, want %v", name, c[0], got.Value(), want.Value())
			}
		}
	}
}

// TestIntegersOfOtherShapes has reductions, scalars, rows by index, and ops that only move
// elements.
func TestIntegersOfOtherShapes(t *testing.T) {
	const big = 1<<53 + 1
	matrix := func(g *G.ExprGraph) *G.Node {
		return G.NodeFromAny(g, gtensor.New(gtensor.WithShape(2, 3), gtensor.WithBacking([]int64{big, -2, 3, 4, 5, -big})), G.WithName("x"))
	}
	for name, c := range map[string]struct {
		build func(g *G.ExprGraph) (*G.Node, error)
		want  any
	}{
		"sum of all":   {func(g *G.ExprGraph) (*G.Node, error) { return G.Sum(matrix(g)) }, int64(10)},
		"sum of rows":  {func(g *G.ExprGraph) (*G.Node, error) { return G.Sum(matrix(g), 1) }, []int64{big + 1, 9 - big}},
		"maximum":      {func(g *G.ExprGraph) (*G.Node, error) { return G.Max(matrix(g), 0) }, []int64{big, 5, 3}},
		"transposed":   {func(g *G.ExprGraph) (*G.Node, error) { return G.Transpose(matrix(g)) }, []int64{big, 4, -2, 5, 3, -big}},
		"two columns":  {func(g *G.ExprGraph) (*G.Node, error) { return G.Slice(matrix(g), nil, G.S(1, 3)) }, []int64{-2, 3, 5, -big}},
		"concatenated": {func(g *G.ExprGraph) (*G.Node, error) { x := matrix(g); return G.Concat(0, x, x) }, []int64{big, -2, 3, 4, 5, -big, big, -2, 3, 4, 5, -big}},
		"a row": {func(g *G.ExprGraph) (*G.Node, error) {
			return G.ByIndices(matrix(g), list(g, "rows", []int{1}), 0)
		}, []int64{4, 5, -big}},
		"columns": {func(g *G.ExprGraph) (*G.Node, error) {
			return G.ByIndices(matrix(g), list(g, "columns", []int{0, 2}), 1)
		}, []int64{big, 3, 4, -big}},
		"diagonal": {func(g *G.ExprGraph) (*G.Node, error) { return G.DiagFlat(list(g, "d", []int32{1<<24 + 1, 2})) }, []int32{1<<24 + 1, 0, 0, 2}},
		"plus a number": {func(g *G.ExprGraph) (*G.Node, error) {
			return G.Add(matrix(g), G.NodeFromAny(g, int64(1), G.WithName("one")))
		}, []int64{big + 1, -1, 4, 5, 6, 1 - big}},
		"scalars": {func(g *G.ExprGraph) (*G.Node, error) {
			return G.HadamardDiv(G.NodeFromAny(g, -7, G.WithName("a")), G.NodeFromAny(g, 2, G.WithName("b")))
		}, -3},
		"bools of scalars": {func(g *G.ExprGraph) (*G.Node, error) {
			return G.Lt(G.NodeFromAny(g, 1.5, G.WithName("a")), G.NodeFromAny(g, 2.5, G.WithName("b")), false)
		}, true},
		"bools compared": {func(g *G.ExprGraph) (*G.Node, error) {
			return G.Eq(list(g, "a", []bool{true, false}), list(g, "b", []bool{true, true}), false)
		}, []bool{true, false}},
	} {
		g := G.NewGraph()
		y, err := c.build(g)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		run(t, newMachine(t, g, plain))
		if got := y.Value().Data(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %T %v, want %T %v", name, got, got, c.want, c.want)
		}
	}
}

// TestAnIntegerDivisorOfZeroIsAnError names op and node; the tape machine gives the element.
func TestAnIntegerDivisorOfZeroIsAnError(t *testing.T) {
	g := G.NewGraph()
	y := G.Must(G.HadamardDiv(list(g, "a", []int{1, 2}), list(g, "b", []int{1, 0})))
	err := newMachine(t, g, plain).RunAll()
	if err == nil || !strings.Contains(err.Error(), "integer division by zero at element 1") || !strings.Contains(err.Error(), y.Name()) {
		t.Errorf("error %v, want the element and the node", err)
	}
}

// TestConvertedNumbersAreIntegers converts between all types, as outputs and as operands of
// arithmetic on integers.
func TestConvertedNumbersAreIntegers(t *testing.T) {
	for _, from := range []gtensor.Dtype{G.Float32, G.Float64} {
		for _, c := range []struct {
			to   gtensor.Dtype
			want any
		}{{G.Int, []int{3, -2, 0}}, {G.Int64, []int64{3, -2, 0}}, {G.Int32, []int32{3, -2, 0}}} {
			g := G.NewGraph()
			x := list(g, "x", []float64{2.5, -1.5, 0.9})
			if from == G.Float32 {
				x = list(g, "x", []float32{2.5, -1.5, 0.9})
			}
			one := G.Must(G.ConvType(x, from, c.to))
			y := G.Must(G.Add(one, G.Must(G.Sub(one, one))))
			product := G.Must(G.HadamardProd(G.Must(G.ConvType(one, c.to, from)), x))
			run(t, newMachine(t, g, plain, one, y, product))
			whole := map[string]any{"int": []int{2, -1, 0}, "int64": []int64{2, -1, 0}, "int32": []int32{2, -1, 0}}[c.to.String()]
			if !reflect.DeepEqual(one.Value().Data(), whole) || !reflect.DeepEqual(y.Value().Data(), whole) {
				t.Errorf("%v to %v: %v and %v, want %v", from, c.to, one.Value(), y.Value(), whole)
			}
			want(t, "whole part times the number", product.Value(), 5, 1.5, 0)
		}
	}
	g := G.NewGraph()
	y := G.Must(G.ConvType(list(g, "x", []int64{1<<53 + 1, -1}), G.Int64, G.Int))
	run(t, newMachine(t, g, plain))
	if got := y.Value().Data(); !reflect.DeepEqual(got, []int{1<<53 + 1, -1}) {
		t.Errorf("int64 to int: %v", got)
	}
}

// TestBoolsAreOutputsAndTargetsOfRead compares floats, as Gorgonia's logistic regression example
// does, over several runs.
func TestBoolsAreOutputsAndTargetsOfRead(t *testing.T) {
	for _, cfg := range []machine.Config{plain, {Threads: 1, BLAS: "none", NoOptimize: true}} {
		g := G.NewGraph()
		x := list(g, "x", []float64{-1, 0, 1})
		y := G.Must(G.Gte(x, G.NewConstant(0.0), false))
		both := G.Must(G.Eq(y, G.Must(G.Lt(x, G.NewConstant(0.5), false)), false))
		var read G.Value
		G.Read(y, &read)
		m := newMachine(t, g, cfg, both)
		for _, c := range []struct {
			x          []float64
			over, same []bool
		}{{[]float64{-1, 0, 1}, []bool{false, true, true}, []bool{false, true, false}}, {[]float64{0.2, -3, 9}, []bool{true, false, true}, []bool{true, false, false}}} {
			let(t, x, gtensor.New(gtensor.WithShape(3), gtensor.WithBacking(c.x)))
			run(t, m)
			if !reflect.DeepEqual(read.Data(), c.over) || !reflect.DeepEqual(both.Value().Data(), c.same) {
				t.Errorf("of %v: read %v, compared %v; want %v and %v", c.x, read, both.Value(), c.over, c.same)
			}
			m.Reset()
		}
	}
}

// TestConvertedNumbersHaveGradients converts to float32 and back: the tape machine cannot convert
// between floats at all.
func TestConvertedNumbersHaveGradients(t *testing.T) {
	g := G.NewGraph()
	x := list(g, "x", []float64{0.5, -1.25, 3})
	y := G.Must(G.ConvType(G.Must(G.ConvType(x, G.Float64, G.Float32)), G.Float32, G.Float64))
	grads, err := G.Grad(G.Must(G.Sum(G.Must(G.Square(y)))), x)
	if err != nil {
		t.Fatal(err)
	}
	run(t, newMachine(t, g, plain, y, grads[0]))
	want(t, "the numbers", y.Value(), 0.5, -1.25, 3)
	want(t, "the gradient", grads[0].Value(), 1, -2.5, 6)
}
