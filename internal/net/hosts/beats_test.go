package hosts

import (
	"slices"
	"testing"
	"time"
)

// A rank is silent after the limit, but not because this process did not run for so long.
func TestBeatsForgiveAPauseOfThisProcess(t *testing.T) {
	const limit = 4 * time.Second
	now := time.Unix(1000, 0)
	b := newBeats([]int{0, 1}, 0, limit, now)
	run := func(d time.Duration) (silent []int) { // looks every 25 ms, as a process does
		for end := now.Add(d); now.Before(end) && silent == nil; {
			now = now.Add(25 * time.Millisecond)
			_, silent = b.due(now)
		}
		return silent
	}
	if silent := run(3 * time.Second); silent != nil {
		t.Errorf("silent after 3 s: %v", silent)
	}
	now = now.Add(10 * time.Second)
	if _, silent := b.due(now); silent != nil {
		t.Errorf("silent after a pause of this process: %v", silent)
	}
	if silent := run(2 * time.Second); !slices.Equal(silent, []int{1}) {
		t.Errorf("silent after 5 s, without the pause: %v, want [1]", silent)
	}
}
