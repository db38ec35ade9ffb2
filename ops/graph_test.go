package ops_test

import (
	"fmt"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
)

// issued returns the operations of w's group, as "kind name", oldest first.
func issued(w *dist.World) (ops []string) {
	for _, r := range w.Recorder().Records() {
		ops = append(ops, fmt.Sprintf("%v %s", r.Signature.Kind, r.Name))
	}
	return ops
}

func same(what string, got, want []string) error {
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s: %q, want %q", what, got, want)
	}
	return nil
}

func TestEqualCollectivesAreNotMerged(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		g := gorgonia.NewGraph()
		x := input(g, gtensor.Float64, "x", []float64{1, 2}, 2)
		var sums gorgonia.Nodes
		for range 3 {
			y, err := ops.AllReduce(w.Group, x, dist.Sum)
			if err != nil {
				return err
			}
			b, err := ops.Barrier(w.Group, y)
			if err != nil {
				return err
			}
			sums = append(sums, b)
		}
		total, err := gorgonia.ReduceAdd(sums)
		if err != nil {
			return err
		}
		if err := run(g); err != nil {
			return err
		}
		if got := len(w.Recorder().Records()); got != 6 {
			return fmt.Errorf("%d operations ran, want 6: %q", got, issued(w))
		}
		return equal("the sum", total.Value(), []float64{6, 12})
	})
}

func TestSendsToOnePeerAreNotMerged(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		g := gorgonia.NewGraph()
		x := input(g, gtensor.Float64, "x", []float64{4}, 1)
		for range 2 {
			var err error
			if w.Rank() == 0 {
				_, err = ops.Send(w.Group, x, 1)
			} else {
				_, err = ops.Recv(w.Group, x, 0, gtensor.Float64, 1)
			}
			if err != nil {
				return err
			}
		}
		if err := run(g); err != nil {
			return err
		}
		if got := len(w.Recorder().Records()); got != 2 {
			return fmt.Errorf("%d operations ran, want 2: %q", got, issued(w))
		}
		return nil
	})
}

func TestCollectivesRunInTheOrderInWhichTheyWereMade(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		g := gorgonia.NewGraph()
		a := input(g, gtensor.Float64, "a", []float64{1, 2}, 2)
		b := input(g, gtensor.Float64, "b", []float64{3, 4}, 2)
		yb, err := ops.AllGather(w.Group, b)
		if err != nil {
			return err
		}
		ya, err := ops.Broadcast(w.Group, a, 1)
		if err != nil {
			return err
		}
		gorgonia.WithName("all of b")(yb)
		ca, err := gorgonia.Sum(ya)
		if err != nil {
			return err
		}
		cb, err := gorgonia.Sum(yb)
		if err != nil {
			return err
		}
		cost, err := gorgonia.Add(ca, cb)
		if err != nil {
			return err
		}
		if _, err := differentiate(cost, a, b); err != nil {
			return err
		}
		if err := run(g); err != nil {
			return err
		}
		return same("order", issued(w), []string{"allgather all of b", "broadcast a", "reduce a.grad", "reducescatter b.grad"})
	})
}

func TestUnusedCollectivesArePrunedByCompileFunctionOnly(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		build := func() (g *gorgonia.ExprGraph, x, y *gorgonia.Node, err error) {
			g = gorgonia.NewGraph()
			x = input(g, gtensor.Float64, "x", []float64{1, 2}, 2)
			if _, err = ops.Broadcast(w.Group, x, 0); err != nil {
				return
			}
			y, err = ops.AllReduce(w.Group, x, dist.Sum)
			return
		}
		g, _, _, err := build()
		if err != nil {
			return err
		}
		if err := run(g); err != nil {
			return err
		}
		g, x, y, err := build()
		if err != nil {
			return err
		}
		prog, locs, err := gorgonia.CompileFunction(g, gorgonia.Nodes{x}, gorgonia.Nodes{y})
		if err != nil {
			return err
		}
		if err := run(g, gorgonia.WithPrecompiled(prog, locs)); err != nil {
			return err
		}
		if err := same("operations", issued(w), []string{"broadcast x", "allreduce x", "allreduce x"}); err != nil {
			return err
		}
		return equal("y", y.Value(), []float64{2, 4})
	})
}

// way is one method to run a differentiated graph.
type way struct {
	name string
	opts func(x, cost *gorgonia.Node, grads gorgonia.Nodes) ([]gorgonia.VMOpt, error)
}

var ways = []way{
	{"plain", func(_, _ *gorgonia.Node, _ gorgonia.Nodes) ([]gorgonia.VMOpt, error) { return nil, nil }},
	{"bound", func(x, _ *gorgonia.Node, _ gorgonia.Nodes) ([]gorgonia.VMOpt, error) {
		return []gorgonia.VMOpt{gorgonia.BindDualValues(x)}, nil
	}},
	{"precompiled", func(x, cost *gorgonia.Node, grads gorgonia.Nodes) ([]gorgonia.VMOpt, error) {
		inputs := x.Graph().Inputs()
		prog, locs, err := gorgonia.CompileFunction(x.Graph(), inputs, append(gorgonia.Nodes{cost}, grads...))
		return []gorgonia.VMOpt{gorgonia.WithPrecompiled(prog, locs)}, err
	}},
	{"precompiled and bound", func(x, cost *gorgonia.Node, grads gorgonia.Nodes) ([]gorgonia.VMOpt, error) {
		inputs := x.Graph().Inputs()
		prog, locs, err := gorgonia.CompileFunction(x.Graph(), inputs, append(gorgonia.Nodes{cost}, grads...))
		return []gorgonia.VMOpt{gorgonia.WithPrecompiled(prog, locs), gorgonia.BindDualValues(x)}, err
	}},
}

// steps runs forward and backward twice and returns gradient and cost, which must be the same in
// both.
func (y way) steps(w *dist.World) (first []float64, err error) {
	g := gorgonia.NewGraph()
	x := input(g, gtensor.Float64, "x", wave(6, float64(w.Rank())), 2, 3)
	cost, err := sharded(w, x)
	if err != nil {
		return nil, err
	}
	grads, err := differentiate(cost, x)
	if err != nil {
		return nil, err
	}
	opts, err := y.opts(x, cost, grads)
	if err != nil {
		return nil, err
	}
	vm := gorgonia.NewTapeMachine(g, opts...)
	defer vm.Close()
	for range 2 {
		if err := vm.RunAll(); err != nil {
			return nil, err
		}
		grad, err := x.Grad()
		if err != nil {
			return nil, err
		}
		got, err := floats(grad)
		if err != nil {
			return nil, err
		}
		if got = append(got, cost.Value().Data().(float64)); first == nil {
			first = got
		} else if !slices.Equal(got, first) {
			return nil, fmt.Errorf("%s: %v in the second step, before %v", y.name, got, first)
		}
		grad.(*gtensor.Dense).Zero() // as a solver does: bound gradients accumulate
		vm.Reset()
	}
	return first, nil
}

func TestTheWaysToRunAGraphAgreeToTheBit(t *testing.T) {
	var want [3][]float64
	for _, y := range ways {
		onRanks(t, 3, func(w *dist.World) error {
			got, err := y.steps(w)
			if err != nil {
				return err
			}
			if want[w.Rank()] == nil {
				want[w.Rank()] = got
			}
			if !slices.Equal(got, want[w.Rank()]) {
				return fmt.Errorf("%s: %v, want %v", y.name, got, want[w.Rank()])
			}
			return nil
		})
	}
}

func TestTheNumberOfACollectiveDependsOnItsGraphAlone(t *testing.T) {
	hashes := make([][]uint32, 2)
	onRanks(t, 2, func(w *dist.World) error {
		for range 2 { // a second graph starts anew
			g := gorgonia.NewGraph()
			x := input(g, gtensor.Float64, "x", []float64{1, 2}, 2)
			hashes[w.Rank()] = hashes[w.Rank()][:0]
			for range 3 {
				y, err := ops.AllReduce(w.Group, x, dist.Sum)
				if err != nil {
					return err
				}
				hashes[w.Rank()] = append(hashes[w.Rank()], y.Hashcode())
			}
		}
		return nil
	})
	if h := hashes[0]; !slices.Equal(h, hashes[1]) || h[0] == h[1] || h[1] == h[2] || h[0] == h[2] {
		t.Errorf("node hashes by rank: %x", hashes)
	}
}
