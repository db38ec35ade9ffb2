package ops_test

import (
	"fmt"
	"hash"
	"hash/fnv"
	"slices"
	"strings"
	"testing"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// inPlace are uses of a parameter w, and an equal input x, after which the tape machine may write
// into w's memory.
var inPlace = []struct {
	name   string
	copies bool // the hook must copy
	build  func(w, x *gorgonia.Node) *gorgonia.Node
}{
	{"matrix product", false, func(w, x *gorgonia.Node) *gorgonia.Node {
		return gorgonia.Must(gorgonia.Mul(w, gorgonia.Must(gorgonia.Transpose(x))))
	}},
	{"right operand of a sum", false, func(w, x *gorgonia.Node) *gorgonia.Node {
		return gorgonia.Must(gorgonia.Add(gorgonia.Must(gorgonia.Tanh(x)), w))
	}},
	{"left operand of a sum", true, func(w, x *gorgonia.Node) *gorgonia.Node {
		return gorgonia.Must(gorgonia.Add(w, x))
	}},
	{"square", true, func(w, _ *gorgonia.Node) *gorgonia.Node { // its gradient is w + w
		return gorgonia.Must(gorgonia.Square(w))
	}},
	{"reshape and sum", true, func(w, x *gorgonia.Node) *gorgonia.Node { // gorgonia issue 511
		n := x.Shape().TotalSize()
		return gorgonia.Must(gorgonia.Add(gorgonia.Must(gorgonia.Reshape(w, gtensor.Shape{n})), gorgonia.Must(gorgonia.Reshape(x, gtensor.Shape{n}))))
	}},
	{"two uses", true, func(w, x *gorgonia.Node) *gorgonia.Node {
		return gorgonia.Must(gorgonia.Add(gorgonia.Must(gorgonia.HadamardProd(w, x)), gorgonia.Must(gorgonia.Sub(w, x))))
	}},
}

// TestHooksNeverLetTheMachineWriteIntoAParameter runs every use as a whole graph, pruned, and its
// forward part alone, as one does to evaluate: there no Start keeps the hook's output alive.
func TestHooksNeverLetTheMachineWriteIntoAParameter(t *testing.T) {
	for _, use := range inPlace {
		for _, forwardOnly := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/forward only %v", use.name, forwardOnly), func(t *testing.T) {
				g := gorgonia.NewGraph()
				w, x := overlapParam(g, "w", 2, 3), overlapParam(g, "x", 2, 3)
				out := use.build(w, x)
				cost := gorgonia.Must(gorgonia.Sum(out))
				grads, _, hooks, _ := hookAll(t, cost, gorgonia.Nodes{w})
				if hooks[0].Copies() != use.copies {
					t.Errorf("Copies is %v, want %v", hooks[0].Copies(), use.copies)
				}
				before := slices.Clone(w.Value().Data().([]float64))
				vm := gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(w))
				if forwardOnly {
					vm = gorgonia.NewTapeMachine(g.SubgraphRoots(cost))
				}
				defer vm.Close()
				for range 2 {
					if err := vm.RunAll(); err != nil {
						t.Fatal(err)
					}
					if after := w.Value().Data().([]float64); !slices.Equal(after, before) {
						t.Fatalf("the run changed w from %v to %v", before, after)
					}
					vm.Reset()
				}
				_ = grads
			})
		}
	}
}

// TestReshapeOfAPlainParameterIsWritten is gorgonia issue 511, which hooks work around.
func TestReshapeOfAPlainParameterIsWritten(t *testing.T) {
	g := gorgonia.NewGraph()
	w, x := overlapParam(g, "w", 2, 3), overlapParam(g, "x", 6)
	gorgonia.Must(gorgonia.Add(gorgonia.Must(gorgonia.Reshape(w, gtensor.Shape{6})), x))
	before := slices.Clone(w.Value().Data().([]float64))
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	if slices.Equal(w.Value().Data().([]float64), before) {
		t.Error("w is intact: gorgonia has repaired issue 511")
	}
}

// collider is an identity with a given hash.
type collider struct {
	name string
	hash uint32
	gain float64
}

func (c *collider) Arity() int { return 1 }
func (c *collider) Type() hm.Type {
	return hm.NewFnType(hm.TypeVariable('a'), hm.TypeVariable('a'))
}

func (c *collider) InferShape(ds ...gorgonia.DimSizer) (gtensor.Shape, error) {
	return ds[0].(gtensor.Shape).Clone(), nil
}

func (c *collider) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	v, err := gorgonia.CloneValue(in[0])
	if err != nil {
		return nil, err
	}
	return gtensor.Mul(v.(*gtensor.Dense), c.gain, gtensor.UseUnsafe())
}
func (c *collider) ReturnsPtr() bool      { return true }
func (c *collider) CallsExtern() bool     { return false }
func (c *collider) OverwritesInput() int  { return -1 }
func (c *collider) WriteHash(h hash.Hash) { h.Reset(); fmt.Fprint(h, c.hash) } // as if all that came before had cancelled
func (c *collider) Hashcode() uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, c.name)
	return h.Sum32()
}
func (c *collider) String() string       { return c.name }
func (c *collider) DiffWRT(n int) []bool { return []bool{true} }
func (c *collider) SymDiff(_ gorgonia.Nodes, _, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	return gorgonia.Nodes{gorgonia.Must(gorgonia.Mul(grad, gorgonia.NewConstant(c.gain)))}, nil
}

func TestGradRefusesNodesThatTheMachineWouldMerge(t *testing.T) {
	build := func(second uint32) (cost *gorgonia.Node, params gorgonia.Nodes) {
		g := gorgonia.NewGraph()
		w := overlapParam(g, "w", 2, 3)
		a := gorgonia.Must(gorgonia.ApplyOp(&collider{"double", 7, 2}, w))
		b := gorgonia.Must(gorgonia.ApplyOp(&collider{"triple", second, 3}, w))
		return gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Add(a, b)))), gorgonia.Nodes{w}
	}
	valueOf := func(cost *gorgonia.Node) float64 {
		vm := gorgonia.NewTapeMachine(cost.Graph())
		defer vm.Close()
		if err := vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		return cost.Value().Data().(float64)
	}
	distinct, _ := build(8)
	colliding, params := build(7)
	if valueOf(distinct) == valueOf(colliding) {
		t.Fatal("the machine keeps nodes of one hash apart: the check has become needless")
	}
	o, err := ops.NewOverlap(colliding, tracedStep{new([]string)})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Add(hookOne(t, params[0])); err != nil {
		t.Fatal(err)
	}
	_, err = o.Grad()
	if err == nil || !strings.Contains(err.Error(), "double") || !strings.Contains(err.Error(), "triple") {
		t.Errorf("Grad is %v, want an error naming both nodes", err)
	}
}

func TestScalarParametersAreHooked(t *testing.T) {
	g := gorgonia.NewGraph()
	x := overlapParam(g, "x", 4)
	m := gorgonia.NewScalar(g, gorgonia.Float64, gorgonia.WithName("m"), gorgonia.WithValue(2.5))
	cost := gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Mul(x, m))))))
	hookAll(t, cost, gorgonia.Nodes{m})
	got := gradientsOf(t, gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(m)), gorgonia.Nodes{m})
	// d/dm mean((m x)^2) = 2 m mean(x^2), x = 1/4, 2/4, 3/4, 1
	if want := 2 * 2.5 * (1 + 4 + 9 + 16) / 64.0; got[0][0] != want {
		t.Errorf("gradient of m is %v, want %v", got[0][0], want)
	}
}

func TestElementsIsCOrderWhateverTheStrides(t *testing.T) {
	d := gtensor.New(gtensor.WithShape(2, 3), gtensor.WithBacking([]float64{1, 2, 3, 4, 5, 6}))
	transposed := d.Clone().(*gtensor.Dense)
	if err := transposed.T(); err != nil {
		t.Fatal(err)
	}
	one, err := gtensor.New(gtensor.WithBacking([]float64{8, 9})).Slice(gtensor.S(0, 2, 2))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		value gorgonia.Value
		want  []float64
		alias bool
	}{
		{"dense", d, []float64{1, 2, 3, 4, 5, 6}, true},
		{"transposed", transposed, []float64{1, 4, 2, 5, 3, 6}, false},
		{"scalar", gorgonia.NewF64(7), []float64{7}, true},
		{"one of every second", one, []float64{8}, true},
	} {
		b, err := ops.Elements(c.value)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		data, err := tensor.Data[float64](b)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if !slices.Equal(data, c.want) {
			t.Errorf("%s: elements %v, want %v", c.name, data, c.want)
		}
		if alias := uintptr(b.Pointer()) == c.value.Uintptr(); alias != c.alias {
			t.Errorf("%s: aliases %v, want %v", c.name, alias, c.alias)
		}
	}
	if _, err := ops.Elements(nil); err == nil {
		t.Error("no error for nil")
	}
}

// TestRewireMovesOneEdge checks gorgonia's behavior that Rewire needs: machines run and
// differentiate a node's own children, and stale entries in the graph's list of parents do no harm.
func TestRewireMovesOneEdge(t *testing.T) {
	g := gorgonia.NewGraph()
	a, b := overlapParam(g, "a", 3), overlapParam(g, "b", 3)
	twice := gorgonia.Must(gorgonia.Add(a, a))
	sum := gorgonia.Must(gorgonia.Sum(twice))
	hash := twice.Hashcode()
	ops.Rewire(twice, gorgonia.Nodes{b, a})
	if got := ops.Children(twice); !slices.Equal(got, gorgonia.Nodes{b, a}) {
		t.Errorf("children are %v, want b and a", got)
	}
	if twice.Hashcode() != hash {
		t.Error("the hash has changed: gorgonia no longer finds the node under it")
	}
	for _, x := range []*gorgonia.Node{a, b} {
		if users := ops.Users(x); !slices.Equal(users, gorgonia.Nodes{twice}) {
			t.Errorf("users of %q are %v, want %v", x.Name(), users, twice)
		}
	}
	double := overlapParam(g, "double", 3)
	ops.Rewire(twice, gorgonia.Nodes{b, double})
	grads, err := differentiate(sum, b, double)
	if err != nil {
		t.Fatal(err)
	}
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	if got, want := sum.Value().Data().(float64), 4.0; got != want { // 1/3 + 2/3 + 1, twice
		t.Errorf("sum is %v, want %v", got, want)
	}
	if len(grads) != 2 {
		t.Errorf("%d gradients, want 2", len(grads))
	}
	if _, err := differentiate(sum, a); err == nil {
		t.Error("the sum still depends on a")
	}
}
