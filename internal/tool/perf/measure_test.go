package perf

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/symgrad/symgrad/tensor"
)

func TestSummaryOfSamples(t *testing.T) {
	r := rig{clock: clock{perNS: 2}, samples: []int64{80, 20, 40, 20}}
	if got, want := r.summary(), (times{mean: 20, least: 10, median: 15, most: 40}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	r.samples = []int64{6}
	if got, want := r.summary(), (times{3, 3, 3, 3, 0}); got != want {
		t.Errorf("one sample: %+v, want %+v", got, want)
	}
}

func TestCombineTimesOfRanks(t *testing.T) {
	got := combine([]times{{10, 5, 9, 30, 0}, {20, 8, 19, 25, 0}})
	if want := (times{mean: 15, least: 5, median: 14, most: 30}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// The clock agrees with time.Now over a while, and does not go back.
func TestClockAgreesWithTime(t *testing.T) {
	c := newClock()
	if c.readNS <= 0 || c.readNS > 1e5 || (c.name() == "tsc") != c.tsc {
		t.Errorf("%s: a reading costs %v ns", c.name(), c.readNS)
	}
	began, first := time.Now(), c.read()
	last := first
	for time.Since(began) < 30*time.Millisecond {
		now := c.read()
		if now < last {
			t.Fatalf("%d after %d", now, last)
		}
		last = now
	}
	lower := c.ns(last - first)
	upper := float64(time.Since(began))
	if lower > 1.01*upper {
		t.Errorf("%v ns by the clock, within %v", lower, upper)
	}
	if after := c.ns(c.read() - first); after < 0.99*upper {
		t.Errorf("%v ns by the clock, around %v", after, upper)
	}
}

func TestPlainClock(t *testing.T) {
	c := clock{base: time.Now(), perNS: 1}
	a := c.read()
	if b := c.read(); b < a || c.name() != "monotonic" {
		t.Errorf("%s clock: %d after %d", c.name(), b, a)
	}
}

// A rate that two calibrations do not agree on is not used.
func TestCounterRateIsRepeatable(t *testing.T) {
	if !counterUsable() {
		t.Skip("this processor has no counter that goes at one speed")
	}
	a, b := counterRate(), counterRate()
	if a < 0.1 || a > 10 || math.Abs(a/b-1) > 0.05 {
		t.Errorf("%v and %v ticks in a nanosecond", a, b)
	}
}

func TestFailuresEndAMeasurement(t *testing.T) {
	g := hostGroup(t)
	m, err := newMemory(g, nil, 64, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(Config{Iters: 3, Checks: 1}.withDefaults(), g, m, clock{base: time.Now(), perNS: 1})
	c := Case{Op: AllReduce, DType: tensor.F32, Bytes: 64, Count: 16, Root: -1}
	l, err := newLayout(c, m, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	after := func(calls int) verb { // succeeds so often
		return func() error {
			calls--
			if calls < 0 {
				return enough
			}
			return nil
		}
	}
	settled := func() error { return nil }
	if _, err := r.check(l, after(0), settled, 1); !errors.Is(err, enough) {
		t.Errorf("check: %v", err)
	}
	if _, err := r.apart(3, l, after(2), settled); !errors.Is(err, enough) {
		t.Errorf("apart: %v", err)
	}
	if _, err := r.backToBack(3, after(2)); !errors.Is(err, enough) {
		t.Errorf("back to back: %v", err)
	}
	good := after(100)
	r.barrier = after(0)
	if _, err := r.check(l, good, settled, 1); !errors.Is(err, enough) {
		t.Errorf("check, barrier: %v", err)
	}
	if _, err := r.apart(3, l, good, settled); !errors.Is(err, enough) {
		t.Errorf("apart, barrier: %v", err)
	}
	if _, err := r.backToBack(3, good); !errors.Is(err, enough) {
		t.Errorf("back to back, barrier: %v", err)
	}
}

// Measuring allocates nothing while the clock runs, so that no collection begins there.
func TestTimedLoopDoesNotAllocate(t *testing.T) {
	g := hostGroup(t)
	m, err := newMemory(g, nil, 64, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	r := newRig(Config{Iters: 100, Fresh: true}.withDefaults(), g, m, newClock())
	r.barrier = func() error { return nil }
	c := Case{Op: AllReduce, DType: tensor.F32, Bytes: 64, Count: 16, Root: -1}
	l, err := newLayout(c, m, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	r.samples = make([]int64, 100)
	nothing := verb(func() error { return nil })
	if n := testing.AllocsPerRun(5, func() {
		if _, err := r.apart(100, l, nothing, nothing); err != nil {
			t.Error(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations in 100 iterations", n)
	}
}
