package main

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Every row has one owner, owners are in the order of ranks, and none has two rows more than
// another.
func TestRowsAreDividedFairly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 40).Draw(t, "size")
		n := rapid.IntRange(size, 1000).Draw(t, "rows")
		next, least, most := 0, n, 0
		for r := range size {
			before, rows := divide(n, r, size)
			if before != next {
				t.Fatalf("rank %d begins at %d, want %d", r, before, next)
			}
			next += rows
			least, most = min(least, rows), max(most, rows)
		}
		if _, first := divide(n, 0, size); next != n || most-least > 1 || least < 1 || first != most {
			t.Fatalf("%d rows of %d, %d to %d each, %d on rank 0", next, n, least, most, first)
		}
	})
}

func TestShareTellsBothNumbers(t *testing.T) {
	for _, test := range []struct {
		n, size int
		want    string
	}{{10, 1, "10"}, {10, 5, "2"}, {11, 5, "2 or 3"}, {4, 4, "1"}} {
		if got := share(test.n, test.size); got != test.want {
			t.Errorf("%d rows of %d ranks: %q, want %q", test.n, test.size, got, test.want)
		}
	}
}

// The host waits where it looks, at the last iteration, and before it would use the memory of an
// iteration again.
func TestPauses(t *testing.T) {
	for _, test := range []struct{ from, every, iters, want int }{
		{1, 1, 10, 1},
		{5, 1, 10, 5},
		{1, 10, 100, 10},
		{10, 10, 100, 10},
		{11, 10, 100, 20},
		{1, 10, 7, 7},
		{98, 10, 99, 99},
		{1, 1000, 5000, ahead},
		{ahead + 1, 1000, 5000, 2 * ahead},
		{961, 1000, 5000, 1000},
	} {
		s := settings{normEvery: test.every, iters: test.iters}
		if got := s.pause(test.from); got != test.want {
			t.Errorf("from %d, a look every %d of %d: pause after %d, want %d", test.from, test.every, test.iters, got, test.want)
		}
	}
}

func TestLooksAndLast(t *testing.T) {
	s := settings{normEvery: 4, iters: 10, tol: 0.5}
	for _, test := range []struct {
		k           int
		change      float64
		looks, last bool
	}{
		{1, 0, false, false},
		{4, 0.6, true, false},
		{4, 0.5, true, true},
		{5, 0.1, false, false},
		{10, 9, true, true},
		{8, math.NaN(), true, false},
	} {
		if s.looks(test.k) != test.looks || s.last(test.k, test.change) != test.last {
			t.Errorf("iteration %d with change %v: looks %v, last %v", test.k, test.change, s.looks(test.k), s.last(test.k, test.change))
		}
	}
}

// relax has the bits of the formula for any numbers, and leaves the ends alone.
func TestRelaxIsTheMean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 33).Draw(t, "n")
		row := func(name string) []float64 {
			return rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), n, n).Draw(t, name)
		}
		dst, above, old, below := row("dst"), row("above"), row("old"), row("below")
		first, last := dst[0], dst[n-1]
		relax(dst, above, old, below)
		for i := 1; i < n-1; i++ {
			across, down := old[i-1]+old[i+1], above[i]+below[i]
			if want := 0.25 * (across + down); math.Float64bits(dst[i]) != math.Float64bits(want) {
				t.Fatalf("point %d: %v, want %v", i, dst[i], want)
			}
		}
		if dst[0] != first || dst[n-1] != last {
			t.Fatal("an end has changed")
		}
	})
}

func TestFurthestIsTheLargestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b []float64
		want float64
	}{
		{nil, nil, 0},
		{[]float64{1, 2}, []float64{1, 2}, 0},
		{[]float64{1, 2, 3}, []float64{1.5, -2, 3}, 4},
		{[]float64{-1, 5}, []float64{1, 4}, 2},
	} {
		if got := furthest(test.a, test.b); got != test.want {
			t.Errorf("%v and %v: %v, want %v", test.a, test.b, got, test.want)
		}
	}
}

func TestEdgesOfTheSquare(t *testing.T) {
	const nx, ny = 5, 4
	for row := range ny {
		for col := range nx {
			want := 0.0
			if row == ny-1 {
				want = []float64{0, math.Sqrt2 / 2, 1, math.Sqrt2 / 2, 0}[col]
			}
			got := boundary(row, col, nx, ny)
			if edge := row == 0 || row == ny-1 || col == 0 || col == nx-1; edge && math.Abs(exact(row, col, nx, ny)-got) > 1e-15 {
				t.Errorf("row %d col %d: the solution is %v, the edge %v", row, col, exact(row, col, nx, ny), got)
			}
			if math.Abs(got-want) > 1e-15 {
				t.Errorf("row %d col %d: %v, want %v", row, col, got, want)
			}
		}
	}
}

func TestMeterCountsWhatRanAtOnce(t *testing.T) {
	at := func(from, to time.Duration) span { return span{from * time.Millisecond, to * time.Millisecond} }
	var m meter
	m.add(times{wait: at(0, 10), send: at(20, 25), interior: at(4, 22)})
	m.add(times{wait: at(30, 31), send: at(40, 42), interior: at(50, 60)})
	m.add(times{wait: at(70, 90), interior: at(75, 80)})
	if m.comm != 38*time.Millisecond || m.hidden != (6+2+5)*time.Millisecond {
		t.Errorf("communication %v, hidden %v", m.comm, m.hidden)
	}
}

func TestHelpTellsTheFlags(t *testing.T) {
	var out, errs strings.Builder
	if code := execute([]string{"--help"}, &out, &errs); code != 0 || errs.Len() > 0 {
		t.Errorf("code %d, %s", code, errs.String())
	}
	for _, want := range []string{"--nx", "--ny", "--iters", "--tol", "--norm-every", "--verify", "--no-overlap", "--backend"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help without %s:\n%s", want, out.String())
		}
	}
}
