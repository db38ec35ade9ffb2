package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/ops"
)

// example is a layer with inputs, whose values are compared with a definition in plain loops, and
// whose gradients are compared with central differences, in float64.
type example struct {
	name   string
	shapes [][]int // of the inputs that are differentiated by
	ints   []int   // tokens or targets; nil means none
	build  func(x []*G.Node, ints *G.Node) (*G.Node, error)
	want   func(x [][]float64, ints []int) []float64
	offset float64 // added to the inputs
	bare   bool    // the result itself is the cost
}

// sample is the graph of an example. Its cost is the sum of the layer's result, with each element
// times a number of its own.
type sample struct {
	g       *G.ExprGraph
	in      G.Nodes
	y, cost *G.Node
	values  [][]float64
}

func (e example) sample(t testing.TB, dt gtensor.Dtype) *sample {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 5))
	s := &sample{g: G.NewGraph()}
	for i, shape := range e.shapes {
		v := make([]float64, gtensor.Shape(shape).TotalSize())
		for j := range v {
			v[j] = r.NormFloat64() + e.offset
		}
		s.values = append(s.values, v)
		s.in = append(s.in, input(s.g, fmt.Sprint("in", i), dt, v, shape...))
	}
	var ints *G.Node
	if e.ints != nil {
		ints = intNode(s.g, "ints", slices.Clone(e.ints), len(e.ints))
	}
	var err error
	if s.y, err = e.build(s.in, ints); err != nil {
		t.Fatal(err)
	}
	if s.cost = s.y; e.bare {
		return s
	}
	weights := make([]float64, s.y.Shape().TotalSize())
	for i := range weights {
		weights[i] = 0.5 + r.Float64()
	}
	s.cost = G.Must(G.Sum(G.Must(G.HadamardProd(s.y, input(s.g, "weights", dt, weights, s.y.Shape()...)))))
	return s
}

// input returns an input node; of float64 it shares v.
func input(g *G.ExprGraph, name string, dt gtensor.Dtype, v []float64, shape ...int) *G.Node {
	value := gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(v))
	if dt == gtensor.Float32 {
		f := make([]float32, len(v))
		for i := range f {
			f[i] = float32(v[i])
		}
		value = gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(f))
	}
	return G.NewTensor(g, dt, len(shape), G.WithName(name), G.WithShape(shape...), G.WithValue(value))
}

func intNode(g *G.ExprGraph, name string, v []int, shape ...int) *G.Node {
	return G.NewTensor(g, gtensor.Int, len(shape), G.WithName(name), G.WithShape(shape...),
		G.WithValue(gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(v))))
}

// floats returns the elements of a value.
func floats(t testing.TB, v G.Value) []float64 {
	t.Helper()
	switch e := v.Data().(type) {
	case float64:
		return []float64{e}
	case []float64:
		return slices.Clone(e)
	case float32:
		return []float64{float64(e)}
	case []float32:
		all := make([]float64, len(e))
		for i, x := range e {
			all[i] = float64(x)
		}
		return all
	}
	t.Fatalf("a value of type %T", v.Data())
	return nil
}

// near fails unless numbers agree within a bound, relative to numbers above 1.
func near(t testing.TB, what string, got, want []float64, bound float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d numbers, want %d", what, len(got), len(want))
		return
	}
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= bound*(1+math.Abs(want[i]))) {
			t.Errorf("%s: element %d is %v, want %v", what, i, got[i], want[i])
			return
		}
	}
}

var oneThread = machine.Config{Threads: 1, BLAS: "none"}

// newMachine returns a machine and closes it at the end of the test.
func newMachine(t testing.TB, g *G.ExprGraph, outputs ...*G.Node) *machine.Machine {
	t.Helper()
	return newMachineOf(t, oneThread, g, outputs...)
}

func newMachineOf(t testing.TB, c machine.Config, g *G.ExprGraph, outputs ...*G.Node) *machine.Machine {
	t.Helper()
	m, err := machine.New(g, c, outputs...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// differences returns the central differences of the cost by each element of each input.
func (s *sample) differences(t testing.TB) [][]float64 {
	t.Helper()
	m := newMachine(t, s.g, s.cost)
	const h = 1e-5
	cost := func() float64 {
		if err := m.RunAll(); err != nil {
			t.Fatal(err)
		}
		return floats(t, s.cost.Value())[0]
	}
	var all [][]float64
	for _, x := range s.values {
		d := make([]float64, len(x))
		for j, x0 := range x {
			x[j] = x0 + h
			up := cost()
			x[j] = x0 - h
			d[j] = (up - cost()) / (2 * h)
			x[j] = x0
		}
		all = append(all, d)
	}
	return all
}

// TestLayers compares the values of each layer with its definition, and its gradients with central
// differences, on the tape machine and on package machine.
func TestLayers(t *testing.T) {
	for _, e := range append(examples(), moreExamples()...) {
		t.Run(e.name, func(t *testing.T) {
			s := e.sample(t, gtensor.Float64)
			want := e.want(s.values, e.ints)
			differences := s.differences(t)
			for _, vm := range []string{"tape machine", "machine", "unoptimized machine"} {
				s := e.sample(t, gtensor.Float64)
				if _, err := ops.Grad(s.cost, s.in...); err != nil {
					t.Fatal(err)
				}
				var y G.Value
				G.Read(s.y, &y)
				var m G.VM = G.NewTapeMachine(s.g)
				if vm != "tape machine" {
					m = newMachineOf(t, machine.Config{Threads: 1, BLAS: "none", NoOptimize: vm != "machine"}, s.g)
				}
				if err := m.RunAll(); err != nil {
					t.Fatal(err)
				}
				near(t, vm, floats(t, y), want, 1e-12)
				for i, in := range s.in {
					g, err := in.Grad()
					if err != nil {
						t.Fatal(err)
					}
					near(t, fmt.Sprintf("%s: gradient of input %d", vm, i), floats(t, g), differences[i], 1e-6)
				}
				near(t, vm+": an input after the run", s.values[0], e.sample(t, gtensor.Float64).values[0], 0)
			}
			narrow := e.sample(t, gtensor.Float32)
			m := newMachine(t, narrow.g, narrow.y)
			if err := m.RunAll(); err != nil {
				t.Fatal(err)
			}
			near(t, "float32", floats(t, narrow.y.Value()), want, 2e-5)
		})
	}
}

// Every layer and its gradients have kernels for a GPU, in each precision.
func TestLayersHaveKernels(t *testing.T) {
	for _, e := range append(examples(), moreExamples()...) {
		for _, compute := range []string{"f32", "bf16"} {
			s := e.sample(t, gtensor.Float32)
			if _, err := ops.Grad(s.cost, s.in...); err != nil {
				t.Fatal(err)
			}
			f, err := machine.Foresee(s.g, machine.Config{Device: machine.CUDA, Compute: compute})
			if err != nil || f.Arena < 0 {
				t.Errorf("%s, %s: %v", e.name, compute, err)
			}
		}
	}
}
