package optim

import (
	"slices"
	"testing"

	"gorgonia.org/gorgonia"
	"pgregory.net/rapid"
)

// cutUp returns weight and grad as consecutive parameters of the given ends.
func cutUp(weight, grad []float32, ends []int) []gorgonia.ValueGrad {
	var pairs [][]float32
	lo := 0
	for _, hi := range append(slices.Clone(ends), len(weight)) {
		if hi > lo {
			pairs = append(pairs, weight[lo:hi:hi], grad[lo:hi:hi])
			lo = hi
		}
	}
	return vectors(pairs...)
}

func TestBitsDependOnNeitherCutsNorWorkers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := rapid.SampledFrom(torchCases).Draw(t, "rule").config
		if config.Name == LAMB {
			t.Skip("its norms are those of parameters, and change with the cuts")
		}
		n := rapid.IntRange(1, 5*spanLen).Draw(t, "elements")
		seed := rapid.Uint64Range(0, 1<<20).Draw(t, "seed")
		run := func(name string) []float32 {
			ends := rapid.SliceOfN(rapid.IntRange(1, n), 0, 6).Draw(t, name+" ends")
			slices.Sort(ends)
			config.Workers = rapid.IntRange(1, 4).Draw(t, name+" workers")
			s, err := New(config)
			if err != nil {
				t.Fatal(err)
			}
			weight, grad := noise(n, seed), make([]float32, n)
			model := cutUp(weight, grad, ends)
			for step := range uint64(3) {
				copy(grad, noise(n, seed+step+1))
				if err := s.Step(model); err != nil {
					t.Fatal(err)
				}
			}
			return weight
		}
		if a, b := run("first"), run("second"); !slices.Equal(bitsOf(a), bitsOf(b)) {
			t.Fatal("weights differ")
		}
	})
}

func TestClippedBitsDoNotDependOnWorkers(t *testing.T) {
	const n = 9*spanLen + 1
	var first []float32
	var norm float64
	for _, workers := range []int{1, 2, 3, 8} {
		weight, grad := noise(n, 1), noise(n, 2)
		s := newSolver(t, Config{Name: Adam, ClipNorm: 0.5, Workers: workers})
		if err := s.Step(cutUp(weight, grad, []int{7, 3 * spanLen})); err != nil {
			t.Fatal(err)
		}
		if workers == 1 {
			first, norm = weight, s.GradNorm()
		}
		if !slices.Equal(weight, first) || s.GradNorm() != norm {
			t.Errorf("%d workers: norm %v against %v of one, or other weights", workers, s.GradNorm(), norm)
		}
	}
}

func TestClipNeverExceedsItsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 200).Draw(t, "elements")
		size := rapid.Float64Range(1e-12, 1e12).Draw(t, "size")
		limit := rapid.Float64Range(1e-6, 1e6).Draw(t, "limit")
		weight, grad := make([]float64, n), make([]float64, n)
		for i, v := range noise(n, rapid.Uint64Range(0, 1<<20).Draw(t, "seed")) {
			grad[i] = float64(v) * size
		}
		s, err := New(Config{Name: SGD, LearningRate: 1, ClipNorm: limit})
		if err != nil {
			t.Fatal(err)
		}
		model := vectors(weight, grad)
		if err := s.Step(model); err != nil {
			t.Fatal(err)
		}
		moved := norm(model) // the weights were 0 and the rate is 1
		if moved > limit*(1+1e-12) {
			t.Fatalf("a gradient of norm %v was clipped to %v, limit %v", s.GradNorm(), moved, limit)
		}
		if s.GradNorm() < limit-1e-5 && !(moved >= s.GradNorm()*(1-1e-12)) {
			t.Fatalf("a gradient of norm %v below the limit %v moved the weights by %v", s.GradNorm(), limit, moved)
		}
	})
}

func TestCrewDoesEveryNumberOnce(t *testing.T) {
	for _, workers := range []int{0, 1, 2, 5} {
		c := newCrew(workers)
		for _, n := range []int{0, 1, 3, 4, 7, 8, 100} {
			done := make([]int, n) // each element is written by one goroutine: the race detector watches
			for range 3 {
				c.run(n, func(_, i int) { done[i]++ })
			}
			if slices.ContainsFunc(done, func(times int) bool { return times != 3 }) {
				t.Errorf("%d workers, %d numbers: done %v times in three runs", workers, n, done)
			}
		}
	}
}

func TestSpansCoverEveryElementOnce(t *testing.T) {
	for _, size := range []int{0, 1, spanLen - 1, spanLen, spanLen + 1, 3*spanLen + 5} {
		next := 0
		for _, s := range appendSpans(nil, 4, size) {
			if s.param != 4 || s.lo != next || s.hi <= s.lo || s.hi-s.lo > spanLen {
				t.Errorf("size %d: span %+v after element %d", size, s, next)
			}
			next = s.hi
		}
		if next != size {
			t.Errorf("size %d: spans end at %d", size, next)
		}
	}
}
