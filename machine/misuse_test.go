package machine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/optim"
)

func TestAnInputWithoutAValueIsNamed(t *testing.T) {
	g := G.NewGraph()
	x := G.NewVector(g, G.Float32, G.WithName("samples"), G.WithShape(2))
	G.Must(G.Square(x))
	m := newMachine(t, g, plain)
	if err := m.RunAll(); !errors.Is(err, machine.ErrNoValue) || !strings.Contains(err.Error(), "samples") {
		t.Errorf("error %v, want ErrNoValue and the input", err)
	}
	let(t, x, vector(1, 2))
	run(t, m)
}

// An input without a name is called by its number in expressions: A × B(%0, %1).
func TestAnInputWithoutANameHasANumber(t *testing.T) {
	g := G.NewGraph()
	samples := G.NewMatrix(g, G.Float32, G.WithName("samples"), G.WithShape(2, 2), G.WithInit(G.Ones()))
	x := G.NewMatrix(g, G.Float32, G.WithShape(2, 3))
	y := G.Must(G.Mul(samples, x))
	m := newMachine(t, g, plain)
	number := fmt.Sprintf("%x", x.ID())
	if err := m.RunAll(); !errors.Is(err, machine.ErrNoValue) || !strings.Contains(err.Error(), `input "node `+number+`"`) {
		t.Errorf("error %v, want ErrNoValue of node %s", err, number)
	}
	if text := m.Explain(); !strings.Contains(text, "node "+number+" f32(2, 3)") || strings.Contains(text, "%!") || !strings.Contains(y.Name(), "%"+number) {
		t.Errorf("Explain of %s has no node %s:\n%s", y.Name(), number, text)
	}
}

func TestAClosedMachineRunsNoMore(t *testing.T) {
	n := small(2)
	m, err := machine.New(n.g, plain)
	if err != nil {
		t.Fatal(err)
	}
	run(t, m)
	cost := floats(t, n.cost.Value())
	for range 2 {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := m.RunAll(); !errors.Is(err, machine.ErrClosed) {
		t.Errorf("error %v, want ErrClosed", err)
	}
	want(t, "the cost", n.cost.Value(), cost...)
}

func TestConfigsThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  machine.Config
		want string
	}{
		"device":  {machine.Config{Device: "tpu"}, `"tpu"`},
		"batch":   {machine.Config{NewBatch: "maybe"}, `"maybe"`},
		"threads": {machine.Config{Threads: -1}, "-1 threads"},
		"samples": {machine.Config{Samples: -1}, "-1 samples"},
		"blas":    {machine.Config{BLAS: "/no/such/library.so"}, "/no/such/library.so"},
	} {
		if _, err := machine.New(small(2).g, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that says %s", name, err, c.want)
		}
	}
}

// A graph that has not been differentiated has nothing to update, on any device.
func TestASolverWantsGradients(t *testing.T) {
	g := G.NewGraph()
	w := G.NewVector(g, G.Float32, G.WithName("w"), G.WithShape(2), G.WithInit(G.Ones()))
	y := G.Must(G.Sum(G.Must(G.Square(w))))
	cfg := plain
	cfg.Solver = &optim.Config{Name: optim.SGD, LearningRate: 1}
	for _, outputs := range []G.Nodes{nil, {y}} {
		_, err := machine.New(g, cfg, outputs...)
		errs := []error{err}
		for _, on := range []machine.Device{machine.CPU, machine.CUDA} {
			c := cfg
			c.Device = on
			_, err := machine.Foresee(g, c, outputs...)
			errs = append(errs, err)
		}
		for i, err := range errs {
			if !errors.Is(err, optim.ErrNoGradient) || !strings.Contains(err.Error(), "solver: the graph has no gradients") {
				t.Errorf("outputs %v, case %d: %v", outputs, i, err)
			}
		}
	}
	if _, err := G.Grad(y, w); err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, g, cfg)
	run(t, m)
	want(t, "the weights", w.Value(), -1, -1)
}

// On the CPU two graphs share a parameter if their nodes have one value, not by Config.Share.
func TestOnTheCPUParametersAreSharedByTheirValues(t *testing.T) {
	square := func(value G.Value) (w, y *G.Node) {
		w = G.NewVector(G.NewGraph(), G.Float32, G.WithName("w"), G.WithShape(2), G.WithValue(value))
		return w, G.Must(G.Sum(G.Must(G.Square(w))))
	}
	w, y := square(vector(1, 2))
	if _, err := G.Grad(y, w); err != nil {
		t.Fatal(err)
	}
	cfg := plain
	cfg.Device, cfg.Solver = machine.CPU, &optim.Config{Name: optim.SGD, LearningRate: 0.25}
	first := newMachine(t, w.Graph(), cfg)
	eval := plain
	eval.Device, eval.Share = machine.CPU, first
	one, same := square(w.Value())
	other, apart := square(vector(1, 2))
	a, b := newMachine(t, one.Graph(), eval), newMachine(t, other.Graph(), eval)
	for range 2 { // each update halves the weights
		run(t, first)
		run(t, a)
		run(t, b)
		want(t, "the shared value", one.Value(), floats(t, w.Value())...)
		want(t, "its own value", other.Value(), 1, 2)
	}
	want(t, "of the shared value", same.Value(), 0.3125)
	want(t, "of its own", apart.Value(), 5)
}

func TestGraphsThatCannotBe(t *testing.T) {
	if _, err := machine.New(nil, plain); err == nil {
		t.Error("no graph is no error")
	}
	if _, err := machine.New(G.NewGraph(), plain); err == nil || !strings.Contains(err.Error(), "no outputs") {
		t.Errorf("an empty graph: %v", err)
	}
	if _, err := machine.New(small(2).g, plain, small(2).cost); err == nil || !strings.Contains(err.Error(), "output 0") {
		t.Errorf("a node of another graph: %v", err)
	}
}

func TestLapsAreOfAnOpenMachine(t *testing.T) {
	m, err := machine.New(small(2).g, plain)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := m.Mark(); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{2, 0} { // Intervals begins anew
		if intervals, err := m.Intervals(); err != nil || len(intervals) != want {
			t.Errorf("got %v, %v, want %d", intervals, err, want)
		}
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if err := m.Mark(); !errors.Is(err, machine.ErrClosed) {
		t.Errorf("got %v, want %v", err, machine.ErrClosed)
	}
	if _, err := m.Intervals(); !errors.Is(err, machine.ErrClosed) {
		t.Errorf("got %v, want %v", err, machine.ErrClosed)
	}
}

func TestAProfileWantsAGPU(t *testing.T) {
	m, err := machine.New(small(2).g, plain)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Profile(3); !errors.Is(err, machine.ErrDevice) {
		t.Errorf("got %v, want %v", err, machine.ErrDevice)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := m.Profile(3); !errors.Is(err, machine.ErrClosed) {
		t.Errorf("got %v, want %v", err, machine.ErrClosed)
	}
}

// TestANewBatchThatRanksDoNotDivideIsNamed gives an odd number of rows to collectives that divide
// them into blocks: all ranks return an error before any sends, and continue with an even number.
func TestANewBatchThatRanksDoNotDivideIsNamed(t *testing.T) {
	for name, cut := range map[string]func(w *dist.World, x *G.Node) (*G.Node, error){
		"alltoall":      func(w *dist.World, x *G.Node) (*G.Node, error) { return ops.AllToAll(w.Group, x) },
		"reducescatter": func(w *dist.World, x *G.Node) (*G.Node, error) { return ops.ReduceScatter(w.Group, x, dist.Sum) },
		"scatter":       func(w *dist.World, x *G.Node) (*G.Node, error) { return ops.Scatter(w.Group, x, 1) },
	} {
		onRanks(t, 2, func(w *dist.World) error {
			g := G.NewGraph()
			x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(4, 2))
			y, err := cut(w, x)
			if err != nil {
				return err
			}
			m, err := machine.New(g, plain, y)
			if err != nil {
				return err
			}
			for _, rows := range []int{3, 1, 6} {
				if err := m.Let(x, gtensor.New(gtensor.Of(G.Float64), gtensor.WithShape(rows, 2))); err != nil {
					return err
				}
				err := m.RunAll()
				if rows%2 == 0 && err != nil || rows%2 != 0 && (!errors.Is(err, dist.ErrCount) || !strings.Contains(err.Error(), "do not divide")) {
					t.Errorf("%s of %d rows on rank %d: error %v", name, rows, w.Rank(), err)
				}
			}
			return m.Close()
		})
	}
}
