package ops_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
)

func TestErrorsOfReducersComeOutOfRunAll(t *testing.T) {
	cost, params := chain(t)
	_, _, hooks, events := hookAll(t, cost, params)
	boom := errors.New("boom")
	hooks[2].Bind(&traced{name: "w1", events: events, shape: params[2].Shape(), fail: boom})
	vm := gorgonia.NewTapeMachine(cost.Graph())
	defer vm.Close()
	err := vm.RunAll()
	if !errors.Is(ops.Cause(err), boom) {
		t.Fatalf("RunAll is %v, want boom", err)
	}
	if last := (*events)[len(*events)-1]; last != "start w1" {
		t.Errorf("after the error %q ran", last)
	}
	vm.Reset()
	hooks[2].Bind(&traced{name: "w1", events: events, shape: params[2].Shape()})
	if err := vm.RunAll(); err != nil {
		t.Errorf("after Reset: %v", err)
	}
	hooks[2].Bind(nil)
	vm.Reset()
	if err := vm.RunAll(); !errors.Is(ops.Cause(err), ops.ErrNotAttached) {
		t.Errorf("without a reducer RunAll is %v, want ErrNotAttached", err)
	}
}

func TestOverlapRefuses(t *testing.T) {
	cost, params := chain(t)
	step := tracedStep{new([]string)}
	other, otherParams := chain(t)
	if _, err := ops.NewOverlap(nil, step); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("no cost: %v", err)
	}
	if _, err := ops.NewHook(cost); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("hook of a result: %v", err)
	}
	if _, err := ops.NewHook(nil); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("hook of nil: %v", err)
	}
	o, err := ops.NewOverlap(cost, step)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := ops.NewOverlap(cost, step); second != nil || !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "has an overlap already") {
		t.Errorf("a second one: %v, %v", second, err)
	}
	if _, err := o.Grad(); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("no hooks: %v", err)
	}
	if err := o.Add(nil); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("no hook: %v", err)
	}
	foreign, err := ops.NewHook(otherParams[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Add(foreign); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("hook of another graph: %v", err)
	}
	h := hookOne(t, params[0])
	if err := o.Add(h); err != nil {
		t.Fatal(err)
	}
	if err := o.Add(h); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("hook added twice: %v", err)
	}
	_ = other
}

// TestPlainGradOverAHookIsAnError is the error for a program that still calls gorgonia.Grad.
func TestPlainGradOverAHookIsAnError(t *testing.T) {
	cost, params := chain(t)
	hookOne(t, params[0])
	_, err := differentiate(cost, params...)
	if err == nil || !strings.Contains(err.Error(), "ddp.Attach") {
		t.Errorf("gorgonia.Grad is %v, want an error that names ddp.Attach", err)
	}
}

func TestGradFindsParametersThatBypassTheirHook(t *testing.T) {
	g := gorgonia.NewGraph()
	w, x := overlapParam(g, "w", 2, 3), overlapParam(g, "x", 2, 3)
	h, err := ops.NewHook(w)
	if err != nil {
		t.Fatal(err)
	}
	hooked := gorgonia.Must(gorgonia.HadamardProd(h.Node(), x))
	cost := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Add(hooked, w))))
	o, err := ops.NewOverlap(cost, tracedStep{new([]string)})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Add(h); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Grad(); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), `"w"`) {
		t.Errorf("Grad is %v, want ErrInvalid naming w", err)
	}
}

// TestAReducedGradientHasNoGradient asks for a second derivative.
func TestAReducedGradientHasNoGradient(t *testing.T) {
	cost, params := chain(t)
	grads, _, hooks, _ := hookAll(t, cost, params)
	norm := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Square(grads[0]))))
	if _, err := differentiate(norm, params[0]); err == nil {
		t.Error("gorgonia.Grad of a norm of gradients has no error")
	}
	op := grads[0].Op().(*ops.Wait)
	if op.Hook() != hooks[0] {
		t.Errorf("the first gradient is that of %v", op.Hook())
	}
	if _, err := op.SymDiff(nil, nil, nil); !errors.Is(err, dist.ErrUnsupported) {
		t.Errorf("SymDiff is %v, want ErrUnsupported", err)
	}
}

// TestSetDerivOfCountsTwice is gorgonia's trap that hooks avoid: the node that was the derivative
// before stays one.
func TestSetDerivOfCountsTwice(t *testing.T) {
	cost, params := chain(t)
	grads, err := differentiate(cost, params...)
	if err != nil {
		t.Fatal(err)
	}
	reduced := gorgonia.Must(gorgonia.Neg(gorgonia.Must(gorgonia.Neg(grads[0]))))
	gorgonia.SetDerivOf(reduced, params[0])
	got := gradientsOf(t, gorgonia.NewTapeMachine(cost.Graph(), gorgonia.BindDualValues(params...)), params[:1])
	want := slices.Clone(reduced.Value().Data().([]float64))
	for i := range want {
		want[i] *= 2
	}
	if !slices.Equal(got[0], want) {
		t.Error("gorgonia has repaired SetDerivOf under BindDualValues")
	}
}

func TestAParameterHasOneHook(t *testing.T) {
	_, params := chain(t)
	h := hookOne(t, params[1])
	if got := ops.HookOf(params[1]); got != h || h.Param() != params[1] {
		t.Errorf("HookOf is %v, want %v", got, h)
	}
	if ops.HookOf(params[0]) != nil || ops.HookOf(nil) != nil {
		t.Error("HookOf finds hooks that are not there")
	}
	if _, err := ops.NewHook(params[1]); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("a second hook: %v", err)
	}
	if _, err := h.Do(); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("Do without input: %v", err)
	}
}
