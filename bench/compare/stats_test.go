package main

import (
	"math"
	"slices"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3},
		{[]float64{9, 1, 2}, 2},
		{[]float64{4, 1, 100, 2}, 3},
		{[]float64{1, 1, 1, 1e9, 1}, 1},
		{nil, math.NaN()},
	} {
		got := median(slices.Clone(tc.values))
		if got != tc.want && !(math.IsNaN(got) && math.IsNaN(tc.want)) {
			t.Errorf("median of %v is %v, want %v", tc.values, got, tc.want)
		}
	}
}

func TestGeomean(t *testing.T) {
	for _, tc := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{0.25}, 0.25},
		{[]float64{0.5, 2}, 1},
		{[]float64{1, 10, 100}, 10},
	} {
		if got := geomean(tc.values); math.Abs(got-tc.want) > 1e-12*tc.want {
			t.Errorf("geometric mean of %v is %v, want %v", tc.values, got, tc.want)
		}
	}
	if got := geomean(nil); !math.IsNaN(got) {
		t.Errorf("geometric mean of nothing is %v", got)
	}
}

// samplesOf is the samples of an engine for one key, a batch each.
func samplesOf(k key, engine string, us ...float64) []sample {
	var list []sample
	for _, v := range us {
		list = append(list, sample{k, engine, v})
	}
	return list
}

func TestALineComparesTheLeastTimeWithTheBestOtherEngine(t *testing.T) {
	k := key{plain, "allreduce", 8}
	for _, tc := range []struct {
		name    string
		samples [][]sample
		best    string
		ratio   float64
	}{
		{
			"a disturbed batch does not count",
			[][]sample{samplesOf(k, "openmpi", 5, 8, 8), samplesOf(k, "mpich", 40, 4, 9), samplesOf(k, ours, 30, 2, 30)},
			"mpich", 0.5,
		},
		{
			"equal engines: the first of the session",
			[][]sample{samplesOf(k, "mpich", 4), samplesOf(k, "openmpi", 4), samplesOf(k, ours, 6)},
			"openmpi", 1.5,
		},
		{"only ours", [][]sample{samplesOf(k, ours, 1)}, "", math.NaN()},
		{"all but ours", [][]sample{samplesOf(k, "openmpi", 1)}, "openmpi", math.NaN()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &session{Engines: []string{ours, "openmpi", "mpich"}, samples: slices.Concat(tc.samples...)}
			l := newLine(s, k)
			if l.best != tc.best {
				t.Errorf("best is %q, want %q", l.best, tc.best)
			}
			if l.ratio != tc.ratio && !(math.IsNaN(l.ratio) && math.IsNaN(tc.ratio)) {
				t.Errorf("ratio is %v, want %v", l.ratio, tc.ratio)
			}
		})
	}
}

func TestTablesAreInTheOrderOfOperationsAndSizes(t *testing.T) {
	s := &session{Engines: []string{ours, "openmpi"}, counts: []count{{unit: plain, kept: 1}}}
	for _, k := range []key{
		{plain, "somethingelse", 8},
		{plain, "barrier", 0},
		{plain, "allreduce", 64},
		{plain, "allreduce", 8},
		{plain, "allreduce", 16},
	} {
		s.samples = append(s.samples, sample{k, ours, float64(k.bytes + 1)}, sample{k, "openmpi", 100})
	}
	tables := newTables(s)
	var got []string
	for _, tb := range tables {
		got = append(got, tb.op)
	}
	if want := []string{"allreduce", "barrier", "somethingelse"}; !slices.Equal(got, want) {
		t.Fatalf("tables %v, want %v", got, want)
	}
	first := tables[0]
	if len(first.lines) != 3 || first.lines[0].bytes != 8 || first.lines[1].bytes != 16 || first.lines[2].bytes != 64 {
		t.Errorf("lines %v", first.lines)
	}
	if first.least != 0.09 || first.most != 0.65 || first.worst != 64 || first.lowest != 8 || first.high != 64 {
		t.Errorf("summary: from %v to %v at %d, sizes %d to %d", first.least, first.most, first.worst, first.lowest, first.high)
	}
}
