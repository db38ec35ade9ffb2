package ticks

import (
	"testing"
	"time"
)

// A time measured by time.Now lies between one by ticks within it and one by ticks around it.
func TestClockAgreesWithTime(t *testing.T) {
	c := NewClock()
	outer0 := Now()
	began := time.Now()
	inner0 := Now()
	for time.Since(began) < 20*time.Millisecond {
		_ = Now() // busy: the test measures this time
	}
	inner1 := Now()
	took := time.Since(began)
	outer1 := Now()
	scale := c.Scale()
	between := func(a, b int64) time.Duration {
		return time.Duration(c.Nanoseconds(b, scale) - c.Nanoseconds(a, scale))
	}
	slack := took/100 + time.Microsecond
	if inner, outer := between(inner0, inner1), between(outer0, outer1); inner > took+slack || outer < took-slack {
		t.Errorf("%v by time.Since; by ticks %v within it and %v around it", took, inner, outer)
	}
	if at := c.Nanoseconds(outer0, scale); at < 0 || time.Duration(at) > time.Since(c.Epoch()) {
		t.Errorf("the first tick is %v after the epoch, which is %v ago", time.Duration(at), time.Since(c.Epoch()))
	}
}

func TestTicksNeverGoBack(t *testing.T) {
	last := Now()
	for range 100_000 {
		now := Now()
		if now < last {
			t.Fatalf("%d after %d", now, last)
		}
		last = now
	}
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		_ = Now()
	}
}

func BenchmarkTimeNow(b *testing.B) {
	for b.Loop() {
		_ = time.Now()
	}
}
