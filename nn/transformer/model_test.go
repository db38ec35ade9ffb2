package transformer

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/machine"
)

// models are small configurations of all kinds.
func models(t *testing.T) map[string]Config {
	t.Helper()
	gpt2 := parse(t, gpt2Text)
	gpt2.EmbeddingDropout, gpt2.ResidualDropout, gpt2.AttentionDropout = 0, 0, 0
	exact, untied := gpt2, gpt2
	exact.Activation, exact.Inner = GELU, 20
	untied.Tied = false
	llama := parse(t, llamaText)
	tied, wide := llama, llama
	tied.Tied, tied.KVHeads = true, 4
	wide.KVHeads, wide.HeadWidth, wide.RopeTheta = 1, 6, 100
	return map[string]Config{"gpt2": gpt2, "gpt2 exact": exact, "gpt2 untied": untied, "llama": llama, "llama tied": tied, "llama wide heads": wide}
}

// drawn returns weights large enough that every part of a model shows in its logits.
func drawn(t *testing.T, c Config) *Weights {
	t.Helper()
	w, err := Initial(c, 3)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for _, v := range w.Values {
		for i := range v.Float32s() {
			v.Float32s()[i] += float32(0.4 * rng.NormFloat64())
		}
	}
	return w
}

// setTokens sets made-up tokens.
func setTokens(m *Model, vocabulary int) [][]int {
	data := m.Tokens.Value().Data().([]int)
	rows, n := m.Tokens.Shape()[0], m.Tokens.Shape()[1]
	var samples [][]int
	for row := range rows {
		for i := range n {
			data[row*n+i] = (row*7 + i*i + 3*i) % vocabulary
		}
		samples = append(samples, data[row*n:(row+1)*n])
	}
	return samples
}

// machines returns Gorgonia's machine and ours, for an output.
func machines(t *testing.T, out *G.Node) map[string]G.VM {
	t.Helper()
	own, err := machine.New(out.Graph(), machine.Config{Device: machine.CPU, Eval: true}, out)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]G.VM{"tape": G.NewTapeMachine(out.Graph()), "compiled": own}
	t.Cleanup(func() {
		for name, vm := range all {
			if err := vm.Close(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	return all
}

// Logits are those of the definition, in float64, on both machines.
func TestLogitsAreThoseOfTheDefinition(t *testing.T) {
	for name, c := range models(t) {
		w := drawn(t, c)
		ref, err := newReference(w)
		if err != nil {
			t.Fatal(err)
		}
		m, err := New(c, Options{Batch: 2, Tokens: 5, Weights: w.Values})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		samples := setTokens(m, c.Vocabulary)
		for kind, vm := range machines(t, m.Logits) {
			if err := vm.RunAll(); err != nil {
				t.Fatalf("%s, %s: %v", name, kind, err)
			}
			got := m.Logits.Value().Data().([]float32)
			for row, sample := range samples {
				for i, logits := range ref.logits(sample) {
					for j, want := range logits {
						if x := float64(got[(row*5+i)*c.Vocabulary+j]); math.Abs(x-want) > 1e-5*(1+math.Abs(want)) {
							t.Fatalf("%s, %s: logit %d of token %d of sample %d is %v, want %v", name, kind, j, i, row, x, want)
						}
					}
				}
			}
			vm.Reset()
		}
	}
}

// Files in the layouts of Hugging Face and the graph agree: a model that is saved and loaded has
// the same logits, and chosen positions have the logits of all.
func TestLoadedModelsHaveTheirLogits(t *testing.T) {
	for name, c := range models(t) {
		w := drawn(t, c)
		dir := t.TempDir()
		if err := w.Save(dir); err != nil {
			t.Fatal(err)
		}
		loaded, err := Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := newReference(w)
		if err != nil {
			t.Fatal(err)
		}
		m, err := New(loaded.Config, Options{Batch: 2, Tokens: 6, Weights: loaded.Values, Positions: 2})
		if err != nil {
			t.Fatal(err)
		}
		samples := setTokens(m, c.Vocabulary)
		copy(m.Positions.Value().Data().([]int), []int{6 + 4, 1})
		for kind, vm := range machines(t, m.Logits) {
			if err := vm.RunAll(); err != nil {
				t.Fatalf("%s, %s: %v", name, kind, err)
			}
			got := m.Logits.Value().Data().([]float32)
			for i, want := range append(ref.logits(samples[1])[4], ref.logits(samples[0])[1]...) {
				if x := float64(got[i]); math.Abs(x-want) > 1e-5*(1+math.Abs(want)) {
					t.Fatalf("%s, %s: element %d is %v, want %v", name, kind, i, x, want)
				}
			}
			vm.Reset()
		}
	}
}

func TestGenerateContinuesAText(t *testing.T) {
	c := parse(t, llamaText)
	w := drawn(t, c)
	ref, err := newReference(w)
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(c, Options{Batch: 1, Tokens: 4, Weights: w.Values, Positions: 1})
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSampler(SampleConfig{})
	if err != nil {
		t.Fatal(err)
	}
	text := []int{3, 1}
	want := append([]int(nil), text...)
	for range 6 { // the most likely token each time, from the last four
		window := want[max(0, len(want)-4):]
		all := ref.logits(window)
		best, last := 0, all[len(all)-1]
		for i, x := range last {
			if x > last[best] {
				best = i
			}
		}
		want = append(want, best)
	}
	for kind, vm := range machines(t, m.Logits) {
		got := append([]int(nil), text...)
		err := Generate(m, vm, s, text, 6, func(token int) error { got = append(got, token); return nil })
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%s: %v, want %v", kind, got, want)
			}
		}
		for _, bad := range [][]int{nil, {11}, {-1}} {
			if err := Generate(m, vm, s, bad, 1, func(int) error { return nil }); err == nil {
				t.Errorf("%v is continued", bad)
			}
		}
	}
}

func TestNewRefuses(t *testing.T) {
	c := parse(t, gpt2Text)
	w := drawn(t, c)
	for _, test := range []struct {
		o    Options
		want string
	}{
		{Options{}, "Batch is 0"},
		{Options{Batch: 1, Tokens: 17}, "Tokens is 17; want 1 to the context, 16"},
		{Options{Batch: 1, Positions: 17}, "Positions is 17 of 16 tokens"},
		{Options{Batch: 1, Train: true}, "AttentionDropout is 0.1"},
		{Options{Batch: 1, Weights: w.Values[:3]}, "3 weights, and the configuration has 28 parameters"},
		{Options{Batch: 1, Weights: w.Values, Shapes: true}, "Weights and Shapes"},
	} {
		if _, err := New(c, test.o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %q", test.o, err, test.want)
		}
	}
}
