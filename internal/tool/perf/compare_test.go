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
		"ranks: 3 there, 2 here":                func(r *Result) { r.Settings.Ranks = 3 },
		"style: back-to-back there, osu here":   func(r *Result) { r.Settings.Style = BackToBack },
		"fresh buffers: false there, true here": func(r *Result) { r.Settings.Fresh = false },
		"private buffers: true there":           func(r *Result) { r.Settings.Private = true },
		"queued operations: true there":         func(r *Result) { r.Settings.Queued = true },
		"has none of its 1 rows": func(r *Result) {
			r.Rows = []Row{{Op: "reduce", DType: "none", RedOp: "none"}}
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

// Rows that only one of the two results has are counted.
func TestCompareTakesTheRowsThatBothHave(t *testing.T) {
	all := example()
	fewer, other := example(), example()
	fewer.Rows = fewer.Rows[1:3]
	other.Rows = append(other.Rows[2:], Row{Op: "reduce", DType: "none", RedOp: "none"})
	other.Rows[1].Root = 1 // another row than before
	for _, test := range []struct {
		earlier, later         Result
		ratios, dropped, added int
		line                   string
	}{
		{all, fewer, 2, 4, 0, "# Not in both          : 4 rows of the earlier result, 0 rows of this one\n"},
		{fewer, all, 2, 0, 4, "# Not in both          : 0 rows of the earlier result, 4 rows of this one\n"},
		{all, other, 3, 3, 2, "# Not in both          : 3 rows of the earlier result, 2 rows of this one\n"},
	} {
		c, err := Compare(test.earlier, test.later)
		if err != nil || len(c.Ratios) != test.ratios || c.Dropped != test.dropped || c.Added != test.added {
			t.Errorf("%d ratios, %d dropped, %d added, %v; want %+v", len(c.Ratios), c.Dropped, c.Added, err, test)
		}
		var out bytes.Buffer
		if err := c.Write(&out); err != nil || !strings.Contains(out.String(), test.line) {
			t.Errorf("%q is missing in %v\n%s", test.line, err, &out)
		}
	}
}

// The planned rows are compared with the earlier result before any measurement.
func TestComparableKnowsTheRowsBeforehand(t *testing.T) {
	cfg := Config{Ops: []Op{AllReduce, Barrier}, MaxBytes: 4096, Both: true}
	results, _, err := measureSim(t, 2, Config{Ops: cfg.Ops, MaxBytes: cfg.MaxBytes, Both: true, Iters: 1}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := Comparable(results[0], cfg, 2); err != nil {
		t.Errorf("its own rows: %v", err)
	}
	if err := Comparable(results[0], Config{Ops: cfg.Ops, MaxBytes: 64, Both: true}, 2); err != nil {
		t.Errorf("fewer sizes: %v", err)
	}
	for name, c := range map[string]struct {
		cfg   Config
		ranks int
	}{
		"ranks": {cfg, 3},
		"sizes": {Config{Ops: []Op{AllReduce}, MinBytes: 24, MaxBytes: 24, Both: true}, 2},
		"style": {Config{Ops: cfg.Ops, MaxBytes: 4096, Both: true, Style: BackToBack}, 2},
		"ops":   {Config{Ops: []Op{Reduce}, MaxBytes: 4096, Both: true}, 2},
	} {
		if err := Comparable(results[0], c.cfg, c.ranks); !errors.Is(err, ErrOtherRows) {
			t.Errorf("other %s: %v", name, err)
		}
	}
}
