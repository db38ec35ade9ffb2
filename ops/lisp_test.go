package ops_test

import (
	"fmt"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
)

// The machines of gradientOn.
const (
	tape = false // on a graph that gorgonia.Grad has differentiated
	lisp = true  // differentiates as it runs
)

// gradientOn is the gradient of x on one of gorgonia's machines.
func gradientOn(w *dist.World, machine bool, dt gtensor.Dtype, shape []int, build model) ([]float64, error) {
	g := gorgonia.NewGraph()
	x := input(g, dt, "x", wave(max(1, size(shape)), float64(w.Rank())), shape...)
	cost, err := build(w, x)
	if err != nil {
		return nil, err
	}
	var vm gorgonia.VM
	if machine == lisp {
		vm = gorgonia.NewLispMachine(g)
	} else {
		if _, err := differentiate(cost, x); err != nil {
			return nil, err
		}
		vm = gorgonia.NewTapeMachine(g)
	}
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		return nil, err
	}
	grad, err := x.Grad()
	if err != nil {
		return nil, err
	}
	return floats(grad)
}

func sameOnBoth(t *testing.T, n int, shape []int, build model) {
	t.Helper()
	for dt, rel := range map[gtensor.Dtype]float64{gtensor.Float64: 1e-12, gtensor.Float32: 1e-5} {
		onRanks(t, n, func(w *dist.World) error {
			want, err := gradientOn(w, tape, dt, shape, build)
			if err != nil {
				return fmt.Errorf("tape: %w", err)
			}
			got, err := gradientOn(w, lisp, dt, shape, build)
			if err != nil {
				return fmt.Errorf("lisp: %w", err)
			}
			return near("the lisp machine's gradient", got, want, rel)
		})
	}
}

func TestTheLispMachineFindsTheSameGradients(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		all, scalars := verbs(n-1, true)
		for i, v := range all {
			t.Run(fmt.Sprintf("%s/%d", v.name, n), func(t *testing.T) {
				sameOnBoth(t, n, []int{2 * n, 2}, v.model())
				if i < scalars {
					sameOnBoth(t, n, nil, v.model())
				}
			})
		}
	}
	t.Run("send and recv", func(t *testing.T) { sameOnBoth(t, 2, []int{2, 3}, pipeline) })
}

func TestTheLispMachineRefusesMaxToo(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		g := gorgonia.NewGraph()
		y, err := ops.AllReduce(w.Group, input(g, gtensor.Float64, "x", []float64{1, 2}, 2), dist.Max)
		if err != nil {
			return err
		}
		op := y.Op().(gorgonia.ADOp)
		if _, err := gorgonia.Sum(y); err != nil {
			return err
		}
		vm := gorgonia.NewLispMachine(g, gorgonia.ExecuteFwdOnly())
		defer vm.Close()
		if err := vm.RunAll(); err != nil {
			return err
		}
		x := g.AllNodes()[0]
		return wantError(op.DoDiff(gorgonia.ExecutionContext{}, gorgonia.Nodes{x}, y), dist.ErrUnsupported, "max", `"x"`)
	})
}
