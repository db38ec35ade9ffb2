package ops_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// traced is a Reducer and a Step that records its calls and reduces over one rank, that is, not at
// all.
type traced struct {
	name   string
	events *[]string
	kept   []float64
	shape  gtensor.Shape
	fail   error
}

func (r *traced) note(what string) { *r.events = append(*r.events, what+" "+r.name) }

func (r *traced) Start(grad gorgonia.Value) error {
	r.note("start")
	b, err := ops.Elements(grad)
	if err != nil {
		return err
	}
	data, err := tensor.Data[float64](b)
	r.kept = slices.Clone(data)
	return errors.Join(err, r.fail)
}

func (r *traced) Wait() (gorgonia.Value, error) {
	r.note("wait")
	if len(r.shape) == 0 {
		return gorgonia.NewF64(r.kept[0]), nil
	}
	return gtensor.New(gtensor.WithShape(r.shape...), gtensor.WithBacking(r.kept)), nil
}

type tracedStep struct{ events *[]string }

func (s tracedStep) Begin() error { *s.events = append(*s.events, "begin"); return nil }
func (s tracedStep) Join() error  { *s.events = append(*s.events, "join"); return nil }

// overlapParam is an f64 parameter with elements 1, 2, 3, ... scaled down.
func overlapParam(g *gorgonia.ExprGraph, name string, shape ...int) *gorgonia.Node {
	n := gtensor.Shape(shape).TotalSize()
	data := make([]float64, n)
	for i := range data {
		data[i] = float64(i+1) / float64(n)
	}
	return gorgonia.NewTensor(g, gorgonia.Float64, len(shape), gorgonia.WithName(name), gorgonia.WithShape(shape...),
		gorgonia.WithValue(gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(data))))
}

// hookAll puts a hook on every parameter of a finished graph and differentiates cost.
func hookAll(t *testing.T, cost *gorgonia.Node, params gorgonia.Nodes) (gorgonia.Nodes, *ops.Overlap, []*ops.Hook, *[]string) {
	t.Helper()
	events := new([]string)
	o, err := ops.NewOverlap(cost, tracedStep{events})
	if err != nil {
		t.Fatal(err)
	}
	var hooks []*ops.Hook
	for _, w := range params {
		h := hookOne(t, w)
		h.Bind(&traced{name: w.Name(), events: events, shape: w.Shape()})
		if err := o.Add(h); err != nil {
			t.Fatal(err)
		}
		hooks = append(hooks, h)
	}
	grads, err := o.Grad()
	if err != nil {
		t.Fatal(err)
	}
	return grads, o, hooks, events
}

// hookOne puts a hook between w and all its present consumers.
func hookOne(t *testing.T, w *gorgonia.Node) *ops.Hook {
	t.Helper()
	var consumers gorgonia.Nodes
	for _, n := range w.Graph().AllNodes() {
		if ops.Children(n).Contains(w) {
			consumers = append(consumers, n)
		}
	}
	h, err := ops.NewHook(w)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range consumers {
		children := ops.Children(n)
		for i, c := range children {
			if c == w {
				children[i] = h.Node()
			}
		}
		ops.Rewire(n, children)
	}
	return h
}

// chain is a perceptron of three layers with biases and a squared error.
func chain(t *testing.T) (cost *gorgonia.Node, params gorgonia.Nodes) {
	t.Helper()
	g := gorgonia.NewGraph()
	h := overlapParam(g, "x", 4, 5)
	for i, out := range []int{6, 5, 3} {
		w := overlapParam(g, fmt.Sprintf("w%d", i), h.Shape()[1], out)
		b := overlapParam(g, fmt.Sprintf("b%d", i), 1, out)
		params = append(params, w, b)
		h = gorgonia.Must(gorgonia.BroadcastAdd(gorgonia.Must(gorgonia.Mul(h, w)), b, nil, []byte{0}))
		h = gorgonia.Must(gorgonia.Tanh(h))
	}
	return gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(h)))), params
}

// runs are the methods by which users run a graph on the stock tape machine.
var runs = []struct {
	name string
	make func(t *testing.T, cost *gorgonia.Node, params, grads gorgonia.Nodes) gorgonia.VM
}{
	{"plain", func(_ *testing.T, cost *gorgonia.Node, _, _ gorgonia.Nodes) gorgonia.VM {
		return gorgonia.NewTapeMachine(cost.Graph())
	}},
	{"bind dual values", func(_ *testing.T, cost *gorgonia.Node, params, _ gorgonia.Nodes) gorgonia.VM {
		return gorgonia.NewTapeMachine(cost.Graph(), gorgonia.BindDualValues(params...))
	}},
	{"compile function", func(t *testing.T, cost *gorgonia.Node, params, grads gorgonia.Nodes) gorgonia.VM {
		prog, locs, err := gorgonia.CompileFunction(cost.Graph(), params, append(gorgonia.Nodes{cost}, grads...))
		if err != nil {
			t.Fatal(err)
		}
		return gorgonia.NewTapeMachine(cost.Graph(), gorgonia.WithPrecompiled(prog, locs), gorgonia.BindDualValues(params...))
	}},
}

func TestStartsRunBetweenLayersAndWaitsAfterTheLast(t *testing.T) {
	want := strings.Fields(`begin start,b2 start,w2 start,b1 start,w1 start,b0 start,w0 join
		wait,b2 wait,w2 wait,b1 wait,w1 wait,b0 wait,w0`)
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], ",", " ")
	}
	for _, run := range runs {
		t.Run(run.name, func(t *testing.T) {
			cost, params := chain(t)
			grads, o, _, events := hookAll(t, cost, params)
			vm := run.make(t, cost, params, grads)
			defer vm.Close()
			for range 2 {
				*events = nil
				if err := vm.RunAll(); err != nil {
					t.Fatal(err)
				}
				vm.Reset()
				if !slices.Equal(*events, want) {
					t.Fatalf("ran\n%q, want\n%q", *events, want)
				}
			}
			var order []string
			for _, i := range o.Order() {
				order = append(order, "start "+params[i].Name())
			}
			if !slices.Equal(order, want[1:7]) {
				t.Errorf("Order is %q, want %q", order, want[1:7])
			}
		})
	}
}

// TestStartsRunBeforeTheBackwardPassEnds looks at the compiled order of the nodes: between the
// first Start and the last there are the products of the lower layers.
func TestStartsRunBeforeTheBackwardPassEnds(t *testing.T) {
	cost, params := chain(t)
	hookAll(t, cost, params)
	sorted, err := ops.Sort(cost.Graph())
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, n := range sorted {
		switch op := n.Op().(type) {
		case *ops.Start:
			kinds = append(kinds, op.Hook().Param().Name())
		case *ops.Wait, *ops.Join:
			kinds = append(kinds, "wait")
		default:
			if op != nil && strings.Contains(op.String(), "×") {
				kinds = append(kinds, "gemm")
			}
		}
	}
	// Forward; then each layer's dX and dW, its gradients started at once; the dX of the input is
	// left to the end.
	want := "gemm gemm gemm b2 gemm w2 gemm b1 gemm w1 gemm b0 gemm w0"
	if got := strings.Join(kinds, " "); !strings.HasPrefix(got, want) {
		t.Errorf("nodes run in the order\n%s, want it to begin with\n%s", got, want)
	}
}

// TestTapsAfterGradRunAtTheEnd shows why hooks exist: a node put on a gradient after gorgonia.Grad
// runs after the whole backward pass.
func TestTapsAfterGradRunAtTheEnd(t *testing.T) {
	cost, params := chain(t)
	grads, err := differentiate(cost, params...)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range grads {
		gorgonia.Must(gorgonia.Neg(g))
	}
	sorted, err := ops.Sort(cost.Graph())
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range sorted[len(sorted)-len(params):] {
		if n.Op() == nil || n.Op().String() != "neg" {
			t.Errorf("node %d of the last ones is %v; gorgonia has begun to run taps early", i, n.Op())
		}
	}
}

func TestHooksLeaveTheBitsOfGradientsAlone(t *testing.T) {
	for _, run := range runs {
		t.Run(run.name, func(t *testing.T) {
			plain, plainParams := chain(t)
			plainGrads, err := differentiate(plain, plainParams...)
			if err != nil {
				t.Fatal(err)
			}
			cost, params := chain(t)
			grads, _, _, _ := hookAll(t, cost, params)
			want := gradientsOf(t, run.make(t, plain, plainParams, plainGrads), plainParams)
			got := gradientsOf(t, run.make(t, cost, params, grads), params)
			for i := range want {
				if !slices.Equal(got[i], want[i]) {
					t.Errorf("gradient of %q is %v, want %v", params[i].Name(), got[i], want[i])
				}
			}
		})
	}
}

func gradientsOf(t *testing.T, vm gorgonia.VM, params gorgonia.Nodes) [][]float64 {
	t.Helper()
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	var out [][]float64
	for _, w := range params {
		v, err := w.Grad()
		if err != nil {
			t.Fatal(err)
		}
		b, err := ops.Elements(v)
		if err != nil {
			t.Fatal(err)
		}
		data, err := tensor.Data[float64](b)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, slices.Clone(data))
	}
	return out
}

// TestHookedGradientsAreCountedOnce is the trap of SetDerivOf under BindDualValues, which adds both
// nodes that are the derivative of the parameter. Of a hook only the Wait is.
func TestHookedGradientsAreCountedOnce(t *testing.T) {
	cost, params := chain(t)
	grads, _, _, _ := hookAll(t, cost, params)
	vm := gorgonia.NewTapeMachine(cost.Graph(), gorgonia.BindDualValues(params...))
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	for i, w := range params {
		if w.Deriv() != grads[i] {
			t.Errorf("the derivative of %q is %v, not the Wait", w.Name(), w.Deriv())
		}
		bound, err := w.Grad()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(bound.Data().([]float64), grads[i].Value().Data().([]float64)) {
			t.Errorf("bound gradient of %q is %v, the node's %v", w.Name(), bound, grads[i].Value())
		}
	}
}

// TestNoNodeSharesAHeader is for gorgonia's Unbind functions, which recycle the header of every
// value they meet.
func TestNoNodeSharesAHeader(t *testing.T) {
	cost, params := chain(t)
	_, _, hooks, _ := hookAll(t, cost, params)
	vm := gorgonia.NewTapeMachine(cost.Graph())
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	owner := map[gorgonia.Value]*gorgonia.Node{}
	for _, w := range params {
		owner[w.Value()] = w
	}
	for _, n := range cost.Graph().AllNodes() {
		switch n.Op().(type) {
		case *ops.Hook, *ops.Start, *ops.Wait, *ops.Join:
			if other := owner[n.Value()]; other != nil {
				t.Errorf("%v and %v have one header", n, other)
			}
			owner[n.Value()] = n
		}
	}
	for i, h := range hooks {
		if got, want := h.Node().Value().Uintptr(), params[i].Value().Uintptr(); got != want {
			t.Errorf("%v is not the parameter's memory", h)
		}
	}
}
