package data_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/dist"
)

func mustSampler(t interface {
	Helper()
	Fatal(...any)
}, cfg data.SamplerConfig,
) *data.Sampler {
	t.Helper()
	s, err := data.NewSampler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func drawSampler(t *rapid.T) data.SamplerConfig {
	cfg := data.SamplerConfig{
		Samples:     rapid.IntRange(1, 60).Draw(t, "samples"),
		GlobalBatch: rapid.IntRange(1, 20).Draw(t, "batch"),
		Size:        rapid.IntRange(1, 7).Draw(t, "size"),
		Seed:        rapid.Int64().Draw(t, "seed"),
		Shuffle:     rapid.Bool().Draw(t, "shuffle"),
		DropLast:    rapid.Bool().Draw(t, "drop last"),
	}
	cfg.DropLast = cfg.DropLast && cfg.GlobalBatch <= cfg.Samples
	return cfg
}

// globalBatch returns the samples of all ranks at one step, in rank order.
func globalBatch(t *rapid.T, ranks []*data.Sampler) []int {
	var all []int
	shortest, longest := 1<<30, 0
	var first data.Batch
	for r, s := range ranks {
		b := s.Next()
		if r == 0 {
			first = b
		}
		if b.Epoch != first.Epoch || b.Step != first.Step || b.Global != first.Global {
			t.Fatalf("rank %d is at epoch %d step %d of %d samples, rank 0 at epoch %d step %d of %d",
				r, b.Epoch, b.Step, b.Global, first.Epoch, first.Step, first.Global)
		}
		if b.Weight != float64(len(b.Indices)) {
			t.Fatalf("rank %d: weight %v of %d samples", r, b.Weight, len(b.Indices))
		}
		if begin := b.Global * r / len(ranks); len(all) != begin {
			t.Fatalf("the piece of rank %d of %d begins at sample %d of %d, want %d", r, len(ranks), len(all), b.Global, begin)
		}
		shortest, longest = min(shortest, len(b.Indices)), max(longest, len(b.Indices))
		all = append(all, b.Indices...)
	}
	if longest-shortest > 1 {
		t.Fatalf("parts of %d and %d samples", shortest, longest)
	}
	if len(all) != first.Global {
		t.Fatalf("the parts have %d samples, the batch %d", len(all), first.Global)
	}
	return all
}

func samplers(t *rapid.T, cfg data.SamplerConfig) []*data.Sampler {
	all := make([]*data.Sampler, cfg.Size)
	for r := range all {
		cfg.Rank = r
		all[r] = mustSampler(t, cfg)
	}
	return all
}

func TestSamplerDealsEverySampleOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawSampler(t)
		ranks := samplers(t, cfg)
		for range 3 {
			var epoch []int
			for step := range ranks[0].Steps() {
				batch := globalBatch(t, ranks)
				if full := step < ranks[0].Steps()-1 || cfg.DropLast; full && len(batch) != cfg.GlobalBatch {
					t.Fatalf("step %d has %d samples, want %d", step, len(batch), cfg.GlobalBatch)
				}
				epoch = append(epoch, batch...)
			}
			want := cfg.Samples
			if cfg.DropLast {
				want = cfg.Samples / cfg.GlobalBatch * cfg.GlobalBatch
			}
			seen := make([]bool, cfg.Samples)
			for _, i := range epoch {
				if seen[i] {
					t.Fatalf("sample %d comes twice", i)
				}
				seen[i] = true
			}
			if len(epoch) != want {
				t.Fatalf("%d samples in an epoch, want %d", len(epoch), want)
			}
		}
	})
}

func TestSamplerOrderDoesNotDependOnTheNumberOfRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawSampler(t)
		many := samplers(t, cfg)
		cfg.Size = 1
		one := samplers(t, cfg)
		for range 2*one[0].Steps() + 1 {
			if a, b := globalBatch(t, many), globalBatch(t, one); !slices.Equal(a, b) {
				t.Fatalf("%d ranks get %v, one gets %v", len(many), a, b)
			}
		}
	})
}

func TestSamplerResumesAtAnotherNumberOfRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawSampler(t)
		before := samplers(t, cfg)
		for range rapid.IntRange(0, 3*before[0].Steps()).Draw(t, "steps") {
			globalBatch(t, before)
		}
		saved, err := json.Marshal(before[0].Cursor())
		if err != nil {
			t.Fatal(err)
		}
		var cursor data.Cursor
		if err := json.Unmarshal(saved, &cursor); err != nil {
			t.Fatal(err)
		}
		cfg.Size = rapid.IntRange(1, 7).Draw(t, "new size")
		after := samplers(t, cfg)
		for _, s := range after {
			s.Next() // somewhere else
			if err := s.Seek(cursor); err != nil {
				t.Fatal(err)
			}
		}
		for range before[0].Steps() + 1 {
			if a, b := globalBatch(t, before), globalBatch(t, after); !slices.Equal(a, b) {
				t.Fatalf("the first job gets %v, the resumed one %v", a, b)
			}
		}
	})
}

// TestSamplerOrderIsForEver holds the numbers that a checkpoint relies on.
func TestSamplerOrderIsForEver(t *testing.T) {
	s := mustSampler(t, data.SamplerConfig{Samples: 10, GlobalBatch: 10, Seed: 42, Shuffle: true})
	for epoch, want := range [][]int{{7, 4, 8, 1, 2, 5, 9, 6, 0, 3}, {0, 3, 6, 8, 1, 2, 4, 9, 7, 5}} {
		if b := s.Next(); !slices.Equal(b.Indices, want) {
			t.Errorf("epoch %d is %v, want %v", epoch, b.Indices, want)
		}
	}
	plain := mustSampler(t, data.SamplerConfig{Samples: 5, GlobalBatch: 3, Seed: 42})
	if a, b := plain.Next().Indices, plain.Next().Indices; !slices.Equal(a, []int{0, 1, 2}) || !slices.Equal(b, []int{3, 4}) {
		t.Errorf("without Shuffle: %v, %v", a, b)
	}
}

// TestSamplerShufflesWithoutBias counts where samples land: with 3 samples each of the 6 orders is
// equally likely.
func TestSamplerShufflesWithoutBias(t *testing.T) {
	count := map[[3]int]int{}
	const seeds = 6000
	for seed := range seeds {
		s := mustSampler(t, data.SamplerConfig{Samples: 3, GlobalBatch: 3, Seed: int64(seed), Shuffle: true})
		count[[3]int(s.Next().Indices)]++
	}
	if len(count) != 6 {
		t.Fatalf("%d orders of 3 samples", len(count))
	}
	chi := 0.0
	for _, n := range count {
		d := float64(n) - seeds/6
		chi += d * d / (seeds / 6)
	}
	if chi > 20.5 { // 5 degrees of freedom, p = 0.001
		t.Errorf("chi-squared is %v: %v", chi, count)
	}
}

func TestSamplerSeekRefusesAnotherOrder(t *testing.T) {
	cfg := data.SamplerConfig{Samples: 100, GlobalBatch: 10, Seed: 1, Shuffle: true}
	s := mustSampler(t, cfg)
	good := s.Cursor()
	for name, change := range map[string]func(*data.Cursor){
		"Samples":     func(c *data.Cursor) { c.Samples++ },
		"GlobalBatch": func(c *data.Cursor) { c.GlobalBatch++ },
		"Seed":        func(c *data.Cursor) { c.Seed++ },
		"Shuffle":     func(c *data.Cursor) { c.Shuffle = false },
		"DropLast":    func(c *data.Cursor) { c.DropLast = true },
		"step 10":     func(c *data.Cursor) { c.Step = 10 },
		"epoch -1":    func(c *data.Cursor) { c.Epoch = -1 },
	} {
		c := good
		change(&c)
		if err := s.Seek(c); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: Seek is %v", name, err)
		}
	}
	if s.Cursor() != good {
		t.Errorf("a refused Seek moved the sampler to %v", s.Cursor())
	}
}

func TestSamplerConfigIsChecked(t *testing.T) {
	good := data.SamplerConfig{Samples: 8, GlobalBatch: 4, Rank: 1, Size: 2}
	for _, c := range []struct {
		name   string
		change func(*data.SamplerConfig)
	}{
		{"no samples", func(c *data.SamplerConfig) { c.Samples = 0 }},
		{"no batch", func(c *data.SamplerConfig) { c.GlobalBatch = 0 }},
		{"rank too high", func(c *data.SamplerConfig) { c.Rank = 2 }},
		{"negative rank", func(c *data.SamplerConfig) { c.Rank = -1 }},
		{"negative size", func(c *data.SamplerConfig) { c.Size = -2 }},
		{"nothing left", func(c *data.SamplerConfig) { c.GlobalBatch, c.DropLast = 9, true }},
	} {
		cfg := good
		c.change(&cfg)
		if _, err := data.NewSampler(cfg); !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("%s: NewSampler is %v", c.name, err)
		}
	}
	alone := good
	alone.Size = 0 // which is 1
	if _, err := data.NewSampler(alone); err == nil || !strings.Contains(err.Error(), "rank 1 of 1") {
		t.Errorf("rank 1 of a Size of 0: NewSampler is %v", err)
	}
	if _, err := data.NewSampler(good); err != nil {
		t.Errorf("a good config: %v", err)
	}
}
