package main

import (
	"slices"
	"strings"
	"testing"
)

// everything returns a session with measurements of all sizes of the criteria, with one ratio.
// change may change our time.
func everything(ratio float64, change func(k key, us float64) float64) *session {
	s := &session{Engines: []string{ours, "openmpi", "mpich"}}
	for _, ranks := range []int{2, 4} {
		for _, fresh := range []bool{false, true} {
			for _, inPlace := range []bool{false, true} {
				s.addUnit(unit{ranks, fresh, inPlace}, ratio, change)
			}
		}
	}
	return s
}

// addUnit adds the samples of one unit. A change to 0 leaves ours out.
func (s *session) addUnit(u unit, ratio float64, change func(k key, us float64) float64) {
	s.counts = append(s.counts, count{unit: u, kept: 1})
	for _, op := range operations {
		if u.InPlace && op != "allreduce" {
			continue
		}
		for bytes := int64(8); bytes <= 64<<20; bytes *= 2 {
			k := key{u, op, max(bytes, int64(4*u.Ranks))}
			if op == "barrier" {
				k.bytes = 0
			}
			us := 100 * ratio
			if change != nil {
				us = change(k, us)
			}
			s.samples = append(s.samples, sample{k, "openmpi", 150}, sample{k, "mpich", 100})
			if us > 0 {
				s.samples = append(s.samples, sample{k, ours, us})
			}
		}
	}
}

// failing is the verdicts that do not hold.
func failing(s *session) []verdict {
	return slices.DeleteFunc(judge(newTables(s)), func(v verdict) bool { return v.Holds })
}

func TestEveryCriterionHoldsWhenRatiosAreSmall(t *testing.T) {
	s := everything(0.2, nil)
	if list := failing(s); len(list) > 0 {
		t.Errorf("these do not hold: %v", list)
	}
	if n := len(judge(newTables(s))); n != 2*len(criteria) {
		t.Errorf("%d verdicts of %d criteria in two styles", n, len(criteria))
	}
}

// Each case changes one thing for the worse and says which verdict must notice.
func TestACriterionFailsWhen(t *testing.T) {
	at := func(u unit, op string, bytes int64, us float64) func(key, float64) float64 {
		return func(k key, before float64) float64 {
			if k == (key{u, op, bytes}) {
				return us
			}
			return before
		}
	}
	everySize := func(u unit, op string, us float64) func(key, float64) float64 {
		return func(k key, before float64) float64 {
			if k.unit == u && k.op == op {
				return us
			}
			return before
		}
	}
	fresh, four := unit{Ranks: 2, Fresh: true}, unit{Ranks: 4}
	in, fourIn := unit{Ranks: 2, InPlace: true}, unit{Ranks: 4, InPlace: true}
	for _, tc := range []struct {
		name   string
		change func(key, float64) float64
		want   string // the verdict; "" if all hold
	}{
		{"allreduce at its limit", at(plain, "allreduce", 4096, 50), ""},
		{
			"allreduce above its limit at one size", at(plain, "allreduce", 4096, 51),
			"FAILS  2 ranks, osu, allreduce: at most 0.510 (allreduce 4K), limit 0.5; geomean 0.208, limit 0.3",
		},
		{
			"allreduce above its geometric mean", everySize(fresh, "allreduce", 31),
			"FAILS  2 ranks, fresh, allreduce: at most 0.310 (allreduce 8), limit 0.5; geomean 0.310, limit 0.3",
		},
		{"in place, one size is slow", at(in, "allreduce", 1<<20, 90), ""},
		{
			"in place above its geometric mean", everySize(in, "allreduce", 26),
			"FAILS  2 ranks, osu, allreduce in place: at most 0.260 (allreduce 8); geomean 0.260, limit 0.25",
		},
		{"another collective at its limit", everySize(plain, "alltoall", 80), ""},
		{
			"another collective above its limit", at(plain, "broadcast", 8, 81),
			"FAILS  2 ranks, osu, every other collective: at most 0.810 (broadcast 8), limit 0.8; geomean 0.212",
		},
		{
			"the barrier above its limit", at(plain, "barrier", 0, 85),
			"FAILS  2 ranks, osu, every other collective: at most 0.850 (barrier), limit 0.8; geomean 0.850",
		},
		{"four ranks as fast", everySize(four, "broadcast", 100), ""},
		{
			"four ranks slower at one size", at(four, "broadcast", 64, 101),
			"FAILS  4 ranks, osu, every collective: at most 1.010 (broadcast 64), limit 1; geomean 0.215",
		},
		{
			"four ranks slower in place", at(fourIn, "allreduce", 64, 101),
			"FAILS  4 ranks, osu, allreduce in place: at most 1.010 (allreduce 64), limit 1; geomean 0.215",
		},
		{
			"an operation was not measured", everySize(fresh, "allgather", 0),
			"FAILS  2 ranks, fresh, every other collective: at most 0.200 (reducescatter 8), limit 0.8; geomean 0.200; " +
				"not measured: allgather",
		},
		{
			"the largest size was not measured", at(plain, "allreduce", 64<<20, 0),
			"FAILS  2 ranks, osu, allreduce: at most 0.200 (allreduce 8), limit 0.5; geomean 0.200, limit 0.3; " +
				"not measured: allreduce above 32M",
		},
		{
			"the smallest size was not measured", at(four, "allgather", 16, 0),
			"FAILS  4 ranks, osu, every collective: at most 0.200 (allreduce 16), limit 1; geomean 0.200; " +
				"not measured: allgather below 32",
		},
		{
			"a size between was not measured", at(plain, "allreduce", 64, 0),
			"FAILS  2 ranks, osu, allreduce: at most 0.200 (allreduce 8), limit 0.5; geomean 0.200, limit 0.3; " +
				"not measured: allreduce at 1 of 24 sizes",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			list := failing(everything(0.2, tc.change))
			if tc.want == "" {
				if len(list) > 0 {
					t.Errorf("these do not hold: %v", list)
				}
				return
			}
			if len(list) != 1 || list[0].String() != tc.want {
				t.Errorf("these do not hold:\n%v\nwant\n[%s]", list, tc.want)
			}
		})
	}
}

func TestNothingMeasuredIsNothingThatHolds(t *testing.T) {
	for _, v := range judge(nil) {
		if v.Holds || !strings.Contains(v.String(), "not measured: ") {
			t.Errorf("%v", v)
		}
	}
}

func TestFormatSize(t *testing.T) {
	for _, tc := range []struct {
		bytes int64
		want  string
	}{{8, "8"}, {1024, "1K"}, {1536, "1536"}, {96 << 10, "96K"}, {64 << 20, "64M"}, {3 << 30, "3072M"}} {
		if got := formatSize(tc.bytes); got != tc.want {
			t.Errorf("%d is %q, want %q", tc.bytes, got, tc.want)
		}
	}
}
