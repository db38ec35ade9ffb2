package nn

import (
	"errors"
	"math"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/machine"
)

// The running statistics of BatchNorm2D are those of torch.nn.BatchNorm2d: 0 and 1 at first, then a
// tenth of the batch's mean and unbiased variance. Evaluation uses them.
func TestBatchNorm2DKeepsRunningStatistics(t *testing.T) {
	for kind, newVM := range map[string]func(g *G.ExprGraph, eval bool, y *G.Node) G.VM{
		"tape machine": func(g *G.ExprGraph, eval bool, _ *G.Node) G.VM {
			if eval {
				return G.NewTapeMachine(g, G.EvalMode())
			}
			return G.NewTapeMachine(g)
		},
		"machine": func(g *G.ExprGraph, eval bool, y *G.Node) G.VM {
			return newMachineOf(t, machine.Config{Threads: 1, BLAS: "none", Eval: eval}, g, y)
		},
	} {
		g := G.NewGraph()
		v := []float64{1, 2, 3, 4, 10, 10, 10, 10} // one sample, two channels of 2 by 2
		x := input(g, "x", gtensor.Float64, v, 1, 2, 2, 2)
		y, op, err := BatchNorm2D(x, input(g, "gain", gtensor.Float64, []float64{1, 1}, 2), input(g, "offset", gtensor.Float64, []float64{0, 0}, 2), BatchNormConfig{})
		if err != nil {
			t.Fatal(err)
		}
		mean, variance := op.Stats()
		near(t, kind+": the first variance", floats(t, variance), []float64{1, 1}, 0)
		if err := newVM(g, false, y).RunAll(); err != nil {
			t.Fatal(err)
		}
		wantMean, wantVariance := []float64{0.25, 1}, []float64{0.9 + 0.1*5/3, 0.9}
		near(t, kind+": the running mean", floats(t, mean), wantMean, 1e-12)
		near(t, kind+": the running variance", floats(t, variance), wantVariance, 1e-12)
		if err := newVM(g, true, y).RunAll(); err != nil {
			t.Fatal(err)
		}
		want := make([]float64, len(v))
		for i := range v {
			want[i] = (v[i] - wantMean[i/4]) / math.Sqrt(wantVariance[i/4]+1e-5)
		}
		near(t, kind+": in evaluation", floats(t, y.Value()), want, 1e-12)
		near(t, kind+": the mean after an evaluation", floats(t, mean), wantMean, 1e-12)
	}
}

// A cell is one step of a sequence, and a state of zeros is a constant.
func TestCellsAreSequencesOfOneToken(t *testing.T) {
	g := G.NewGraph()
	numbers := func(n int) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = math.Sin(float64(i + n))
		}
		return v
	}
	state, err := ZeroState(g, gtensor.Float64, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	node := func(name string, shape ...int) *G.Node {
		return input(g, name, gtensor.Float64, numbers(gtensor.Shape(shape).TotalSize()), shape...)
	}
	x, seq := node("x", 2, 4), node("seq", 2, 1, 4)
	lstm := CellWeights{node("wx4", 4, 12), node("wh4", 3, 12), node("bx4", 12), nil}
	gru := CellWeights{node("wx3", 4, 9), node("wh3", 3, 9), nil, node("bh3", 9)}
	h, c, err := LSTMCell(x, state, state, lstm)
	if err != nil {
		t.Fatal(err)
	}
	y, hLast, cLast, err := LSTM(seq, state, state, lstm)
	if err != nil {
		t.Fatal(err)
	}
	next, err := GRUCell(x, state, gru)
	if err != nil {
		t.Fatal(err)
	}
	z, last, err := GRU(seq, state, gru)
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, g, h, c, y, hLast, cLast, next, z, last)
	if err := m.RunAll(); err != nil {
		t.Fatal(err)
	}
	wantH, wantC := lstmStep(numbers(8)[:4], make([]float64, 3), make([]float64, 3), numbers(48), numbers(36), numbers(12), nil)
	near(t, "h", floats(t, h.Value())[:3], wantH, 1e-12)
	near(t, "c", floats(t, c.Value())[:3], wantC, 1e-12)
	near(t, "next", floats(t, next.Value())[:3], gruStep(numbers(8)[:4], make([]float64, 3), numbers(36), numbers(27), nil, numbers(9)), 1e-12)
	for _, same := range [][2]*G.Node{{y, h}, {hLast, h}, {cLast, c}, {z, next}, {last, next}} {
		near(t, same[0].Name(), floats(t, same[0].Value()), floats(t, same[1].Value()), 0)
	}
}

func TestImagesAndCellsRefuseMistakes(t *testing.T) {
	g := G.NewGraph()
	node := func(name string, shape ...int) *G.Node {
		return G.NewTensor(g, gtensor.Float32, len(shape), G.WithName(name), G.WithShape(shape...))
	}
	image, filter, x, h := node("image", 2, 3, 5, 5), node("filter", 4, 3, 3, 3), node("x", 2, 4), node("h", 2, 3)
	of := func(_ *G.Node, err error) error { return err }
	norm := func(c BatchNormConfig, gain *G.Node) error {
		_, _, err := BatchNorm2D(image, gain, gain, c)
		return err
	}
	lstm := func(x, h, cell *G.Node, w CellWeights) error {
		_, _, err := LSTMCell(x, h, cell, w)
		return err
	}
	three := node("three", 3)
	good := CellWeights{Input: node("wx", 4, 12), Hidden: node("wh", 3, 12)}
	for _, test := range []struct {
		err  error
		kind error
		want string
	}{
		{of(Conv2D(x, filter, nil, Conv2DConfig{})), dist.ErrCount, `input "x" has shape (2, 4), want 4 to 4 axes`},
		{of(Conv2D(image, node("other", 4, 2, 3, 3), nil, Conv2DConfig{})), dist.ErrCount, `filter "other" has shape (4, 2, 3, 3), want (filters, 3, r, s)`},
		{of(Conv2D(image, filter, three, Conv2DConfig{})), dist.ErrCount, `bias "three" has shape (3), want 4 elements`},
		{of(Conv2D(image, filter, nil, Conv2DConfig{Padding: [2]int{-1, 0}})), dist.ErrInvalid, "padding [-1 0]"},
		{of(Conv2D(image, filter, nil, Conv2DConfig{Dilation: [2]int{3, 3}})), dist.ErrCount, `filter "filter" of shape (4, 3, 3, 3) does not fit into input "image"`},
		{norm(BatchNormConfig{}, nil), dist.ErrInvalid, "no gain"},
		{norm(BatchNormConfig{Momentum: 2}, three), dist.ErrInvalid, "momentum 2"},
		{norm(BatchNormConfig{Epsilon: -1}, three), dist.ErrInvalid, "epsilon -1"},
		{of(GlobalAvgPool(x)), dist.ErrCount, "want 4 to 4 axes"},
		{lstm(x, h, h, CellWeights{}), dist.ErrInvalid, "no hidden weight"},
		{lstm(x, h, h, CellWeights{Hidden: node("nine", 3, 9)}), dist.ErrCount, `hidden weight "nine" has shape (3, 9), want (hidden, 4*hidden)`},
		{lstm(x, h, h, CellWeights{Input: h, Hidden: good.Hidden}), dist.ErrCount, `input weight "h" has shape (2, 3), want [4 12]`},
		{lstm(x, x, h, good), dist.ErrCount, `state "x" has shape (2, 4), want [2 3]`},
		{lstm(x, h, nil, good), dist.ErrInvalid, "no cell"},
		{of(GRUCell(x, h, good)), dist.ErrCount, "want (hidden, 3*hidden)"},
		{of(ZeroState(nil, gtensor.Float32, 1, 1)), dist.ErrInvalid, "no graph"},
		{of(ZeroState(g, gtensor.Int, 1, 1)), dist.ErrDType, "int"},
		{of(ZeroState(g, gtensor.Float32, 0, 1)), dist.ErrCount, "shape (0, 1)"},
	} {
		if test.err == nil || !strings.Contains(test.err.Error(), test.want) || !errors.Is(test.err, test.kind) {
			t.Errorf("error %v, want a %v with %q", test.err, test.kind, test.want)
		}
	}
}
