package compress_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/tensor"
)

// squad is a hook's codecs of one bucket on several ranks, with sums in this goroutine.
type squad struct {
	codecs   []compress.Codec
	messages [][]tensor.Buffer // [rank][round]
	grads    [][]float64
}

func newSquad(t *testing.T, h compress.Hook, ranks int, params ...compress.Param) *squad {
	t.Helper()
	b := compress.Bucket{DType: tensor.F64, Ranks: ranks}
	for _, p := range params {
		p.Offset = b.Elements
		b.Elements += p.Len()
		b.Params = append(b.Params, p)
	}
	s := &squad{}
	for b.Rank = range ranks {
		c, err := h.Codec(b)
		if err != nil {
			t.Fatal(err)
		}
		var m []tensor.Buffer
		for _, msg := range c.Messages() {
			m = append(m, tensor.Of(make([]float64, msg.Elements)))
		}
		s.codecs, s.messages, s.grads = append(s.codecs, c), append(s.messages, m), append(s.grads, make([]float64, b.Elements))
	}
	return s
}

// step sends the ranks' gradients, each times share, and returns the result, which is equal on all
// ranks.
func (s *squad) step(t *testing.T, share float64, grads [][]float64) []float64 {
	t.Helper()
	for r, g := range grads {
		copy(s.grads[r], g)
	}
	for round := range s.messages[0] {
		for r, c := range s.codecs {
			if err := c.Compress(round, share, tensor.Of(s.grads[r]), s.messages[r]); err != nil {
				t.Fatal(err)
			}
		}
		for i := range s.message(t, 0, round) {
			sum := 0.0
			for r := range s.codecs {
				sum += s.message(t, r, round)[i]
			}
			for r := range s.codecs {
				s.message(t, r, round)[i] = sum
			}
		}
	}
	for r, c := range s.codecs {
		if err := c.Decompress(tensor.Of(s.grads[r]), s.messages[r]); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(s.grads[r]) != fmt.Sprint(s.grads[0]) { // NaN is like NaN
			t.Fatalf("rank %d has another gradient than rank 0", r)
		}
	}
	return slices.Clone(s.grads[0])
}

func (s *squad) message(t *testing.T, rank, round int) []float64 {
	t.Helper()
	m, err := tensor.Data[float64](s.messages[rank][round])
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// residuals returns the sum over the ranks of a parameter's residuals.
func (s *squad) residuals(t *testing.T, param string) []float64 {
	t.Helper()
	var sum []float64
	for _, c := range s.codecs {
		for _, k := range c.(compress.Stateful).State() {
			if k.Param != param || k.Slot != "residual" {
				continue
			}
			if !k.Sum {
				t.Error("a residual is said to be the same on all ranks")
			}
			part, err := tensor.Data[float32](k.Data)
			if err != nil {
				t.Fatal(err)
			}
			if sum == nil {
				sum = make([]float64, len(part))
			}
			for i, x := range part {
				sum[i] += float64(x)
			}
		}
	}
	return sum
}

// ofRank is a random matrix of n rows and m columns with the given singular values.
func ofRank(rng *rand.Rand, n, m int, values ...float64) []float64 {
	base := func(length int) [][]float64 {
		var all [][]float64
		for range values {
			v := make([]float64, length)
			for i := range v {
				v[i] = rng.NormFloat64()
			}
			for range 2 {
				for _, u := range all {
					d := 0.0
					for i := range v {
						d += u[i] * v[i]
					}
					for i := range v {
						v[i] -= d * u[i]
					}
				}
			}
			size := 0.0
			for _, x := range v {
				size += x * x
			}
			for i := range v {
				v[i] /= math.Sqrt(size)
			}
			all = append(all, v)
		}
		return all
	}
	us, vs := base(n), base(m)
	out := make([]float64, n*m)
	for k, s := range values {
		for i := range n {
			for j := range m {
				out[i*m+j] += s * us[k][i] * vs[k][j]
			}
		}
	}
	return out
}

func distance(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += (a[i] - b[i]) * (a[i] - b[i])
	}
	return math.Sqrt(sum)
}

// relative returns the largest difference, relative to the largest element of b.
func relative(a, b []float64) float64 {
	diff, size := 0.0, 0.0
	for i := range a {
		diff, size = max(diff, math.Abs(a[i]-b[i])), max(size, math.Abs(b[i]))
	}
	return diff / size
}

var matrixParam = compress.Param{Name: "w", Shape: []int{30, 5, 8}} // a matrix of 30 rows and 40 columns

func TestPowerSGDIsExactForGradientsOfItsRank(t *testing.T) {
	for ranks := 1; ranks <= 4; ranks++ {
		rng := rand.New(rand.NewPCG(1, uint64(ranks)))
		s := newSquad(t, compress.PowerSGD{Rank: 3}, ranks, compress.Param{Name: "b", Shape: []int{7}}, matrixParam)
		for range 3 {
			sum := ofRank(rng, 30, 40, 5, 2, 1) // the ranks' own are of full rank
			grads := make([][]float64, ranks)
			total := make([]float64, 7+1200)
			for r := range grads {
				grads[r] = make([]float64, 7+1200)
				for i := range grads[r] {
					grads[r][i] = rng.NormFloat64()
				}
			}
			for i := range total {
				rest := 0.0
				for r := 1; r < ranks; r++ {
					rest += grads[r][i]
				}
				if i >= 7 {
					grads[0][i] = sum[i-7] - rest
				}
				total[i] = 0.5 * (grads[0][i] + rest)
			}
			got := s.step(t, 0.5, grads)
			if e := relative(got, total); !(e <= 1e-5) { // residuals, which are larger, are in float32
				t.Errorf("%d ranks: off by %g", ranks, e)
			}
			if e := relative(got[:7], total[:7]); !(e <= 1e-15) {
				t.Errorf("%d ranks: the bias is off by %g", ranks, e)
			}
		}
	}
}

// TestPowerSGDTurnsToTheBestApproximation has the error that no matrix of the rank undercuts
// (Eckart and Young, 1936).
func TestPowerSGDTurnsToTheBestApproximation(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 1))
	m := ofRank(rng, 30, 40, 8, 4, 1, 0.5, 0.25)
	best := math.Sqrt(1 + 0.25 + 0.0625)
	s := newSquad(t, compress.PowerSGD{Rank: 2, NoErrorFeedback: true}, 1, matrixParam)
	first := distance(s.step(t, 1, [][]float64{m}), m)
	var last float64
	for range 20 {
		last = distance(s.step(t, 1, [][]float64{m}), m)
	}
	if !(first > 1.05*best) || !(last <= best*(1+1e-9)) {
		t.Errorf("the first step is off by %g, the last by %g, want more than %g and then that", first, last, best)
	}
	cold := newSquad(t, compress.PowerSGD{Rank: 2, NoErrorFeedback: true, NoWarmStart: true}, 1, matrixParam)
	for range 20 {
		last = distance(cold.step(t, 1, [][]float64{m}), m)
	}
	if !(last > best*(1+1e-6)) {
		t.Errorf("without a warm start the 20th step is off by %g, as if it had one", last)
	}
}

func TestPowerSGDLeavesNothingOutForGood(t *testing.T) {
	for ranks := 1; ranks <= 3; ranks++ {
		rng := rand.New(rand.NewPCG(3, uint64(ranks)))
		s := newSquad(t, compress.PowerSGD{Rank: 2}, ranks, matrixParam)
		sent, due := make([]float64, 1200), make([]float64, 1200)
		for range 25 {
			grads := make([][]float64, ranks)
			for r := range grads {
				grads[r] = make([]float64, 1200)
				for i := range grads[r] {
					grads[r][i] = rng.NormFloat64()
					due[i] += 0.25 * grads[r][i]
				}
			}
			for i, x := range s.step(t, 0.25, grads) {
				sent[i] += x
			}
		}
		for i, x := range s.residuals(t, "w") {
			sent[i] += x
		}
		if e := relative(sent, due); !(e <= 1e-6) {
			t.Errorf("%d ranks: the sums of gradients and residuals differ by %g", ranks, e)
		}
	}
}

// TestPowerSGDSurvivesWhatIsNotFinite has a NaN on one rank: all get NaN, and the next step is as
// if it had not been.
func TestPowerSGDSurvivesWhatIsNotFinite(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.MaxFloat64} {
		rng := rand.New(rand.NewPCG(4, 1))
		good := [][]float64{ofRank(rng, 30, 40, 3, 2, 1), ofRank(rng, 30, 40, 3, 2, 1)}
		want, s := newSquad(t, compress.PowerSGD{Rank: 2}, 2, matrixParam), newSquad(t, compress.PowerSGD{Rank: 2}, 2, matrixParam)
		want.step(t, 0.5, good)
		s.step(t, 0.5, good)
		ill := [][]float64{slices.Clone(good[0]), good[1]}
		ill[0][77], ill[0][78], ill[0][79] = bad, bad, bad
		if got := s.step(t, 4, ill); !math.IsNaN(got[0]) {
			t.Errorf("a gradient with %v gives %v, want NaN", bad, got[0])
		}
		if a, b := s.step(t, 0.5, good), want.step(t, 0.5, good); !slices.Equal(a, b) {
			t.Errorf("the step after one with %v is off by %g", bad, relative(a, b))
		}
	}
}

func TestPowerSGDSurvivesZeros(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 1))
	s := newSquad(t, compress.PowerSGD{Rank: 2}, 1, matrixParam)
	zeros := [][]float64{make([]float64, 1200)}
	for _, m := range [][]float64{ofRank(rng, 30, 40, 1), zeros[0], zeros[0], ofRank(rng, 30, 40, 3, 2)} {
		if e := distance(s.step(t, 1, [][]float64{m}), m); !(e <= 1e-6) {
			t.Errorf("a matrix of rank 0, 1 or 2 is off by %g", e)
		}
	}
}

func TestPowerSGDRefusesANegativeRank(t *testing.T) {
	if _, err := (compress.PowerSGD{Rank: -1}).Codec(compress.Bucket{DType: tensor.F32}); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("Codec is %v", err)
	}
}

// TestPowerSGDForgetsWhatItCannotKeep has float64 gradients whose residuals are too large for
// float32.
func TestPowerSGDForgetsWhatItCannotKeep(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 1))
	s := newSquad(t, compress.PowerSGD{Rank: 1}, 1, matrixParam)
	huge := ofRank(rng, 30, 40, 1e60, 1e59)
	good := ofRank(rng, 30, 40, 3)
	if got := s.step(t, 1, [][]float64{huge}); slices.ContainsFunc(got, func(x float64) bool { return x-x != 0 }) {
		t.Error("a finite gradient becomes another")
	}
	for _, x := range s.residuals(t, "w") {
		if x-x != 0 {
			t.Fatalf("%v is kept", x)
		}
	}
	for range 2 {
		if e := distance(s.step(t, 1, [][]float64{good}), good); !(e < 1e-6) {
			t.Errorf("a matrix of rank 1 is off by %g", e)
		}
	}
}

// TestPowerSGDHasTheRangeOfItsNumbers scales gradients by a large or small power of two, so that
// their squares are not finite: the messages are scaled by it, to the bit.
func TestPowerSGDHasTheRangeOfItsNumbers(t *testing.T) {
	for _, exponent := range []int{-600, 600} {
		rng := rand.New(rand.NewPCG(6, 1))
		hook := compress.PowerSGD{Rank: 3, NoErrorFeedback: true}
		plain, scaled := newSquad(t, hook, 2, matrixParam), newSquad(t, hook, 2, matrixParam)
		for step := range 4 {
			good := [][]float64{ofRank(rng, 30, 40, 3, 2, 1, 0.5), ofRank(rng, 30, 40, 3, 2, 1, 0.5)}
			want := plain.step(t, 0.5, good)
			for _, g := range good {
				for i := range g {
					g[i] = math.Ldexp(g[i], exponent)
				}
			}
			got := scaled.step(t, 0.5, good)
			for i := range got {
				got[i] = math.Ldexp(got[i], -exponent)
			}
			if !slices.Equal(got, want) {
				t.Errorf("step %d times 2^%d is off by %g", step, exponent, relative(got, want))
			}
		}
	}
}
