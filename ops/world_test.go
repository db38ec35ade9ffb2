package ops_test

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
)

// runRanks runs body on every rank of a fresh world of n, each on a goroutine of its own, and
// returns the errors by rank. A world is closed when its body returns, so that no rank waits for
// one that has failed.
func runRanks(n int, body func(w *dist.World) error) ([]error, error) {
	return runScript(n, "", body)
}

// runScript is runRanks with the faults that a script of package sim asks for.
func runScript(n int, script string, body func(w *dist.World) error) ([]error, error) {
	worlds, err := sim.New(n, sim.Config{Script: script})
	if err != nil {
		return nil, err
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r, w := range worlds {
		wg.Go(func() { errs[r] = errors.Join(body(w), w.Close()) })
	}
	wg.Wait()
	return errs, nil
}

// onRanks is runRanks for bodies that must not fail.
func onRanks(t *testing.T, n int, body func(w *dist.World) error) {
	t.Helper()
	errs, err := runRanks(n, body)
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range errs {
		if err != nil {
			t.Errorf("rank %d/%d: %v", r, n, err)
		}
	}
}

// dense is a tensor of the given dtype and shape with the elements v.
func dense(dt gtensor.Dtype, v []float64, shape ...int) *gtensor.Dense {
	d := gtensor.New(gtensor.Of(dt), gtensor.WithShape(shape...))
	for i, x := range v {
		d.Set(i, convert(dt, x))
	}
	return d
}

// convert is x in the Go type of dt.
func convert(dt gtensor.Dtype, x float64) any {
	switch dt {
	case gtensor.Float64:
		return x
	case gtensor.Float32:
		return float32(x)
	case gtensor.Int64:
		return int64(x)
	case gtensor.Int32:
		return int32(x)
	case gtensor.Int16:
		return int16(x)
	case gtensor.Uint8:
		return uint8(x)
	}
	panic(fmt.Sprintf("no test uses %v", dt))
}

// floats is the elements of v, a tensor or a scalar of any dtype above.
func floats(v gorgonia.Value) ([]float64, error) {
	switch d := v.Data().(type) {
	case []float64:
		return append([]float64(nil), d...), nil
	case []float32:
		return widen(d), nil
	case []int64:
		return widen(d), nil
	case []int32:
		return widen(d), nil
	case []int16:
		return widen(d), nil
	case []uint8:
		return widen(d), nil
	case float64:
		return []float64{d}, nil
	case float32:
		return []float64{float64(d)}, nil
	case int64:
		return []float64{float64(d)}, nil
	case int32:
		return []float64{float64(d)}, nil
	case uint8:
		return []float64{float64(d)}, nil
	}
	return nil, fmt.Errorf("%T is no value that the tests know", v.Data())
}

func widen[T float32 | int64 | int32 | int16 | uint8](d []T) []float64 {
	out := make([]float64, len(d))
	for i, x := range d {
		out[i] = float64(x)
	}
	return out
}

// input is an input node with the elements v: a tensor, or a scalar when there is no shape.
func input(g *gorgonia.ExprGraph, dt gtensor.Dtype, name string, v []float64, shape ...int) *gorgonia.Node {
	if len(shape) == 0 {
		return gorgonia.NewScalar(g, dt, gorgonia.WithName(name), gorgonia.WithValue(convert(dt, v[0])))
	}
	return gorgonia.NewTensor(g, dt, len(shape), gorgonia.WithName(name), gorgonia.WithShape(shape...),
		gorgonia.WithValue(dense(dt, v, shape...)))
}

func size(shape []int) int { return gtensor.Shape(shape).TotalSize() }

// run runs g once on a fresh tape machine.
func run(g *gorgonia.ExprGraph, opts ...gorgonia.VMOpt) error {
	vm := gorgonia.NewTapeMachine(g, opts...)
	return errors.Join(vm.RunAll(), vm.Close())
}

// equal compares elements exactly.
func equal(what string, got gorgonia.Value, want []float64) error {
	g, err := floats(got)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if len(g) != len(want) {
		return fmt.Errorf("%s has %d elements, want %d", what, len(g), len(want))
	}
	for i := range g {
		if g[i] != want[i] {
			return fmt.Errorf("%s is %v, want %v", what, g, want)
		}
	}
	return nil
}

// near compares elements to a relative difference, absolute below 1.
func near(what string, got, want []float64, rel float64) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s has %d elements, want %d", what, len(got), len(want))
	}
	for i := range got {
		if math.Abs(got[i]-want[i]) > rel*max(1, math.Abs(want[i])) {
			return fmt.Errorf("%s[%d] is %.9g, want %.9g to %g", what, i, got[i], want[i], rel)
		}
	}
	return nil
}

// differentiating is held while a graph is differentiated: Gorgonia notes the hashes of constants
// that all graphs share, and ranks are goroutines here.
var differentiating sync.Mutex

// differentiate is gorgonia.Grad for ranks that are goroutines.
func differentiate(cost *gorgonia.Node, wrt ...*gorgonia.Node) (gorgonia.Nodes, error) {
	differentiating.Lock()
	defer differentiating.Unlock()
	return gorgonia.Grad(cost, wrt...)
}
