package perf

import (
	"testing"
	"time"

	"github.com/symgrad/symgrad/tensor"
)

func TestWithinBudget(t *testing.T) {
	for _, c := range []struct {
		budget, each time.Duration
		most, want   int
	}{
		{time.Second, time.Millisecond, 10000, 1000},
		{time.Second, time.Microsecond, 10000, 10000},
		{time.Second, time.Minute, 20, 3},
		{time.Second, time.Minute, 2, 2},
		{time.Second, 0, 20, 20},
	} {
		if got := within(c.budget, c.each, c.most); got != c.want {
			t.Errorf("within(%v, %v, %d) = %d, want %d", c.budget, c.each, c.most, got, c.want)
		}
	}
}

// A slow operation is timed less often, and the row says how often.
func TestSlowRowEndsWithinItsBudget(t *testing.T) {
	g := hostGroup(t)
	m, err := newMemory(g, nil, 64, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	ex, err := openExchange(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := Case{Op: AllReduce, DType: tensor.F32, Bytes: 64, Count: 16, Root: -1}
	l, err := newLayout(c, m, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	const budget = 20 * time.Millisecond
	slow := func() error {
		calls++
		begin := time.Now()
		for time.Since(begin) < budget/100 {
		}
		return nil
	}
	for _, cfg := range []Config{{}, {Style: BackToBack}, {Iters: 7, Warmup: 2}} {
		r := newRig(cfg.withDefaults(), g, m, newClock())
		r.ex, r.budget, calls = ex, budget, 0
		got, _, err := r.byClock(c, l, slow, func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case cfg.Iters > 0 && (got.iters != cfg.Iters || calls != cfg.Iters+cfg.Warmup):
			t.Errorf("%+v: %d iterations and %d calls, want as configured", cfg, got.iters, calls)
		case cfg.Iters == 0 && (got.iters < fewest || got.iters > 100 || calls > 130):
			t.Errorf("%+v: %d iterations and %d calls of the 10000 that sizes ask for", cfg, got.iters, calls)
		}
	}
}
