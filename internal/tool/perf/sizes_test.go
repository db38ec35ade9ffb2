package perf

import (
	"math"
	"slices"
	"testing"
)

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "8": 8, "1K": 1024, "1k": 1024, "64M": 64 << 20, "2g": 2 << 30, "1.5M": 3 << 19, ".5K": 512, "3.": 3,
	} {
		if got, err := ParseSize(s); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "K", "-1", "+1", "1T", "1KB", "1 K", "0x10", "1_000", "1e3", "inf", "nan", "1..2", ".", "9999999999G"} {
		if got, err := ParseSize(s); err == nil {
			t.Errorf("%q is taken for %d bytes", s, got)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"8", "64M", "1.5K", "-3", "1e99G"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseSize(s)
		if err == nil && n < 0 {
			t.Errorf("%q is %d bytes", s, n)
		}
	})
}

func TestFormatSizeIsReadBack(t *testing.T) {
	for want, n := range map[string]int64{"0": 0, "8": 8, "1023": 1023, "1K": 1024, "1536": 1536, "3M": 3 << 20, "64G": 64 << 30} {
		s := FormatSize(n)
		back, err := ParseSize(s)
		if s != want || err != nil || back != n {
			t.Errorf("%d: %q, read back as %d, %v; want %q", n, s, back, err, want)
		}
	}
}

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		low, high, step int64
		factor          int
		want            []int64
	}{
		{8, 64, 0, 2, []int64{8, 16, 32, 64}},
		{8, 100, 0, 4, []int64{8, 32}},
		{8, 8, 0, 2, []int64{8}},
		{10, 40, 15, 2, []int64{10, 25, 40}},
		{9, 8, 0, 2, nil},
		{math.MaxInt64 / 2, math.MaxInt64, 0, 4, []int64{math.MaxInt64 / 2}},
		{math.MaxInt64 - 1, math.MaxInt64, 9, 2, []int64{math.MaxInt64 - 1}},
	} {
		if got := sizes(c.low, c.high, c.step, c.factor); !slices.Equal(got, c.want) {
			t.Errorf("%d to %d, step %d, factor %d: %v, want %v", c.low, c.high, c.step, c.factor, got, c.want)
		}
	}
}
