package ops_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// wantError checks that err matches the sentinel and says all of the words.
func wantError(err, sentinel error, words ...string) error {
	if !errors.Is(err, sentinel) {
		return fmt.Errorf("error %v is no %q", err, sentinel)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			return fmt.Errorf("error %q does not say %q", err, w)
		}
	}
	return nil
}

func TestMistakesAreFoundWhenTheGraphIsBuilt(t *testing.T) {
	on := func(shape ...int) func(g *gorgonia.ExprGraph) *gorgonia.Node {
		return func(g *gorgonia.ExprGraph) *gorgonia.Node {
			return input(g, gtensor.Float64, "x", wave(max(1, size(shape)), 1), shape...)
		}
	}
	ofType := func(dt gtensor.Dtype, shape ...int) func(g *gorgonia.ExprGraph) *gorgonia.Node {
		return func(g *gorgonia.ExprGraph) *gorgonia.Node {
			return gorgonia.NewTensor(g, dt, len(shape), gorgonia.WithName("x"), gorgonia.WithShape(shape...))
		}
	}
	type node = *gorgonia.Node
	for _, c := range []struct {
		name  string
		x     func(g *gorgonia.ExprGraph) *gorgonia.Node
		apply func(g *dist.Group, x node) (node, error)
		err   error
		words []string
	}{
		{
			"reducescatter of 5 rows", on(5, 3), func(g *dist.Group, x node) (node, error) { return ops.ReduceScatter(g, x, dist.Sum) },
			dist.ErrCount,
			[]string{`reducescatter sum of "x"`, "(5, 3)", "length 5", "2 ranks", "rank 1/2"},
		},
		{
			"scatter of 3", on(3), func(g *dist.Group, x node) (node, error) { return ops.Scatter(g, x, 1) },
			dist.ErrCount,
			[]string{`scatter from 1 of "x"`, "(3)", "2 ranks"},
		},
		{
			"scatter of an unnamed node",
			func(g *gorgonia.ExprGraph) node { return gorgonia.NewVector(g, gtensor.Float64, gorgonia.WithShape(3)) },
			func(g *dist.Group, x node) (node, error) { return ops.Scatter(g, x, 1) }, dist.ErrCount,
			[]string{`from 1 of "node 0"`},
		},
		{
			"alltoall of 1 row", on(1, 4), func(g *dist.Group, x node) (node, error) { return ops.AllToAll(g, x) },
			dist.ErrCount,
			[]string{`alltoall of "x"`, "(1, 4)", "2 ranks"},
		},
		{
			"allgather of a scalar", on(), func(g *dist.Group, x node) (node, error) { return ops.AllGather(g, x) },
			dist.ErrCount,
			[]string{`allgather of "x"`, "scalar", "reshape"},
		},
		{
			"gather of a scalar", on(), func(g *dist.Group, x node) (node, error) { return ops.Gather(g, x, 0) },
			dist.ErrCount,
			[]string{"scalar"},
		},
		{
			"scatter of a scalar", on(), func(g *dist.Group, x node) (node, error) { return ops.Scatter(g, x, 0) },
			dist.ErrCount,
			[]string{"scalar"},
		},
		{
			"reducescatter of a scalar", on(), func(g *dist.Group, x node) (node, error) { return ops.ReduceScatter(g, x, dist.Sum) },
			dist.ErrCount,
			[]string{"scalar"},
		},
		{
			"alltoall of a scalar", on(), func(g *dist.Group, x node) (node, error) { return ops.AllToAll(g, x) },
			dist.ErrCount,
			[]string{"scalar"},
		},
		{
			"send of a scalar", on(), func(g *dist.Group, x node) (node, error) { return ops.Send(g, x, 0) },
			dist.ErrCount,
			[]string{`send to 0 of "x"`, "scalar"},
		},
		{
			"recv of a scalar", on(), func(g *dist.Group, x node) (node, error) { return ops.Recv(g, x, 0, gtensor.Float64) },
			dist.ErrCount,
			[]string{"recv from 0", "shape (1)"},
		},
		{
			"recv of no rows", on(2), func(g *dist.Group, x node) (node, error) { return ops.Recv(g, x, 0, gtensor.Float64, 0, 2) },
			dist.ErrCount,
			[]string{"(0, 2)"},
		},
		{
			"recv of bools", on(2), func(g *dist.Group, x node) (node, error) { return ops.Recv(g, x, 0, gtensor.Bool, 2) },
			dist.ErrDType,
			[]string{"bool"},
		},
		{
			"recv after bools", ofType(gtensor.Bool, 2), func(g *dist.Group, x node) (node, error) { return ops.Recv(g, x, 0, gtensor.Float64, 2) },
			dist.ErrDType,
			[]string{`recv from 0 of "x"`, "bool"},
		},
		{
			"broadcast from rank 2", on(2), func(g *dist.Group, x node) (node, error) { return ops.Broadcast(g, x, 2) },
			dist.ErrRoot,
			[]string{"2 is not in 0 to 1"},
		},
		{
			"reduce to rank -1", on(2), func(g *dist.Group, x node) (node, error) { return ops.Reduce(g, x, dist.Sum, -1) },
			dist.ErrRoot,
			[]string{"-1 is not in 0 to 1"},
		},
		{
			"gather to rank 7", on(2), func(g *dist.Group, x node) (node, error) { return ops.Gather(g, x, 7) },
			dist.ErrRoot,
			[]string{"7"},
		},
		{
			"send to oneself", on(2), func(g *dist.Group, x node) (node, error) { return ops.Send(g, x, 1) },
			dist.ErrRoot,
			[]string{"this rank"},
		},
		{
			"recv from rank 2", on(2), func(g *dist.Group, x node) (node, error) { return ops.Recv(g, x, 2, gtensor.Float64, 2) },
			dist.ErrRoot,
			[]string{"2 is not in 0 to 1"},
		},
		{
			"allreduce of ints", ofType(gtensor.Int, 2), func(g *dist.Group, x node) (node, error) { return ops.AllReduce(g, x, dist.Sum) },
			dist.ErrDType,
			[]string{"int"},
		},
		{
			"barrier of bools", ofType(gtensor.Bool, 2), func(g *dist.Group, x node) (node, error) { return ops.Barrier(g, x) },
			dist.ErrDType,
			[]string{"bool"},
		},
		{
			"allreduce of an i16 scalar", ofType(gtensor.Int16), func(g *dist.Group, x node) (node, error) { return ops.AllReduce(g, x, dist.Sum) },
			dist.ErrDType,
			[]string{"i16 scalar", "shape (1)"},
		},
		{"premulsum in another dtype", on(2), func(g *dist.Group, x node) (node, error) {
			return ops.AllReduce(g, x, dist.PreMulSum(float32(2)))
		}, dist.ErrDType, []string{"premulsum scalar is f32"}},
		{"premulsum with two scalars", on(2), func(g *dist.Group, x node) (node, error) {
			return ops.ReduceScatter(g, x, dist.PreMulSumAt(tensor.Of([]float64{1, 2})))
		}, dist.ErrCount, []string{"2 elements"}},
		{"an unknown reduction", on(2), func(g *dist.Group, x node) (node, error) {
			return ops.Reduce(g, x, dist.RedOp{Kind: 99}, 0)
		}, dist.ErrInvalid, []string{"red(99)"}},
		{
			"no group", on(2), func(_ *dist.Group, x node) (node, error) { return ops.AllReduce(nil, x, dist.Sum) },
			dist.ErrInvalid,
			[]string{"no group"},
		},
		{
			"no node", on(2), func(g *dist.Group, _ node) (node, error) { return ops.Send(g, nil, 0) },
			dist.ErrInvalid,
			[]string{"no node"},
		},
		{
			"no graph", func(*gorgonia.ExprGraph) *gorgonia.Node { return gorgonia.NewConstant(2.0) },
			func(g *dist.Group, x node) (node, error) { return ops.AllReduce(g, x, dist.Sum) },
			dist.ErrInvalid,
			[]string{"without a graph"},
		},
		{
			"a statement", func(g *gorgonia.ExprGraph) *gorgonia.Node {
				return gorgonia.Read(input(g, gtensor.Float64, "x", []float64{1}, 1), new(gorgonia.Value))
			}, func(g *dist.Group, x node) (node, error) { return ops.AllReduce(g, x, dist.Sum) },
			dist.ErrDType,
			[]string{"no elements"},
		},
		{
			"no shape", func(g *gorgonia.ExprGraph) *gorgonia.Node {
				return gorgonia.NewMatrix(g, gtensor.Float64, gorgonia.WithName("x"))
			}, func(g *dist.Group, x node) (node, error) { return ops.AllGather(g, x) },
			dist.ErrInvalid,
			[]string{`allgather of "x"`, "no shape"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			onRanks(t, 2, func(w *dist.World) error {
				if w.Rank() == 0 {
					return nil
				}
				g := gorgonia.NewGraph()
				x := c.x(g)
				before := len(g.AllNodes())
				n, err := c.apply(w.Group, x)
				if n != nil {
					return fmt.Errorf("a node came with the error %v", err)
				}
				if got := len(g.AllNodes()); got != before {
					return fmt.Errorf("the graph has %d nodes, before %d", got, before)
				}
				return wantError(err, c.err, c.words...)
			})
		})
	}
}

func TestProdMinAndMaxRefuseToBeDifferentiated(t *testing.T) {
	for _, red := range []dist.RedOp{dist.Prod, dist.Min, dist.Max} {
		for _, apply := range []func(g *dist.Group, x *gorgonia.Node) (*gorgonia.Node, error){
			func(g *dist.Group, x *gorgonia.Node) (*gorgonia.Node, error) { return ops.AllReduce(g, x, red) },
			func(g *dist.Group, x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Reduce(g, x, red, 0) },
			func(g *dist.Group, x *gorgonia.Node) (*gorgonia.Node, error) { return ops.ReduceScatter(g, x, red) },
		} {
			onRanks(t, 2, func(w *dist.World) error {
				g := gorgonia.NewGraph()
				x := input(g, gtensor.Float64, "x", []float64{1, 2}, 2)
				y, err := apply(w.Group, x)
				if err != nil {
					return err
				}
				cost, err := gorgonia.Sum(y)
				if err != nil {
					return err
				}
				_, err = differentiate(cost, x) // hides its cause from errors.Is
				if err == nil || !strings.Contains(err.Error(), red.String()) || !strings.Contains(err.Error(), "only sum, avg and premulsum") {
					return fmt.Errorf("gorgonia.Grad: %v", err)
				}
				op, ok := y.Op().(gorgonia.SDOp)
				if !ok {
					return errors.New("the op cannot be asked for a gradient")
				}
				_, err = op.SymDiff(gorgonia.Nodes{x}, y, y)
				return wantError(err, dist.ErrUnsupported, red.String(), `"x"`, fmt.Sprintf("rank %d/2", w.Rank()))
			})
		}
	}
}

func TestIntegersHaveNoGradient(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		g := gorgonia.NewGraph()
		for _, dt := range []gtensor.Dtype{gtensor.Int32, gtensor.Float32} {
			y, err := ops.AllReduce(w.Group, input(g, dt, dt.String(), []float64{1}, 1), dist.Sum)
			if err != nil {
				return err
			}
			wrt := y.Op().(gorgonia.SDOp).DiffWRT(2)
			if len(wrt) != 2 || wrt[0] != (dt == gtensor.Float32) || wrt[1] {
				return fmt.Errorf("%v: differentiable in %v", dt, wrt)
			}
		}
		return nil
	})
}

func TestAGradientOfAnotherShapeIsRefused(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		g := gorgonia.NewGraph()
		x := input(g, gtensor.Float64, "x", []float64{1, 2}, 2)
		y, err := ops.AllGather(w.Group, x)
		if err != nil {
			return err
		}
		other := input(g, gtensor.Float64, "g", []float64{1, 2, 3}, 3)
		_, err = y.Op().(gorgonia.SDOp).SymDiff(gorgonia.Nodes{x}, y, other)
		return wantError(err, dist.ErrCount, "f64(3)", "f64(2)")
	})
}

func TestDisagreeingRanksGetErrorsThatNameOpAndTensor(t *testing.T) {
	errs, err := runRanks(2, func(w *dist.World) error {
		g := gorgonia.NewGraph()
		rows := 2 + w.Rank()
		y, err := ops.AllReduce(w.Group, input(g, gtensor.Float64, "fc1.weight", wave(rows, 0), rows), dist.Sum)
		if err != nil {
			return err
		}
		if w.Rank() == 1 {
			gorgonia.WithName("logits")(y)
		}
		return run(g)
	})
	if err != nil {
		t.Fatal(err)
	}
	for r, name := range []string{`"fc1.weight"`, `"logits"`} {
		if err := wantError(ops.Cause(errs[r]), dist.ErrMismatch, "allreduce #1", fmt.Sprintf("rank %d/2", r), name); err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
		var op *dist.OpError
		if !errors.As(ops.Cause(errs[r]), &op) || op.Op.Kind != dist.KindAllReduce {
			t.Errorf("rank %d: no OpError of the allreduce in %v", r, errs[r])
		}
	}
}

func TestAClosedGroupIsAnErrorOfTheRun(t *testing.T) {
	for _, v := range func() []verb { all, _ := verbs(0, false); return all }() {
		onRanks(t, 1, func(w *dist.World) error {
			g := gorgonia.NewGraph()
			if _, err := v.apply(w.Group, input(g, gtensor.Float64, "x", []float64{1}, 1)); err != nil {
				return err
			}
			if err := w.Close(); err != nil {
				return err
			}
			return wantError(ops.Cause(run(g)), dist.ErrClosed, strings.Fields(v.name)[0], `"x"`)
		})
	}
}

func TestADeadRankIsAnErrorOfEveryRunFromThenOn(t *testing.T) {
	errs, err := runScript(3, "die rank=2 op=2", func(w *dist.World) error {
		g := gorgonia.NewGraph()
		x := input(g, gtensor.Float64, "x", wave(6, 0), 6)
		y, err := ops.ReduceScatter(w.Group, x, dist.Sum)
		if err != nil {
			return err
		}
		cost, err := gorgonia.Sum(y)
		if err != nil {
			return err
		}
		if _, err := differentiate(cost, x); err != nil {
			return err
		}
		vm := gorgonia.NewTapeMachine(g)
		defer vm.Close()
		first := ops.Cause(vm.RunAll())
		vm.Reset()
		if err := wantError(ops.Cause(vm.RunAll()), dist.ErrAborted, `"x"`); err != nil {
			return fmt.Errorf("second run: %w", err)
		}
		return first
	})
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range errs[:2] { // the forward pass succeeded; its gradient did not
		if err := wantError(err, dist.ErrAborted, "allgather #2", `"x.grad"`, fmt.Sprintf("rank %d/3", r), "rank 2 died"); err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

func TestAValueOfAnotherShapeIsAnErrorAndTheStepCanRunAgain(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		g := gorgonia.NewGraph()
		x := input(g, gtensor.Float64, "x", []float64{1, 2, 3, 4, 5, 6}, 2, 3)
		y, err := ops.AllReduce(w.Group, x, dist.Sum)
		if err != nil {
			return err
		}
		vm := gorgonia.NewTapeMachine(g)
		defer vm.Close()
		d := x.Value().(*gtensor.Dense)
		if w.Rank() == 1 { // nothing is sent; rank 0 waits for the run below
			if err := d.Reshape(3, 2); err != nil {
				return err
			}
			if err := wantError(ops.Cause(vm.RunAll()), dist.ErrCount, `allreduce sum of "x"`, "(3, 2)", "(2, 3)", "rank 1/2"); err != nil {
				return err
			}
			if err := d.Reshape(2, 3); err != nil {
				return err
			}
			vm.Reset()
		}
		if err := vm.RunAll(); err != nil {
			return err
		}
		return equal("y", y.Value(), []float64{2, 4, 6, 8, 10, 12})
	})
}

func TestCauseKeepsOtherErrors(t *testing.T) {
	plain := fmt.Errorf("step 3: %w", dist.ErrTimeout)
	if got := ops.Cause(plain); got != plain {
		t.Errorf("Cause(%v) is %v", plain, got)
	}
	if got := ops.Cause(nil); got != nil {
		t.Errorf("Cause(nil) is %v", got)
	}
}
