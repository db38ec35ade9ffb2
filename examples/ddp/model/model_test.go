package model

import (
	"math"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

func small(name string) Config {
	return Config{Name: name, Hidden: []int{6}, Channels: []int{2}, Kernel: 5, Rows: 6, Cols: 4, Classes: 3, Batch: 4, Seed: 7}
}

func fill(m *Model) {
	for i := range m.X.Value().Data().([]float32) {
		m.X.Value().Data().([]float32)[i] = float32(math.Sin(float64(i)))
	}
	y, w := m.Y.Value().Data().([]float32), m.W.Value().Data().([]float32)
	for i := range w {
		y[i*3+i%3], w[i] = 1, float32(i+1)/10
	}
}

func run(t *testing.T, m *Model) float64 {
	t.Helper()
	vm := G.NewTapeMachine(m.Cost.Graph())
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	return float64(m.Cost.Value().Data().(float32))
}

func TestCostIsWeightedCrossEntropy(t *testing.T) {
	for _, name := range []string{"mlp", "cnn"} {
		m, err := New(small(name), nil)
		if err != nil {
			t.Fatal(err)
		}
		fill(m)
		got := run(t, m)
		lp, want := m.LogProb.Value().Data().([]float32), 0.0
		for i := range 4 {
			sum := 0.0
			for j := range 3 {
				sum += math.Exp(float64(lp[i*3+j]))
			}
			if math.Abs(sum-1) > 1e-5 {
				t.Errorf("%s: probabilities of sample %d sum to %v", name, i, sum)
			}
			want -= float64(i+1) / 10 * float64(lp[i*3+i%3])
		}
		if math.Abs(got-want) > 1e-5 {
			t.Errorf("%s: cost %v, want %v", name, got, want)
		}
	}
}

func TestGradientMatchesFiniteDifferences(t *testing.T) {
	for _, name := range []string{"mlp", "cnn"} {
		m, err := New(small(name), nil)
		if err != nil {
			t.Fatal(err)
		}
		fill(m)
		if _, err := G.Grad(m.Cost, m.Params...); err != nil {
			t.Fatal(err)
		}
		run(t, m)
		for _, p := range m.Params {
			v, err := p.Grad()
			if err != nil {
				t.Fatal(err)
			}
			grad := append([]float32(nil), v.Data().([]float32)...)
			data := p.Value().Data().([]float32)
			for _, i := range []int{0, len(data) / 2, len(data) - 1} {
				const eps = 1e-3
				old := data[i]
				data[i] = old + eps
				up := run(t, m)
				data[i] = old - eps
				down := run(t, m)
				data[i] = old
				if fd := (up - down) / (2 * eps); math.Abs(fd-float64(grad[i])) > 2e-3 {
					t.Errorf("%s %s[%d]: gradient %v, finite difference %v", name, p.Name(), i, grad[i], fd)
				}
			}
		}
	}
}

func TestNewSharesGivenWeights(t *testing.T) {
	a, err := New(small("mlp"), nil)
	if err != nil {
		t.Fatal(err)
	}
	var ws []*gtensor.Dense
	for _, p := range a.Params {
		ws = append(ws, p.Value().(*gtensor.Dense))
	}
	cfg := small("mlp")
	cfg.Batch = 2
	b, err := New(cfg, ws)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range b.Params {
		if p.Value().(*gtensor.Dense) == ws[i] {
			t.Errorf("%s shares the header, which two machines must not", p.Name())
		}
		if &p.Value().Data().([]float32)[0] != &ws[i].Float32s()[0] {
			t.Errorf("%s does not share the memory", p.Name())
		}
	}
}

func TestSeedDecidesWeights(t *testing.T) {
	first := func(seed int64) float32 {
		cfg := small("mlp")
		cfg.Seed = seed
		m, err := New(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		return m.Params[0].Value().Data().([]float32)[0]
	}
	if first(1) != first(1) || first(1) == first(2) {
		t.Error("weights do not follow the seed")
	}
}

func TestNewRefuses(t *testing.T) {
	bad := small("mlp")
	bad.Hidden = []int{0}
	if _, err := New(bad, nil); err == nil {
		t.Error("width 0 accepted")
	}
	deep := small("cnn")
	deep.Rows, deep.Cols, deep.Channels = 8, 9, []int{1, 1, 1, 1}
	const want = `model "cnn": 4 channels: the pooling of 3 convolutions halves an image of 8x9 to 1x1, which has no half: use 3 at most`
	if _, err := New(deep, nil); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if _, err := New(small("rnn"), nil); err == nil {
		t.Error("unknown name accepted")
	}
	if _, err := New(small("mlp"), []*gtensor.Dense{gtensor.New(gtensor.WithShape(2, 2), gtensor.WithBacking(make([]float32, 4)))}); err == nil {
		t.Error("weights of the wrong shape accepted")
	}
}
