package measure

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestStepTimesLeaveTheWarmUpOut(t *testing.T) {
	for _, c := range []struct {
		warmup            int
		ends              []int // of all steps, in milliseconds
		median, mean, p90 float64
	}{
		{0, []int{2, 3, 6, 8}, 2000, 2000, 3000},
		{1, []int{100, 103, 104, 106}, 2000, 2000, 3000},
		{2, []int{7, 9, 10, 14}, 2500, 2500, 4000},
		{4, []int{1, 2, 3, 4}, 0, 0, 0},
		{9, []int{1, 2, 3, 4}, 0, 0, 0},
	} {
		tm := NewSteps(c.warmup, len(c.ends))
		for _, e := range c.ends {
			tm.End(time.Duration(e) * time.Millisecond)
		}
		median, mean, p90 := tm.microseconds()
		if math.Abs(median-c.median) > 1e-6 || math.Abs(mean-c.mean) > 1e-6 || math.Abs(p90-c.p90) > 1e-6 {
			t.Errorf("warm-up %d of %v: median %v, mean %v, p90 %v, want %v, %v, %v", c.warmup, c.ends, median, mean, p90, c.median, c.mean, c.p90)
		}
	}
}

// A run without a step limit reserves no memory for the times of steps that may never run.
func TestStepTimesTakeNoMemoryBeforeTheyCome(t *testing.T) {
	for _, steps := range []int{1e12, math.MaxInt} {
		if got := NewSteps(5, steps); got.measured != steps-5 || cap(got.ends) > 1<<20 {
			t.Errorf("%d steps: %d measured, room for %d", steps, got.measured, cap(got.ends))
		}
	}
}

// With an asynchronous device, the ends of groups must be measured on the device: they give the
// times.
func TestEndsOfGroupsAreEdges(t *testing.T) {
	for _, c := range []struct {
		warmup, steps int
		want          []int // steps, from 0
	}{
		{0, 3, []int{0, 1, 2}},
		{2, 5, []int{1, 2, 3, 4}},
		{5, 40, []int{4, 14, 24, 34, 39}},
		{0, 30, []int{9, 19, 29}},
		{9, 4, nil},
	} {
		tm := NewSteps(c.warmup, c.steps)
		var got []int
		for step := range c.steps {
			if tm.Edge() {
				got = append(got, step)
			}
			tm.End(time.Duration(step))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d steps, %d of them warm-up: edges %v, want %v", c.steps, c.warmup, got, c.want)
		}
	}
}

// A device tells when groups have ended, long after the program has queued their steps.
func TestStepTimesAreThoseOfTheDevice(t *testing.T) {
	tm := NewSteps(2, 37)
	for i := range 37 {
		tm.End(time.Duration(i) * time.Microsecond) // of queueing
	}
	tm.SetLaps([]time.Duration{10 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond, 10 * time.Millisecond})
	if median, mean, p90 := tm.microseconds(); median != 2000 || p90 != 3000 || mean != 2000 {
		t.Errorf("median %v, mean %v, p90 %v, want 2000, 2000, 3000", median, mean, p90)
	}
}

// In a long run, a step that is late and one that makes up for it are in one group.
func TestStepTimesAreOfGroups(t *testing.T) {
	tm := NewSteps(0, 35)
	for i := range 35 {
		end := time.Duration(i+1) * time.Millisecond
		if i%10 == 4 {
			end += 900 * time.Microsecond
		}
		tm.End(end)
	}
	if median, mean, p90 := tm.microseconds(); median != 1000 || p90 != 1000 || math.Abs(mean-1000) > 30 {
		t.Errorf("median %v, mean %v, p90 %v, want 1000 each", median, mean, p90)
	}
}
