package transformer

import (
	"math"
	"testing"

	G "gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/machine"
)

// loss returns the mean cross-entropy of the targets that are not Ignored.
func (r *reference) loss(samples [][]int, targets []int) float64 {
	sum, n := 0.0, 0
	for row, sample := range samples {
		for i, logits := range r.logits(sample) {
			target := targets[row*len(sample)+i]
			if target == Ignored {
				continue
			}
			total := 0.0
			for _, x := range logits {
				total += math.Exp(x)
			}
			sum += math.Log(total) - logits[target]
			n++
		}
	}
	return sum / float64(n)
}

// Loss and gradients are those of the definition: float64 differences of the reference.
func TestGradientsAreThoseOfTheDefinition(t *testing.T) {
	for name, c := range models(t) {
		w := drawn(t, c)
		ref, err := newReference(w)
		if err != nil {
			t.Fatal(err)
		}
		m, err := New(c, Options{Batch: 2, Tokens: 5, Weights: w.Values, Train: true})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		samples := setTokens(m, c.Vocabulary)
		targets := m.Targets.Value().Data().([]int)
		for i := range targets {
			targets[i] = (3*i + 1) % c.Vocabulary
		}
		targets[2], targets[9] = Ignored, Ignored
		grads, err := G.Grad(m.Cost, m.Params...)
		if err != nil {
			t.Fatal(err)
		}
		own, err := machine.New(m.Cost.Graph(), machine.Config{Device: machine.CPU}, append(G.Nodes{m.Cost}, grads...)...)
		if err != nil {
			t.Fatal(err)
		}
		for kind, vm := range map[string]G.VM{"tape": G.NewTapeMachine(m.Cost.Graph()), "compiled": own} {
			if err := vm.RunAll(); err != nil {
				t.Fatalf("%s, %s: %v", name, kind, err)
			}
			if got, want := float64(m.Cost.Value().Data().(float32)), ref.loss(samples, targets); math.Abs(got-want) > 1e-5*want {
				t.Errorf("%s, %s: loss %v, want %v", name, kind, got, want)
			}
			for i, p := range m.Params {
				checkGradient(t, name+", "+kind+": ", ref, p.Name(), grads[i].Value().Data().([]float32), func() float64 { return ref.loss(samples, targets) })
			}
			if err := vm.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// checkGradient compares elements of a gradient with differences of the loss.
func checkGradient(t *testing.T, what string, r *reference, name string, grad []float32, loss func() float64) {
	t.Helper()
	values := r.values[name]
	const step = 1e-5
	for _, i := range []int{0, len(values) / 3, len(values) - 2} {
		old := values[i]
		values[i] = old + step
		up := loss()
		values[i] = old - step
		down := loss()
		values[i] = old
		if want, got := (up-down)/(2*step), float64(grad[i]); math.Abs(got-want) > 2e-5+1e-4*math.Abs(want) {
			t.Errorf("%s%s[%d]: gradient %v, want %v", what, name, i, got, want)
		}
	}
}
