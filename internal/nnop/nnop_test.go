package nnop

import (
	"math"
	"slices"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

func TestChunksHaveOneLengthExceptTheLast(t *testing.T) {
	for _, test := range []struct {
		rows, most int
		want       []int
	}{
		{1, 64, []int{0, 1}},
		{10, 4, []int{0, 4, 8, 10}},
		{10, 3, []int{0, 3, 6, 9, 10}},
		{128, 128, []int{0, 128}},
		{1000, 600, []int{0, 512, 1000}},               // halves of 500, rounded up to 64
		{1000, 501, []int{0, 500, 1000}},               // no room to round up
		{4096, 1334, []int{0, 1024, 2048, 3072, 4096}}, // four of 1024
	} {
		l := &LinearCrossEntropy{ChunkRows: test.most}
		if got := l.Chunks(test.rows); !slices.Equal(got, test.want) {
			t.Errorf("%d rows in chunks of %d: %v, want %v", test.rows, test.most, got, test.want)
		}
	}
}

// Ops read inputs in any order of memory, and return errors for values that are not those of the
// graph.
func TestOpsReadValuesInAnyOrder(t *testing.T) {
	g := G.NewGraph()
	x := G.NewMatrix(g, gtensor.Float64, G.WithName("x"), G.WithShape(2, 3))
	flat, err := NewReshape(x, 6)
	if err != nil {
		t.Fatal(err)
	}
	turned := gtensor.New(gtensor.WithShape(3, 2), gtensor.WithBacking([]float64{1, 2, 3, 4, 5, 6}))
	if err := turned.T(); err != nil {
		t.Fatal(err)
	}
	v, err := flat.Op().Do(turned)
	if err != nil {
		t.Fatal(err)
	}
	if got := v.Data().([]float64); !slices.Equal(got, []float64{1, 3, 5, 2, 4, 6}) {
		t.Errorf("a transposed matrix is %v", got)
	}
	for name, in := range map[string][]G.Value{
		"no input":       nil,
		"another number": {gtensor.New(gtensor.WithBacking([]float64{1}))},
		"no tensor":      {G.NewI(3)},
	} {
		if _, err := flat.Op().Do(in...); err == nil {
			t.Errorf("%s is no error", name)
		}
	}
}

// The error function of a number is a number, and gradients have no gradients.
func TestScalarsAndSecondGradients(t *testing.T) {
	g := G.NewGraph()
	x := G.NewScalar(g, gtensor.Float32, G.WithName("x"))
	y, err := NewErf(x)
	if err != nil {
		t.Fatal(err)
	}
	v, err := y.Op().Do(G.NewF32(0.5))
	if err != nil || v.Data().(float32) != float32(math.Erf(0.5)) {
		t.Errorf("erf(0.5) is %v, %v", v, err)
	}
	logits := G.NewMatrix(g, gtensor.Float32, G.WithName("logits"), G.WithShape(2, 3))
	targets := G.NewVector(g, gtensor.Int, G.WithName("targets"), G.WithShape(2))
	cost, err := NewSparseCrossEntropy(logits, targets, Loss{Ignore: -100})
	if err != nil {
		t.Fatal(err)
	}
	grads, err := G.Grad(cost, logits)
	if err != nil {
		t.Fatal(err)
	}
	op, ok := grads[0].Op().(G.SDOp)
	if !ok || slices.Contains(op.DiffWRT(3), true) {
		t.Errorf("the gradient %v has a gradient", grads[0].Op())
	}
	if _, err := op.SymDiff(nil, nil, nil); err == nil {
		t.Error("the gradient of a gradient is no error")
	}
}
