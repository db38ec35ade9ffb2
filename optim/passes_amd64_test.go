package optim

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// oddNumbers returns n normal numbers; some are zeros of both signs, subnormal, equal, huge or not
// finite.
func oddNumbers(n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 7))
	odd := []float64{0, math.Copysign(0, -1), 1e-40, -1e-45, 1, 1e30, -3e38, math.Inf(1), math.NaN()}
	x := noise(n, seed)
	for i := range x {
		if r.IntN(8) == 0 {
			x[i] = float32(odd[r.IntN(len(odd))])
		}
	}
	return x
}

func TestPassesInAssemblyGiveTheBitsOfGo(t *testing.T) {
	if !hasPasses {
		t.Skip("this processor has no AVX2")
	}
	defer func() { hasPasses = true }()
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom(torchCases).Draw(t, "rule").config
		c.ClipNorm = rapid.SampledFrom([]float64{0, 0, 0.3}).Draw(t, "norm")
		c.ClipValue = rapid.SampledFrom([]float64{0, 0, 0.3}).Draw(t, "value")
		c.EMADecay = rapid.SampledFrom([]float64{0, 0.9}).Draw(t, "average")
		numbers := rapid.SampledFrom([]func(int, uint64) []float32{noise, oddNumbers}).Draw(t, "numbers")
		n, seed := rapid.IntRange(1, 900).Draw(t, "elements"), rapid.Uint64Range(0, 1<<20).Draw(t, "seed")
		run := func(assembly bool) (results [][]float32, failed []bool) {
			hasPasses = assembly
			s, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			weight, grad := numbers(n, seed), make([]float32, n)
			model := vectors(weight, grad)
			for step := range uint64(3) {
				copy(grad, numbers(n, seed+step+1))
				failed = append(failed, s.Step(model) != nil)
			}
			results = append(results, weight)
			if p := &s.(*solver).params[0]; len(p.f32.slots) > 0 {
				results = append(results, p.f32.slots...)
			}
			return results, failed
		}
		want, wantFailed := run(false)
		got, gotFailed := run(true)
		for k := range want {
			for i, w := range want[k] {
				if g := got[k][i]; math.Float32bits(g) != math.Float32bits(w) && !(g != g && w != w) {
					t.Fatalf("array %d, element %d of %d: %v, want %v", k, i, n, g, w)
				}
			}
		}
		for k := range wantFailed {
			if gotFailed[k] != wantFailed[k] {
				t.Fatalf("step %d failed: %t, want %t", k, gotFailed[k], wantFailed[k])
			}
		}
	})
}
