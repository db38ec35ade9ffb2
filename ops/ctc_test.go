package ops_test

import (
	"errors"
	"math"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
)

// ctcOp is the op of the gradient of a CTCLoss of 2 steps, 1 sequence and 3 classes.
func ctcOp(t *testing.T) G.Op {
	t.Helper()
	g := G.NewGraph()
	ints := func(name string) *G.Node { return G.NewVector(g, G.Int, G.WithName(name), G.WithShape(1)) }
	x := G.NewTensor(g, G.Float32, 3, G.WithName("x"), G.WithShape(2, 1, 3))
	loss := G.Must(G.CTCLoss(x, ints("labels"), ints("steps"), ints("lengths"), G.ReductionSum))
	grads, err := ops.Grad(loss, x)
	if err != nil {
		t.Fatal(err)
	}
	return grads[0].Op()
}

func doCTC(op G.Op, x []float32, label, steps, length int) (G.Value, error) {
	ints := func(v int) G.Value {
		return gtensor.New(gtensor.WithShape(1), gtensor.WithBacking([]int{v}))
	}
	logs := gtensor.New(gtensor.WithShape(2, 1, 3), gtensor.WithBacking(x))
	return op.Do(logs, ints(label), ints(steps), ints(length), G.NewF32(1))
}

// TestCTCGradientOfFloat32 has probabilities of 1/4 and 1/2: the paths of label 1 are "1 1", "1 -"
// and "- 1", where - is the blank.
func TestCTCGradientOfFloat32(t *testing.T) {
	quarter, half := float32(math.Log(0.25)), float32(math.Log(0.5))
	v, err := doCTC(ctcOp(t), []float32{quarter, half, quarter, half, quarter, quarter}, 1, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	// The paths have the probabilities 2/16, 4/16 and 1/16.
	want := []float64{-1. / 7, -6. / 7, 0, -4. / 7, -3. / 7, 0}
	for i, got := range v.Data().([]float32) {
		if math.Abs(float64(got)-want[i]) > 1e-6 {
			t.Errorf("gradient %d is %v, want %v", i, got, want[i])
		}
	}
}

func TestCTCGradientRefusesLabelsAndLengthsOutOfRange(t *testing.T) {
	op := ctcOp(t)
	for name, c := range map[string][3]int{
		"a label after the last": {3, 2, 1}, "a label before the first": {-1, 2, 1},
		"no steps": {1, 0, 1}, "too many steps": {1, 3, 1},
		"too many labels": {1, 2, 2}, "labels below 0": {1, 2, -1},
	} {
		_, err := doCTC(op, make([]float32, 6), c[0], c[1], c[2])
		if !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("%s: error %v, want ErrInvalid", name, err)
		}
	}
}

// TestTwoCostsShareAWrongDerivative differentiates two costs of one graph that use the same Log2.
func TestTwoCostsShareAWrongDerivative(t *testing.T) {
	g := G.NewGraph()
	x := G.NewVector(g, G.Float64, G.WithName("x"), G.WithShape(2))
	y := G.Must(G.Log2(x))
	first, second := G.Must(G.Sum(y)), G.Must(G.Sum(G.Must(G.Square(y))))
	for _, cost := range []*G.Node{first, second} {
		if node, err := ops.CorrectDerivatives(cost); err != nil || node != cost {
			t.Fatalf("node %v, error %v, want the cost", node, err)
		}
		for _, u := range ops.Below(cost).ToSlice() {
			if u != y && ops.Children(u).Contains(y) && u.Op().Arity() == 1 {
				t.Errorf("%v still reads the Log2 itself", u)
			}
		}
	}
}
