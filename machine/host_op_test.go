package machine_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"log/slog"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/chewxy/hm"
	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/ops"
)

// overwriting is a user's op: it doubles its input in place, and fails if the first element is
// negative.
type overwriting struct{ name string }

func (overwriting) Arity() int { return 1 }
func (overwriting) Type() hm.Type {
	a := hm.TypeVariable('a')
	return hm.NewFnType(a, a)
}

func (overwriting) InferShape(in ...G.DimSizer) (gtensor.Shape, error) {
	return in[0].(gtensor.Shape).Clone(), nil
}
func (overwriting) ReturnsPtr() bool        { return true }
func (overwriting) CallsExtern() bool       { return false }
func (overwriting) OverwritesInput() int    { return 0 }
func (o overwriting) WriteHash(h hash.Hash) { fmt.Fprint(h, o.name) }
func (o overwriting) String() string        { return o.name }
func (o overwriting) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

func (overwriting) Do(in ...G.Value) (G.Value, error) {
	x := in[0].Data().([]float64)
	if x[0] < 0 {
		return nil, errors.New("negative")
	}
	for i := range x {
		x[i] *= 2
	}
	return in[0], nil
}

// warned returns settings that record warnings.
func warned(log *bytes.Buffer) machine.Config {
	cfg := plain
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	return cfg
}

func TestAnOpOfAUserRunsByItsDo(t *testing.T) {
	var log bytes.Buffer
	g := G.NewGraph()
	x := list(g, "x", []float64{1, 2})
	y := G.Must(G.ApplyOp(overwriting{"first"}, x))
	z := G.Must(G.ApplyOp(overwriting{"second"}, G.Must(G.Add(y, x))))
	m := newMachine(t, g, warned(&log))
	for range 2 {
		run(t, m)
		want(t, "twice three times x", z.Value(), 6, 12)
		want(t, "the input", x.Value(), 1, 2)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "overwriting") || !strings.Contains(text, y.Name()) {
		t.Errorf("warnings %q, want one that names op and node", text)
	}
	if !strings.Contains(m.Explain(), "host: first") {
		t.Errorf("Explain does not name the step:\n%s", m.Explain())
	}
	let(t, x, gtensor.New(gtensor.WithShape(2), gtensor.WithBacking([]float64{-1, 2})))
	if err := m.RunAll(); err == nil || !strings.Contains(err.Error(), "first") || !strings.Contains(err.Error(), "negative") {
		t.Errorf("error %v, want the op and its reason", err)
	}
}

func TestAnExpectedOpIsNotWarnedOf(t *testing.T) {
	var log bytes.Buffer
	cfg := warned(&log)
	cfg.Fallback = true
	g := G.NewGraph()
	y := G.Must(G.ApplyOp(overwriting{"expected"}, list(g, "x", []float64{1, 2})))
	run(t, newMachine(t, g, cfg))
	want(t, "twice x", y.Value(), 2, 4)
	if log.Len() > 0 {
		t.Errorf("a warning: %s", log.String())
	}
}

// noOp has a Do for a number of inputs that differs from its node's.
type noOp struct{ overwriting }

func (noOp) Arity() int { return 2 }

func TestAnOpThatCannotRunIsNamed(t *testing.T) {
	g := G.NewGraph()
	x := list(g, "x", []float64{1})
	y := G.NewUniqueNode(G.WithOp(noOp{overwriting{"none"}}), G.WithChildren(G.Nodes{x}), G.In(g), G.WithType(x.Type()), G.WithShape(1), G.WithName("broken"))
	_, err := machine.New(g, plain, y)
	if !errors.Is(err, machine.ErrUnknownOp) || !strings.Contains(err.Error(), "noOp") || !strings.Contains(err.Error(), "broken") {
		t.Errorf("error %v, want ErrUnknownOp, op and node", err)
	}
}

// TestConvertedNumbersAreInputOfAHostOp passes them to a CTC loss as labels, whose Do takes
// integers.
func TestConvertedNumbersAreInputOfAHostOp(t *testing.T) {
	n := newNet()
	integers := func(name string, v []int, shape ...int) *G.Node {
		return G.NewTensor(n.g, G.Int, len(shape), G.WithName(name), G.WithShape(shape...),
			G.WithValue(gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(v))))
	}
	build := func(labels *G.Node) *G.Node {
		return G.Must(G.CTCLoss(G.Must(G.LogSoftMax(n.input("x", 4, 1, 5), 2)), labels,
			integers("steps", []int{4}, 1), integers("lengths", []int{2}, 1), G.ReductionMean))
	}
	numbers := G.NewMatrix(n.g, G.Float32, G.WithName("numbers"), G.WithShape(1, 2),
		G.WithValue(gtensor.New(gtensor.WithShape(1, 2), gtensor.WithBacking([]float32{2.7, 1.2}))))
	cost := build(G.Must(G.ConvType(numbers, G.Float32, G.Int)))
	run(t, newMachine(t, n.g, plain, cost))
	got := reflect.ValueOf(cost.Value().Data()).Float()
	n = newNet()
	exact := build(integers("labels", []int{2, 1}, 1, 2))
	run(t, newMachine(t, n.g, plain, exact))
	if expected := reflect.ValueOf(exact.Value().Data()).Float(); got != expected || got == 0 {
		t.Errorf("the loss is %v, want %v", got, expected)
	}
}

// TestCTCGradientNeedsNoLoss runs the gradient alone, after gorgonia.Grad and after ops.Grad.
// Gorgonia's reads sums that the loss has stored in its op.
func TestCTCGradientNeedsNoLoss(t *testing.T) {
	var all [][]float64
	for _, grad := range []func(*G.Node, ...*G.Node) (G.Nodes, error){G.Grad, ops.Grad} {
		g := G.NewGraph()
		x := input64(g, "x", []float64{-1, -2, -0.5, -0.7, -1.5, -3}, 2, 1, 3)
		labels, steps := integers(g, "labels", []int{2}, 1), integers(g, "steps", []int{2}, 1)
		lengths := integers(g, "lengths", []int{1}, 1)
		loss := G.Must(G.CTCLoss(x, labels, steps, lengths, G.ReductionMean))
		grads, err := grad(loss, x)
		if err != nil {
			t.Fatal(err)
		}
		run(t, newMachine(t, g, plain, grads[0]))
		all = append(all, numbersOf(t, grads[0].Value()))
	}
	// The paths of label 2 have the logarithms of probabilities -3.5, -1.2 and -4.
	first, second, third := math.Exp(-3.5), math.Exp(-1.2), math.Exp(-4)
	sum := first + second + third
	expected := []float64{third, 0, first + second, second, 0, first + third}
	for i := range expected {
		expected[i] /= -sum
	}
	for _, got := range all {
		near(t, "gradient", got, expected, 1e-12)
	}
}
