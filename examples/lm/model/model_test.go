package model

import (
	"math"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

func small() Config {
	return Config{Vocabulary: 5, Context: 4, Layers: 2, Heads: 2, Width: 6, Hidden: []int{7}, Tied: true, Batch: 2, Seed: 3}
}

// fill sets made-up tokens, next tokens and weights that sum to 1.
func fill(m *Model, c Config) {
	tokens, y, w := m.Inputs[0].Value().Data().([]int), m.Inputs[1].Value().Data().([]float32), m.Inputs[2].Value().Data().([]float32)
	clear(y)
	for i := range tokens {
		tokens[i] = (i*i + 1) % c.Vocabulary
		y[i*c.Vocabulary+(i*3)%c.Vocabulary] = 1
		w[i] = 1 / float32(len(w))
	}
}

func build(t *testing.T, c Config) *Model {
	t.Helper()
	m, err := New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	fill(m, c)
	return m
}

func run(t *testing.T, m *Model) (cost float64, logProb []float32) {
	t.Helper()
	vm := G.NewTapeMachine(m.Cost.Graph())
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	return float64(m.Cost.Value().Data().(float32)), append([]float32(nil), m.LogProb.Value().Data().([]float32)...)
}

func TestCostIsTheCrossEntropyOfTheNextToken(t *testing.T) {
	for _, tied := range []bool{true, false} {
		c := small()
		c.Tied = tied
		cost, logProb := run(t, build(t, c))
		want := 0.0
		for i := range 8 {
			sum := 0.0
			for j := range 5 {
				sum += math.Exp(float64(logProb[i*5+j]))
			}
			if math.Abs(sum-1) > 1e-5 {
				t.Errorf("probabilities of token %d sum to %v", i, sum)
			}
			want -= float64(logProb[i*5+i*3%5]) / 8
		}
		if math.Abs(cost-want) > 1e-5 {
			t.Errorf("tied %v: cost %v, want %v", tied, cost, want)
		}
	}
}

// A token attends to itself and those before it in its own sample: a change of any other token does
// not change its output.
func TestNoTokenSeesWhatIsYetToCome(t *testing.T) {
	c := small()
	m := build(t, c)
	_, before := run(t, m)
	const changed = 2 // of the first sample
	m.Inputs[0].Value().Data().([]int)[changed]++
	_, after := run(t, m)
	for i := range c.Batch * c.Context {
		differs := false
		for j := range c.Vocabulary {
			differs = differs || before[i*c.Vocabulary+j] != after[i*c.Vocabulary+j]
		}
		if sees := i >= changed && i < c.Context; differs != sees {
			t.Errorf("token %d: its answer differs is %v, want %v", i, differs, sees)
		}
	}
}

func TestGradientMatchesFiniteDifferences(t *testing.T) {
	for _, tied := range []bool{true, false} {
		c := small()
		c.Tied = tied
		m := build(t, c)
		if _, err := G.Grad(m.Cost, m.Params...); err != nil {
			t.Fatal(err)
		}
		vm := G.NewTapeMachine(m.Cost.Graph())
		cost := func() float64 {
			vm.Reset()
			if err := vm.RunAll(); err != nil {
				t.Fatal(err)
			}
			return float64(m.Cost.Value().Data().(float32))
		}
		cost()
		for _, p := range m.Params {
			v, err := p.Grad()
			if err != nil {
				t.Fatal(err)
			}
			grad := append([]float32(nil), v.Data().([]float32)...)
			data := p.Value().Data().([]float32)
			for _, i := range []int{0, len(data) / 2, len(data) - 1} {
				const eps = 1e-2
				old := data[i]
				data[i] = old + eps
				up := cost()
				data[i] = old - eps
				down := cost()
				data[i] = old
				if fd := (up - down) / (2 * eps); math.Abs(fd-float64(grad[i])) > 2e-3+0.02*math.Abs(fd) {
					t.Errorf("%s[%d]: gradient %v, finite difference %v", p.Name(), i, grad[i], fd)
				}
			}
		}
		if err := vm.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestParametersAreThoseOfTheNetwork(t *testing.T) {
	c := small()
	count := func(c Config) (n int) {
		for _, p := range build(t, c).Params {
			n += p.Shape().TotalSize()
		}
		return n
	}
	// Embedding and positions, two layers of attention, norms and perceptron, the last norm.
	want := 5*6 + 4*6 + 2*(4*36+4*6+6*7+7+7*6+6) + 2*6
	if got := count(c); got != want {
		t.Errorf("%d parameters, want %d", got, want)
	}
	c.Tied = false
	if got := count(c); got != want+6*5 {
		t.Errorf("%d parameters with a head of its own, want %d", got, want+6*5)
	}
}

func TestNewSharesGivenWeights(t *testing.T) {
	a := build(t, small())
	var ws []*gtensor.Dense
	for _, p := range a.Params {
		ws = append(ws, p.Value().(*gtensor.Dense))
	}
	c := small()
	c.Batch = 1
	b, err := New(c, ws)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range b.Params {
		if &p.Value().Data().([]float32)[0] != &ws[i].Float32s()[0] || p.Value().(*gtensor.Dense) == ws[i] {
			t.Errorf("%s does not share memory under a header of its own", p.Name())
		}
	}
	if _, err := New(c, ws[1:]); err == nil || !strings.Contains(err.Error(), "embedding") {
		t.Errorf("weights that do not fit: %v", err)
	}
	if _, err := New(c, append(ws, ws[0])); err == nil || !strings.Contains(err.Error(), "29 weights for 28 parameters") {
		t.Errorf("a weight too many: %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	bad := small()
	bad.Heads = 4
	if _, err := New(bad, nil); err == nil || !strings.Contains(err.Error(), "4 heads do not divide the width, 6") {
		t.Errorf("%v", err)
	}
	bad = small()
	bad.Hidden = []int{0}
	if _, err := New(bad, nil); err == nil {
		t.Error("a perceptron of width 0 is accepted")
	}
}
