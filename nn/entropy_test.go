package nn

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/machine"
)

// losses are the two functions of a loss of features, a weight and targets.
var losses = map[string]func(x, w, targets *G.Node, c CrossEntropyConfig) (*G.Node, error){
	"SparseCrossEntropy": func(x, w, targets *G.Node, c CrossEntropyConfig) (*G.Node, error) {
		logits, err := Linear(x, w, nil)
		if err != nil {
			return nil, err
		}
		return SparseCrossEntropy(logits, targets, c)
	},
	"LinearCrossEntropy": LinearCrossEntropy,
	"LinearCrossEntropy by rows": func(x, w, targets *G.Node, c CrossEntropyConfig) (*G.Node, error) {
		c.ChunkRows = 1
		return LinearCrossEntropy(x, w, targets, c)
	},
}

// A target that is no class is an error of the run, with its row and value.
func TestATargetThatIsNoClassIsAnError(t *testing.T) {
	for name, loss := range losses {
		for _, bad := range []int{-1, 5, 1 << 40} {
			g := G.NewGraph()
			x, w := input(g, "x", gtensor.Float64, make([]float64, 12), 3, 4), input(g, "w", gtensor.Float64, make([]float64, 20), 4, 5)
			cost, err := loss(x, w, intNode(g, "targets", []int{0, -100, bad}, 3), CrossEntropyConfig{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := G.Grad(cost, w); err != nil {
				t.Fatal(err)
			}
			for kind, vm := range map[string]G.VM{"tape machine": G.NewTapeMachine(g), "machine": newMachine(t, g)} {
				err := vm.RunAll()
				if want := fmt.Sprintf("row 2 has target %d, want 0 to 4, or -100", bad); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s, %s: error %v, want %q", name, kind, err, want)
				}
			}
		}
	}
}

func TestCountedIsTheNumberOfRowsThatCount(t *testing.T) {
	if n, err := Counted([]int{3, -100, 0, 2, -100}, 4, CrossEntropyConfig{}); n != 3 || err != nil {
		t.Errorf("%d rows, %v", n, err)
	}
	_, err := Counted([]int{3, 4}, 4, CrossEntropyConfig{})
	if !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "row 1 has target 4") {
		t.Errorf("error %v", err)
	}
}

func TestLossesRefuseMistakes(t *testing.T) {
	g := G.NewGraph()
	x := G.NewMatrix(g, gtensor.Float32, G.WithName("x"), G.WithShape(3, 4))
	w := G.NewMatrix(g, gtensor.Float32, G.WithName("w"), G.WithShape(4, 5))
	targets, two := G.NewVector(g, gtensor.Int, G.WithName("targets"), G.WithShape(3)), G.NewVector(g, gtensor.Int, G.WithName("two"), G.WithShape(2))
	for name, loss := range losses {
		for _, test := range []struct {
			x, targets *G.Node
			c          CrossEntropyConfig
			kind       error
			want       string
		}{
			{nil, targets, CrossEntropyConfig{}, dist.ErrInvalid, "no input"},
			{x, nil, CrossEntropyConfig{}, dist.ErrInvalid, "no targets"},
			{x, x, CrossEntropyConfig{}, dist.ErrDType, `targets "x" is float32, want int`},
			{x, two, CrossEntropyConfig{}, dist.ErrCount, `targets "two" have shape (2), want (3)`},
			{x, targets, CrossEntropyConfig{LabelSmoothing: 1.5}, dist.ErrInvalid, "label smoothing 1.5"},
			{x, targets, CrossEntropyConfig{IgnoreIndex: new(1 << 25)}, dist.ErrInvalid, "ignore index 33554432"},
		} {
			if _, err := loss(test.x, w, test.targets, test.c); !errors.Is(err, test.kind) || !strings.Contains(fmt.Sprint(err), test.want) {
				t.Errorf("%s: error %v, want %v with %q", name, err, test.kind, test.want)
			}
		}
	}
}

// building is held while a graph is built: Gorgonia counts some ops in a variable without a lock.
var building sync.Mutex

// partly is a loss over some rows of a batch, with a weight of its own.
type partly struct {
	loss    func(x, w, targets *G.Node, c CrossEntropyConfig) (*G.Node, error)
	targets []int
}

const partIn, partClasses = 4, 5

// build returns the graph for n rows.
func (p partly) build(first, n int) (g *G.ExprGraph, w, cost *G.Node, err error) {
	building.Lock()
	defer building.Unlock()
	x, weight := make([]float64, n*partIn), make([]float64, partIn*partClasses)
	for i := range x {
		k := first*partIn + i
		x[i] = float64(k*k%7) / 3
	}
	for i := range weight {
		weight[i] = float64(i*i%11) / 5
	}
	g = G.NewGraph()
	w = input(g, "w", gtensor.Float64, weight, partIn, partClasses)
	cost, err = p.loss(input(g, "x", gtensor.Float64, x, n, partIn), w, intNode(g, "targets", p.targets[first:first+n], n), CrossEntropyConfig{})
	return g, w, cost, err
}

// onRank returns the gradient on a rank of two, of half of the rows.
func (p partly) onRank(t *testing.T, world *dist.World) ([]float64, error) {
	half := len(p.targets) / 2
	first := half * world.Rank()
	g, w, cost, err := p.build(first, half)
	if err != nil {
		return nil, err
	}
	d, err := ddp.Attach(world, cost, G.Nodes{w}, ddp.Config{})
	if err != nil {
		return nil, err
	}
	n, err := Counted(p.targets[first:first+half], partClasses, CrossEntropyConfig{})
	if err != nil {
		return nil, err
	}
	m, err := machine.New(g, oneThread)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(d.SetWeight(float64(n)), m.RunAll()); err != nil {
		return nil, err
	}
	grad, err := w.Grad()
	if err != nil {
		return nil, err
	}
	return floats(t, grad), errors.Join(m.Close(), d.Close())
}

// With the counted rows as weights two ranks get the gradient of all rows, whatever their parts.
func TestRanksWeighTheRowsThatCount(t *testing.T) {
	targets := []int{1, -100, 4, -100, -100, 0} // two rows count on rank 0, one on rank 1
	for name, loss := range losses {
		p := partly{loss, targets}
		g, w, cost, err := p.build(0, len(targets))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := G.Grad(cost, w); err != nil {
			t.Fatal(err)
		}
		if err := newMachine(t, g).RunAll(); err != nil {
			t.Fatal(err)
		}
		want := floats(t, w.Deriv().Value())
		worlds, err := sim.New(2, sim.Config{})
		if err != nil {
			t.Fatal(err)
		}
		var ranks sync.WaitGroup
		for _, world := range worlds {
			ranks.Go(func() {
				got, err := p.onRank(t, world)
				if err != nil {
					t.Errorf("%s, rank %d: %v", name, world.Rank(), errors.Join(err, world.Abort(err)))
				} else {
					near(t, fmt.Sprintf("%s, rank %d", name, world.Rank()), got, want, 1e-12)
				}
				if err := world.Close(); err != nil && !t.Failed() {
					t.Error(err)
				}
			})
		}
		ranks.Wait()
	}
}
