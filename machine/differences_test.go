package machine_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/ops"
)

// vms makes both VMs after ddp.Attach.
var vms = map[string]func(g *G.ExprGraph) (G.VM, error){
	"tape machine": func(g *G.ExprGraph) (G.VM, error) { return G.NewTapeMachine(g), nil },
	"machine":      func(g *G.ExprGraph) (G.VM, error) { return machine.New(g, plain) },
}

// attachedRun attaches on ranks, runs the VM once on each and calls check with the VM's error.
func attachedRun(t *testing.T, ranks int, newVM func(*G.ExprGraph) (G.VM, error),
	build func(rank int) (cost *G.Node, params G.Nodes), check func(rank int, err error) error,
) {
	t.Helper()
	onRanks(t, ranks, func(w *dist.World) error {
		building.Lock()
		cost, params := build(w.Rank())
		building.Unlock()
		a, err := ddp.Attach(w, cost, params, ddp.Config{})
		if err != nil {
			return err
		}
		vm, err := newVM(cost.Graph())
		if err != nil {
			return err
		}
		return errors.Join(check(w.Rank(), vm.RunAll()), vm.Close(), a.Close())
	})
}

func gradientOf(n *G.Node) []float64 {
	v, err := n.Grad()
	if err != nil || v == nil {
		return nil
	}
	d, _ := v.Data().([]float64)
	return d
}

// TestDropoutGradientIsTheForwardPassAgain: what the forward pass multiplied an element by is its
// derivative.
func TestDropoutGradientIsTheForwardPassAgain(t *testing.T) {
	for name, newVM := range vms {
		for _, p := range []float64{0, 0.2, 0.5, 0.7} {
			t.Run(fmt.Sprint(name, " ", p), func(t *testing.T) {
				var x *G.Node
				var y G.Value
				attachedRun(t, 1, newVM, func(int) (*G.Node, G.Nodes) {
					g := G.NewGraph()
					v := make([]float64, 64)
					for i := range v {
						v[i] = 1 + float64(i)
					}
					x = input64(g, "x", v, 64)
					dropped := G.Must(G.Dropout(x, p))
					G.Read(dropped, &y)
					return G.Must(G.Sum(dropped)), G.Nodes{x}
				}, func(_ int, err error) error {
					if err != nil {
						return err
					}
					kept := 0
					for i, d := range gradientOf(x) {
						want := y.Data().([]float64)[i] / float64(1+i)
						if math.Abs(d-want) > 1e-12 {
							return fmt.Errorf("element %d was multiplied by %v, its gradient is %v", i, want, d)
						}
						if d != 0 {
							kept++
						}
					}
					if kept == 0 || p == 0 && kept != 64 {
						return fmt.Errorf("%d of 64 elements have a gradient", kept)
					}
					return nil
				})
			})
		}
	}
}

// TestBatchNormInEvaluationMode: the gradient of scale·(x-mean)/√(variance+ε) by x, with a running
// variance of 4, is scale/√(4+ε). The tape machine has no such gradient and says so.
func TestBatchNormInEvaluationMode(t *testing.T) {
	for name := range vms {
		t.Run(name, func(t *testing.T) {
			var x *G.Node
			attachedRun(t, 1, func(g *G.ExprGraph) (G.VM, error) {
				if name == "tape machine" {
					return G.NewTapeMachine(g, G.EvalMode()), nil
				}
				cfg := plain
				cfg.Eval = true
				return machine.New(g, cfg)
			}, func(int) (*G.Node, G.Nodes) {
				g := G.NewGraph()
				x = input64(g, "x", []float64{1, 2, 3, 4, 5, 6, 7, 8}, 2, 1, 2, 2)
				scale, bias := input64(g, "scale", []float64{3, 3, 3, 3, 3, 3, 3, 3}, 2, 1, 2, 2), input64(g, "bias", make([]float64, 8), 2, 1, 2, 2)
				y, _, _, op, err := G.BatchNorm(x, scale, bias, 0.9, 1e-3)
				if err == nil {
					mean, variance := op.Stats()
					variance.Data().([]float64)[0] = 4
					err = op.SetStats(mean, variance)
				}
				if err != nil {
					panic(err)
				}
				return G.Must(G.Sum(y)), G.Nodes{x}
			}, func(_ int, err error) error {
				if name == "tape machine" {
					if !errors.Is(err, dist.ErrUnsupported) && (err == nil || !strings.Contains(err.Error(), "evaluation mode")) {
						return fmt.Errorf("error %v, want one that says evaluation mode", err)
					}
					return nil
				}
				for _, d := range gradientOf(x) {
					if want := 3 / math.Sqrt(4+1e-3); math.Abs(d-want) > 1e-9 {
						return fmt.Errorf("gradient %v, want %v", d, want)
					}
				}
				return err
			})
		})
	}
}

// TestBinaryXentOnTwoRanks is a graph from which Gorgonia has removed a node: the gradient of the
// mean over both ranks is -(y/w - (1-y)/(1-w)) of the mean target, divided by the number of
// elements.
func TestBinaryXentOnTwoRanks(t *testing.T) {
	out := []float64{0.2, 0.6, 0.7}
	targets := [][]float64{{0, 1, 1}, {1, 1, 0}}
	for name, newVM := range vms {
		t.Run(name, func(t *testing.T) {
			params := make([]*G.Node, 2)
			attachedRun(t, 2, newVM, func(rank int) (*G.Node, G.Nodes) {
				g := G.NewGraph()
				w := input64(g, "w", slices.Clone(out), 3)
				params[rank] = w
				return G.Must(G.Mean(G.Must(G.BinaryXent(w, input64(g, "y", slices.Clone(targets[rank]), 3))))), G.Nodes{w}
			}, func(rank int, err error) error {
				for i, d := range gradientOf(params[rank]) {
					y, w := (targets[0][i]+targets[1][i])/2, out[i]
					if want := -(y/w - (1-y)/(1-w)) / 3; math.Abs(d-want) > 1e-12 {
						return fmt.Errorf("gradient %d is %v, want %v", i, d, want)
					}
				}
				return err
			})
		})
	}
}

// TestACostWithAWrongDerivativeHasItsValue: the node that is differentiated comes after the cost. A
// second call finds it.
func TestACostWithAWrongDerivativeHasItsValue(t *testing.T) {
	for name, newVM := range vms {
		t.Run(name, func(t *testing.T) {
			g := G.NewGraph()
			x := G.NewScalar(g, G.Float64, G.WithName("x"), G.WithValue(8.0))
			cost := G.Must(G.Log2(x))
			node, err := ops.CorrectDerivatives(cost)
			if err != nil {
				t.Fatal(err)
			}
			again, err := ops.CorrectDerivatives(cost)
			if again != node || node == cost || err != nil {
				t.Errorf("the second call gives %v, error %v; want %v, not the cost", again, err, node)
			}
			if _, err := ops.Grad(cost, x); err != nil {
				t.Fatal(err)
			}
			vm, err := newVM(g)
			if err != nil {
				t.Fatal(err)
			}
			defer vm.Close()
			run(t, vm)
			want(t, "log2", cost.Value(), 3)
			d, err := x.Grad()
			if err != nil {
				t.Fatal(err)
			}
			want(t, "gradient", d, 1/(8*math.Ln2))
		})
	}
}

// TestAWrongDerivativeThatNothingNeedsIsNoError: machine refuses only where the program has the
// gradient.
func TestAWrongDerivativeThatNothingNeedsIsNoError(t *testing.T) {
	g := G.NewGraph()
	x := input64(g, "x", []float64{2, 4}, 2)
	y := G.Must(G.Log2(x))
	if _, err := G.Grad(G.Must(G.Sum(y)), x); err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, g, plain, y)
	run(t, m)
	want(t, "log2", y.Value(), 1, 2)
	if _, err := machine.New(g, plain); !errors.Is(err, dist.ErrUnsupported) {
		t.Errorf("with the gradient: %v, want ErrUnsupported", err)
	}
}

// TestUpstreamTraps keeps sentences of the page of differences that need no gradient.
func TestUpstreamTraps(t *testing.T) {
	g := G.NewGraph()
	x := input64(g, "x", []float64{1, 2, 3, 4}, 1, 1, 1, 4)
	y := G.Must(G.AveragePool1D(x, 2, 0, 2))
	m := newMachine(t, g, plain)
	run(t, m)
	want(t, "AveragePool1D", y.Value(), 2, 4) // the largest
	g = G.NewGraph()
	v := input64(g, "v", []float64{1, 2}, 2)
	if G.Must(G.SoftMax(v)) != G.Must(G.LogSoftMax(v)) {
		t.Error("SoftMax and LogSoftMax of one node are two nodes: gorgonia has repaired their hash")
	}
	g = G.NewGraph()
	v = input64(g, "v", []float64{1, 2}, 2)
	l := G.Must(G.LogSumExp(v, 0))
	m = newMachine(t, g, plain, l)
	run(t, m)
	if got, is := floats(t, l.Value())[0], math.Log(math.Exp(-1)+1+2); math.Abs(got-is) > 1e-12 {
		t.Errorf("LogSumExp is %v, not log(Σ exp(x-max) + max) = %v: gorgonia has repaired it", got, is)
	}
}

// TestGroupNormOfALargeGroup has 264 elements: the tape machine adds up their squares wrongly
// (op_group_norm.go:222).
func TestGroupNormOfALargeGroup(t *testing.T) {
	c := &covered{g: G.NewGraph(), dt: G.Float64}
	y := G.Must(G.GroupNorm(c.x(1, 1, 1, 264), c.input("scale", []float64{1}, []int{1, 1, 1, 1}),
		c.input("bias", []float64{0}, []int{1, 1, 1, 1}), 1, 1, 1e-5))
	square := func(v []float64) (sum float64) {
		for _, x := range v {
			sum += x * x / 264
		}
		return sum
	}
	if got := square(numbersOf(t, c.byDo(t, y))); math.Abs(got-1) < 1e-2 {
		t.Errorf("gorgonia's variance is %v: it has repaired its sums", got)
	}
	run(t, newMachine(t, c.g, plain, y))
	if got := square(numbersOf(t, y.Value())); math.Abs(got-1) > 1e-4 {
		t.Errorf("the variance is %v, want 1", got)
	}
}

// TestAverageOfAWindow has an image that is wider than the windows: the tape machine divides by its
// width (op_avg_pool.go:322).
func TestAverageOfAWindow(t *testing.T) {
	g := G.NewGraph()
	x := input64(g, "x", []float64{1, 2, 3, 4, 5, 6, 3, 4, 5, 6, 7, 8}, 1, 1, 2, 6)
	y := G.Must(G.AveragePool2D(x, gtensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
	m := newMachine(t, g, plain)
	run(t, m)
	want(t, "average", y.Value(), 2.5, 4.5, 6.5)
}

// TestAnIndexOutOfRangeIsAnError: the tape machine reads beyond the input.
func TestAnIndexOutOfRangeIsAnError(t *testing.T) {
	g := G.NewGraph()
	x := input64(g, "x", []float64{1, 2, 3, 4}, 2, 2)
	i := G.NewVector(g, gtensor.Int, G.WithName("i"), G.WithShape(2), G.WithValue(gtensor.New(gtensor.WithShape(2), gtensor.WithBacking([]int{0, 2}))))
	G.Must(G.ByIndices(x, i, 0))
	m := newMachine(t, g, plain)
	if err := m.RunAll(); err == nil {
		t.Error("row 2 of 2 is read")
	}
}

// TestASecondRunWithoutResetIsTheFirst: the tape machine adds up gradients.
func TestASecondRunWithoutResetIsTheFirst(t *testing.T) {
	g := G.NewGraph()
	x := input64(g, "x", []float64{1, 2}, 2)
	if _, err := G.Grad(G.Must(G.Sum(G.Must(G.Square(x)))), x); err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, g, plain)
	for range 2 {
		run(t, m)
		d, err := x.Grad()
		if err != nil {
			t.Fatal(err)
		}
		want(t, "gradient", d, 2, 4)
	}
}

// TestThePageOfDifferencesNamesTests: each row of docs/reference/gorgonia-differences.md ends with
// a test, `package.TestName`, that exists.
func TestThePageOfDifferencesNamesTests(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/gorgonia-differences.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z/]+)\\.(Test[A-Za-z0-9]+)(/[^`]*)?`")
	rows := 0
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| what") {
			continue
		}
		rows++
		cells := strings.Split(strings.TrimSpace(line), "|")
		tests := named.FindAllStringSubmatch(cells[len(cells)-2], -1)
		if len(tests) == 0 {
			t.Errorf("no test is named in %s", line)
		}
		for _, m := range tests {
			if !isTest(t, m[1], m[2]) {
				t.Errorf("package %s has no %s", m[1], m[2])
			}
			if sub := strings.TrimPrefix(m[3], "/"); m[2] == "TestDerivatives" && sub != "" &&
				!slices.ContainsFunc(deriveds, func(d derived) bool { return strings.ReplaceAll(d.name, " ", "_") == sub }) {
				t.Errorf("TestDerivatives has no row %s", sub)
			}
		}
	}
	if rows < 20 {
		t.Errorf("the page has %d rows", rows)
	}
}

func isTest(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob("../" + folder + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)")
	})
}
