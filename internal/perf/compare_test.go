package perf

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestCompareTakesRatiosByRow(t *testing.T) {
	before, now := example(), example()
	slices.Reverse(before.Rows) // the order does not count
	for i, factor := range []float64{0.5, 2, 1, 0.25, 1, 1} {
		now.Rows[i].TimeUS *= factor
		now.Rows[i].MedianUS *= 2
	}
	now.Settings.Backend = "sim" // nor does the backend
	c, err := Compare(before, now)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{0.5, 2, 1, 0.25, 1, 1} {
		r := c.Ratios[i]
		if math.Abs(r.OfTime-want) > 1e-12 || math.Abs(r.OfMedian-2) > 1e-12 || r.Row.key() != now.Rows[i].key() || r.Earlier.key() != r.Row.key() {
			t.Errorf("row %d: %+v, want a ratio of %v", i, r, want)
		}
	}
	if want := math.Pow(0.25, 1.0/6); math.Abs(c.Mean-want) > 1e-12 || math.Abs(c.Medians-2) > 1e-12 {
		t.Errorf("geometric means %v and %v, want %v and 2", c.Mean, c.Medians, want)
	}
	var out bytes.Buffer
	if err := c.Write(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, "compare.txt", out.Bytes())
}

func TestCompareRefusesOtherRows(t *testing.T) {
	for want, change := range map[string]func(*Result){
		"ranks: 3 there, 2 here":                      func(r *Result) { r.Settings.Ranks = 3 },
		"style: back-to-back there, osu here":         func(r *Result) { r.Settings.Style = BackToBack },
		"fresh buffers: false there, true here":       func(r *Result) { r.Settings.Fresh = false },
		"private buffers: true there":                 func(r *Result) { r.Settings.Private = true },
		"queued operations: true there":               func(r *Result) { r.Settings.Queued = true },
		`no row "allreduce f32 sum, 8 B`:              func(r *Result) { r.Rows = r.Rows[1:] },
		`no row "broadcast f32, 64 B, 16 elements, r`: func(r *Result) { r.Rows[3].Root = 1 },
		`a row "reduce, 0 B`: func(r *Result) {
			r.Rows = append(r.Rows, Row{Op: "reduce", DType: "none", RedOp: "none"})
		},
		`has no time`: func(r *Result) { r.Rows[2].TimeUS = 0 },
	} {
		before := example()
		change(&before)
		if _, err := Compare(before, example()); !errors.Is(err, ErrOtherRows) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// What will be measured is held against the earlier result before anything is.
func TestComparableKnowsTheRowsBeforehand(t *testing.T) {
	cfg := Config{Ops: []Op{AllReduce, Barrier}, MaxBytes: 4096, Both: true}
	results, _, err := measureSim(t, 2, Config{Ops: cfg.Ops, MaxBytes: cfg.MaxBytes, Both: true, Iters: 1}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := Comparable(results[0], cfg, 2); err != nil {
		t.Errorf("its own rows: %v", err)
	}
	for name, c := range map[string]struct {
		cfg   Config
		ranks int
	}{
		"ranks": {cfg, 3},
		"sizes": {Config{Ops: cfg.Ops, MaxBytes: 64, Both: true}, 2},
		"style": {Config{Ops: cfg.Ops, MaxBytes: 4096, Both: true, Style: BackToBack}, 2},
		"ops":   {Config{Ops: []Op{Reduce}, MaxBytes: 4096, Both: true}, 2},
	} {
		if err := Comparable(results[0], c.cfg, c.ranks); !errors.Is(err, ErrOtherRows) {
			t.Errorf("other %s: %v", name, err)
		}
	}
}
