package machine_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/machine"
)

// virtual has the methods that programs call on a machine; Set is not in gorgonia.VM.
type virtual interface {
	G.VM
	Set(a, b *G.Node) error
}

// draws returns the same numbers for both machines.
type draws struct{ rng *rand.Rand }

func newDraws() draws { return draws{rand.New(rand.NewPCG(45, 4))} }

func (s draws) dense(dt gtensor.Dtype, scale float64, shape ...int) *gtensor.Dense {
	d := gtensor.New(gtensor.Of(dt), gtensor.WithShape(shape...))
	for i := range countOf(shape) {
		if x := scale * s.rng.NormFloat64(); dt == gtensor.Float32 {
			d.Set(i, float32(x))
		} else {
			d.Set(i, x)
		}
	}
	return d
}

func countOf(shape []int) int { return gtensor.Shape(shape).TotalSize() }

// program is a training or a prediction in the form of one of Gorgonia's examples; its results are
// compared.
type program func(newVM func(g *G.ExprGraph, lisp bool, bound ...*G.Node) (virtual, error)) ([]float64, error)

// TestProgramsRunAfterTheSwap runs programs with Gorgonia's machine and with New instead.
func TestProgramsRunAfterTheSwap(t *testing.T) {
	upstream := func(g *G.ExprGraph, lisp bool, bound ...*G.Node) (virtual, error) {
		if lisp {
			return withoutSet{G.NewLispMachine(g, G.ExecuteFwdOnly())}, nil
		}
		if len(bound) == 0 {
			return G.NewTapeMachine(g), nil
		}
		return G.NewTapeMachine(g, G.BindDualValues(bound...)), nil
	}
	swapped := func(g *G.ExprGraph, _ bool, _ ...*G.Node) (virtual, error) { return machine.New(g, plain) }
	for name, c := range map[string]struct {
		run program
		tol float64
	}{
		"linear regression":             {linearRegression, 1e-12},
		"logistic regression":           {logisticRegression, 1e-12},
		"convolutional net":             {convolutionalNet, 2e-4},
		"characters, forward by a lisp": {characters, 1e-12},
	} {
		t.Run(name, func(t *testing.T) {
			expected, err := c.run(upstream)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.run(swapped)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(expected) || len(got) == 0 {
				t.Fatalf("%d numbers, want %d", len(got), len(expected))
			}
			for i := range got {
				if !(math.Abs(got[i]-expected[i]) <= c.tol*math.Max(1, math.Abs(expected[i]))) {
					t.Errorf("number %d is %v, want %v", i, got[i], expected[i])
				}
			}
		})
	}
}

// withoutSet is a VM without Set.
type withoutSet struct{ G.VM }

// Set returns an error.
func (withoutSet) Set(a, b *G.Node) error { return fmt.Errorf("set %v %v", a, b) }

// withElements appends the elements of values.
func withElements(all []float64, values ...G.Value) []float64 {
	for _, v := range values {
		switch d := v.Data().(type) {
		case float64:
			all = append(all, d)
		case []float64:
			all = append(all, d...)
		case []float32:
			for _, x := range d {
				all = append(all, float64(x))
			}
		case float32:
			all = append(all, float64(d))
		case []bool:
			for _, x := range d {
				if x {
					all = append(all, 1)
				} else {
					all = append(all, 0)
				}
			}
		default:
			panic(fmt.Sprintf("a value of %T is not compared", d))
		}
	}
	return all
}

// linearRegression is the iris example: a table of four columns and ones, read costs, a plain
// solver.
func linearRegression(newVM func(*G.ExprGraph, bool, ...*G.Node) (virtual, error)) ([]float64, error) {
	s := newDraws()
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(30, 5), G.WithValue(s.dense(G.Float64, 1, 30, 5)))
	y := G.NewVector(g, G.Float64, G.WithName("y"), G.WithShape(30), G.WithValue(s.dense(G.Float64, 1, 30)))
	theta := G.NewVector(g, G.Float64, G.WithName("theta"), G.WithShape(5), G.WithValue(s.dense(G.Float64, 1, 5)))
	pred := G.Must(G.Mul(x, theta))
	cost := G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(pred, y))))))
	var predicted, read G.Value
	G.Read(pred, &predicted)
	G.Read(cost, &read)
	if _, err := G.Grad(cost, theta); err != nil {
		return nil, err
	}
	vm, err := newVM(g, false, theta)
	if err != nil {
		return nil, err
	}
	solver := G.NewVanillaSolver(G.WithLearnRate(0.1))
	var all []float64
	for range 20 {
		if err := vm.RunAll(); err != nil {
			return nil, err
		}
		all = withElements(all, read, cost.Value())
		if err := solver.Step([]G.ValueGrad{theta}); err != nil {
			return nil, err
		}
		vm.Reset()
	}
	return withElements(all, predicted, theta.Value()), vm.Close()
}

// logisticRegression updates by nodes of the graph and Set, and reads classes.
func logisticRegression(newVM func(*G.ExprGraph, bool, ...*G.Node) (virtual, error)) ([]float64, error) {
	s := newDraws()
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(12, 3), G.WithValue(s.dense(G.Float64, 1, 12, 3)))
	y := G.NewVector(g, G.Float64, G.WithName("y"), G.WithShape(12), G.WithInit(G.Ones()))
	w := G.NewVector(g, G.Float64, G.WithName("w"), G.WithShape(3), G.WithValue(s.dense(G.Float64, 1, 3)))
	b := G.NewScalar(g, G.Float64, G.WithName("b"), G.WithValue(0.1))
	one := G.NewConstant(1.0)
	prob := G.Must(G.Sigmoid(G.Must(G.Add(G.Must(G.Mul(x, w)), b))))
	class := G.Must(G.Gte(prob, G.NewConstant(0.5), false))
	entropy := G.Must(G.Sub(
		G.Must(G.HadamardProd(G.Must(G.Neg(y)), G.Must(G.Log(prob)))),
		G.Must(G.HadamardProd(G.Must(G.Sub(one, y)), G.Must(G.Log(G.Must(G.Add(G.Must(G.Neg(prob)), G.NewConstant(1+1e-9)))))))))
	cost := G.Must(G.Add(G.Must(G.Mean(entropy)), G.Must(G.Mul(G.NewConstant(0.01), G.Must(G.Sum(G.Must(G.Square(w))))))))
	var classes G.Value
	G.Read(class, &classes)
	grads, err := G.Grad(cost, w, b)
	if err != nil {
		return nil, err
	}
	rate := G.NewConstant(0.1)
	nextW, nextB := G.Must(G.Sub(w, G.Must(G.Mul(rate, grads[0])))), G.Must(G.Sub(b, G.Must(G.Mul(rate, grads[1]))))
	vm, err := newVM(g, false)
	if err != nil {
		return nil, err
	}
	var all []float64
	for range 10 {
		if err := vm.RunAll(); err != nil {
			return nil, err
		}
		all = withElements(all, cost.Value(), classes)
		for _, set := range [][2]*G.Node{{w, nextW}, {b, nextB}} {
			if err := vm.Set(set[0], set[1]); err != nil {
				return nil, err
			}
		}
		vm.Reset()
	}
	return withElements(all, w.Value(), b.Value()), vm.Close()
}

// convolutionalNet is two convolutions and a product in float32, trained on new batches. It has no
// dropout, as its random numbers would differ.
func convolutionalNet(newVM func(*G.ExprGraph, bool, ...*G.Node) (virtual, error)) ([]float64, error) {
	s := newDraws()
	g := G.NewGraph()
	param := func(name string, shape ...int) *G.Node {
		return G.NewTensor(g, G.Float32, len(shape), G.WithName(name), G.WithShape(shape...), G.WithValue(s.dense(G.Float32, 0.3, shape...)))
	}
	x := G.NewTensor(g, G.Float32, 4, G.WithName("x"), G.WithShape(4, 1, 12, 12))
	y := G.NewMatrix(g, G.Float32, G.WithName("y"), G.WithShape(4, 3))
	w0, w1, w2 := param("w0", 4, 1, 3, 3), param("w1", 6, 4, 3, 3), param("w2", 6*3*3, 3)
	h := x
	for _, w := range (G.Nodes{w0, w1}) {
		c := G.Must(G.Rectify(G.Must(G.Conv2d(h, w, gtensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}))))
		h = G.Must(G.MaxPool2D(c, gtensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
	}
	out := G.Must(G.SoftMax(G.Must(G.Mul(G.Must(G.Reshape(h, gtensor.Shape{4, 6 * 3 * 3})), w2))))
	cost := G.Must(G.Neg(G.Must(G.Mean(G.Must(G.HadamardProd(out, y))))))
	var read G.Value
	G.Read(cost, &read)
	params := G.Nodes{w0, w1, w2}
	if _, err := G.Grad(cost, params...); err != nil {
		return nil, err
	}
	vm, err := newVM(g, false, params...)
	if err != nil {
		return nil, err
	}
	solver := G.NewVanillaSolver(G.WithBatchSize(4), G.WithLearnRate(0.1))
	var all []float64
	for range 6 {
		if err := G.Let(x, s.dense(G.Float32, 1, 4, 1, 12, 12)); err != nil {
			return nil, err
		}
		if err := G.Let(y, s.dense(G.Float32, 1, 4, 3)); err != nil {
			return nil, err
		}
		if err := vm.RunAll(); err != nil {
			return nil, err
		}
		all = withElements(all, read)
		if err := solver.Step(G.NodesToValueGrads(params)); err != nil {
			return nil, err
		}
		vm.Reset()
	}
	return withElements(all, w0.Value(), w1.Value(), w2.Value()), vm.Close()
}

// characters is the forward pass of a recurrent network over one-hot letters. Its losses are
// slices, and its state is passed from run to run.
func characters(newVM func(*G.ExprGraph, bool, ...*G.Node) (virtual, error)) ([]float64, error) {
	const letters, hidden, steps = 5, 4, 3
	s := newDraws()
	g := G.NewGraph()
	param := func(name string, shape ...int) *G.Node {
		return G.NewTensor(g, G.Float64, len(shape), G.WithName(name), G.WithShape(shape...), G.WithValue(s.dense(G.Float64, 0.5, shape...)))
	}
	gate := func(name string) func(x, h *G.Node) *G.Node {
		wx, wh, b := param("wx"+name, hidden, letters), param("wh"+name, hidden, hidden), param("b"+name, hidden)
		return func(x, h *G.Node) *G.Node {
			return G.Must(G.Add(G.Must(G.Add(G.Must(G.Mul(wx, x)), G.Must(G.Mul(wh, h)))), b))
		}
	}
	input, forget, output, write := gate("i"), gate("f"), gate("o"), gate("c")
	decode := param("decode", letters, hidden)
	h0 := G.NewVector(g, G.Float64, G.WithName("h0"), G.WithShape(hidden), G.WithInit(G.Zeroes()))
	c0 := G.NewVector(g, G.Float64, G.WithName("c0"), G.WithShape(hidden), G.WithInit(G.Zeroes()))
	h, c := h0, c0
	var cost *G.Node
	for k := range steps {
		hot := make([]float64, letters)
		hot[(2*k+1)%letters] = 1
		x := G.NewVector(g, G.Float64, G.WithName(fmt.Sprint("x", k)), G.WithShape(letters), G.WithValue(gtensor.New(gtensor.WithBacking(hot))))
		kept := G.Must(G.HadamardProd(G.Must(G.Sigmoid(forget(x, h))), c))
		c = G.Must(G.Add(kept, G.Must(G.HadamardProd(G.Must(G.Sigmoid(input(x, h))), G.Must(G.Tanh(write(x, h)))))))
		h = G.Must(G.HadamardProd(G.Must(G.Sigmoid(output(x, h))), G.Must(G.Tanh(c))))
		prob := G.Must(G.SoftMax(G.Must(G.Mul(decode, h))))
		loss := G.Must(G.Neg(G.Must(G.Log(G.Must(G.Slice(prob, G.S((3*k+2)%letters)))))))
		if cost == nil {
			cost = loss
		} else {
			cost = G.Must(G.Add(cost, loss))
		}
	}
	vm, err := newVM(g, true)
	if err != nil {
		return nil, err
	}
	if err := vm.RunAll(); err != nil {
		return nil, err
	}
	return withElements(nil, cost.Value()), vm.Close()
}
