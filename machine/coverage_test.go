package machine_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"math"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/ops"
)

// allRows returns all rows of the table.
func allRows() []coverage { return slices.Concat(rowsOfElements, rowsOfShapes, rowsOfLayers) }

// TestCoverageHasEveryFunction reads Gorgonia's source: each exported function that returns a node
// has a row, or is listed among the constructors.
func TestCoverageHasEveryFunction(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "gorgonia.org/gorgonia").Output()
	if err != nil {
		t.Skipf("no go command to find the source with: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no source in %s: %v", out, err)
	}
	has := map[string]bool{}
	for _, r := range allRows() {
		if has[r.name] {
			t.Errorf("two rows for %s", r.name)
		}
		has[r.name] = true
	}
	found := 0
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			name, ok := nodeMaker(d)
			switch {
			case !ok || constructors[name] != "":
			case has[name]:
				found++
			default:
				t.Errorf("gorgonia.%s makes a node and has no row", name)
			}
		}
	}
	if found != 96 || len(has) != 96 {
		t.Errorf("%d functions in the source and %d rows, want 96 of both", found, len(has))
	}
}

// nodeMaker returns the name of an exported function that returns nodes.
func nodeMaker(d ast.Decl) (string, bool) {
	f, ok := d.(*ast.FuncDecl)
	if !ok || f.Recv != nil || !f.Name.IsExported() || f.Type.Results == nil {
		return "", false
	}
	for _, r := range f.Type.Results.List {
		if p, ok := r.Type.(*ast.StarExpr); ok && fmt.Sprint(p.X) == "Node" || fmt.Sprint(r.Type) == "Nodes" {
			return f.Name.Name, true
		}
	}
	return "", false
}

// TestCoverage runs each public function of Gorgonia that makes a node, without Fallback, and
// compares values and gradients with those of the ops' own Do. It prints the table.
func TestCoverage(t *testing.T) { printTable(t, false) }

// TestCoverageOnGPU is TestCoverage with the last column run on a GPU, compared with the CPU.
func TestCoverageOnGPU(t *testing.T) {
	cudatest.Devices(t, 1)
	printTable(t, true)
}

func printTable(t *testing.T, onGPU bool) {
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-24s %-8s %-20s %-8s %s\n", "function", "forward", "backward", "CPU", "CUDA")
	for _, r := range allRows() {
		t.Run(r.name, func(t *testing.T) {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("gorgonia: %v", p)
				}
			}()
			forward, backward := r.onCPU(t)
			onCPU := "yes"
			if t.Failed() {
				onCPU = "FAILED"
			}
			fmt.Fprintf(&table, "%-24s %-8s %-20s %-8s %s\n", r.name, forward, backward, onCPU, r.onCUDA(t, onGPU))
		})
	}
	t.Log(table.String())
}

// start builds the graph of a row. With gradients it ends in the sum of squares of all its
// floating-point nodes.
func (r *coverage) start() (c *covered, nodes []*G.Node) {
	c = &covered{g: G.NewGraph(), dt: G.Float64}
	if r.single {
		c.dt = G.Float32
	}
	return c, r.build(c)
}

// cost returns the node from which a row is differentiated.
func (c *covered) cost(nodes []*G.Node) *G.Node {
	var cost *G.Node
	for _, n := range nodes {
		if n.Dtype() != c.dt {
			continue
		}
		s := G.Must(G.Square(n))
		if !s.IsScalar() {
			s = G.Must(G.Sum(s))
		}
		if cost == nil {
			cost = s
		} else {
			cost = G.Must(G.Add(cost, s))
		}
	}
	return cost
}

// onCPU tests a row on the CPU.
func (r *coverage) onCPU(t *testing.T) (forward, backward string) {
	c, nodes := r.start()
	var log bytes.Buffer
	run(t, newMachine(t, c.g, warned(&log), nodes...))
	if log.Len() > 0 {
		t.Errorf("a warning: %s", log.String())
	}
	if !r.random {
		ref, same := r.start()
		for i, n := range same {
			equalValues(t, n.Name(), nodes[i].Value(), ref.byDo(t, n), 1e-12)
		}
	}
	if r.grad == nothing {
		return "yes", "-"
	}
	c, cost, grads, err := r.differentiate()
	switch {
	case r.grad == none && err == nil:
		t.Errorf("there is a derivative")
	case r.grad == none:
		return "yes", "none"
	case err != nil:
		t.Fatalf("ops.Grad: %v", err)
	}
	run(t, newMachine(t, c.g, plain, append(G.Nodes{cost}, grads...)...))
	for i, n := range grads {
		name, got := "gradient of "+c.inputs[i].Name(), numbersOf(t, n.Value())
		near(t, name, got, r.byDifferences(t, i), 3e-7)
	}
	return "yes", "yes"
}

// differentiate builds the graph of a row with gradients. Gorgonia panics at a missing derivative.
func (r *coverage) differentiate() (c *covered, cost *G.Node, grads G.Nodes, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("gorgonia: %v", p)
		}
	}()
	c, nodes := r.start()
	cost = c.cost(nodes)
	grads, err = ops.Grad(cost, c.inputs...)
	return c, cost, grads, err
}

// byDo returns the value of a node by the Do of its op and of its inputs' ops, on copies.
func (c *covered) byDo(t *testing.T, n *G.Node) G.Value {
	t.Helper()
	v, err := c.do(n)
	if err != nil {
		t.Fatalf("%v: %v", n, err)
	}
	return v
}

func (c *covered) do(n *G.Node) (G.Value, error) {
	if n.Op() == nil || n.Op().Arity() == 0 && n.Value() != nil {
		return G.CloneValue(n.Value())
	}
	var in []G.Value
	for _, k := range ops.Children(n) {
		v, err := c.do(k)
		if err != nil {
			return nil, err
		}
		if d, ok := v.(*gtensor.Dense); ok && k.IsScalar() && d.Dtype() == G.Float64 { // Tensordot's, which Gorgonia's scalar ops refuse
			v = G.NewF64(d.Float64s()[0])
		}
		in = append(in, v)
	}
	return n.Op().Do(in...)
}

// byDifferences returns the gradient of a row's cost by its input i: central differences by the
// ops' own Do. A row with random numbers runs in a new machine each time, which draws the same
// ones.
func (r *coverage) byDifferences(t *testing.T, i int) []float64 {
	const h = 1e-5
	c, nodes := r.start()
	cost, x := c.cost(nodes), c.inputs[i]
	at := numbersOf(t, x.Value())
	grad := make([]float64, len(at))
	for k := range at {
		for _, side := range []float64{1, -1} {
			moved := slices.Clone(at)
			moved[k] += side * h
			var v any = moved[0]
			if !x.IsScalar() {
				v = gtensor.New(gtensor.WithShape(x.Shape()...), gtensor.WithBacking(moved))
			}
			let(t, x, v)
			if r.random {
				run(t, newMachine(t, c.g, plain, cost))
				grad[k] += side * numbersOf(t, cost.Value())[0] / (2 * h)
			} else {
				grad[k] += side * numbersOf(t, c.byDo(t, cost))[0] / (2 * h)
			}
		}
	}
	return grad
}

// onCUDA fills the last column: it makes kernels from the program of values and gradients, and runs
// them if there is a GPU.
func (r *coverage) onCUDA(t *testing.T, onGPU bool) string {
	var log bytes.Buffer
	cfg := machine.Config{Device: machine.CUDA, Log: slog.New(slog.NewTextHandler(&log, nil))}
	build := func() (*G.ExprGraph, G.Nodes) {
		c, nodes := r.start()
		if r.grad == none || r.grad == nothing {
			return c.g, nodes
		}
		cost := c.cost(nodes)
		grads, err := ops.Grad(cost, c.inputs...)
		if err != nil {
			t.Fatal(err)
		}
		return c.g, append(append(G.Nodes{cost}, grads...), nodes...)
	}
	g, nodes := build()
	how := "compiled"
	if onGPU {
		how = "kernels"
		run(t, newMachine(t, g, cfg, nodes...))
		same, expected := build()
		run(t, newMachine(t, same, plain, expected...))
		for i := range nodes {
			if !r.random {
				equalValues(t, "on the GPU: "+nodes[i].Name(), nodes[i].Value(), expected[i].Value(), 1e-6)
			}
		}
	} else if _, err := machine.Foresee(g, cfg, nodes...); err != nil {
		t.Errorf("for a GPU: %v", err)
	}
	if named := log.Len() > 0; named != r.host {
		t.Errorf("warnings of host steps: %q, want some: %v", log.String(), r.host)
	}
	if r.host {
		how = "on the host, with a warning"
	}
	if t.Failed() {
		how = "FAILED"
	}
	return how
}

// equalValues compares a value with the result of an op's Do: kind, type, shape and elements.
func equalValues(t *testing.T, name string, got, want G.Value, within float64) {
	t.Helper()
	if got == nil {
		t.Errorf("%s has no value", name)
		return
	}
	if reflect.TypeOf(got.Data()) != reflect.TypeOf(want.Data()) || !slices.Equal(got.Shape(), want.Shape()) {
		t.Errorf("%s is a %T of shape %v, want %T of %v", name, got.Data(), got.Shape(), want.Data(), want.Shape())
		return
	}
	near(t, name, numbersOf(t, got), numbersOf(t, want), within)
}

// near compares numbers relative to the largest.
func near(t *testing.T, name string, got, want []float64, within float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s has %d elements, want %d", name, len(got), len(want))
		return
	}
	largest := 1.0
	for _, x := range want {
		largest = max(largest, math.Abs(x))
	}
	for i := range got {
		if !(math.Abs(got[i]-want[i]) <= within*largest) {
			t.Errorf("%s: element %d is %v, want %v", name, i, got[i], want[i])
			return
		}
	}
}

// numbersOf returns the elements of a value of any type, in C order.
func numbersOf(t *testing.T, v G.Value) []float64 {
	t.Helper()
	if d, ok := v.(*gtensor.Dense); ok && d.RequiresIterator() {
		v = d.Materialize()
	}
	x := reflect.ValueOf(v.Data())
	if x.Kind() != reflect.Slice {
		x = reflect.Append(reflect.MakeSlice(reflect.SliceOf(x.Type()), 0, 1), x)
	}
	all := make([]float64, x.Len())
	for i := range all {
		switch e := x.Index(i); {
		case e.CanFloat():
			all[i] = e.Float()
		case e.CanInt():
			all[i] = float64(e.Int())
		case e.CanUint():
			all[i] = float64(e.Uint())
		case e.Bool():
			all[i] = 1
		}
	}
	return all
}
