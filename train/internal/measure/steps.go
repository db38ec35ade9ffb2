package measure

import (
	"slices"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/train/internal/exchange"
)

// Steps records when steps end.
type Steps struct {
	warmup   int
	measured int             // steps after the warm-up
	ends     []time.Duration // the first is the end of the warm-up
}

// NewSteps returns a record of a run of so many steps. It does not measure the first warmup steps.
func NewSteps(warmup, steps int) *Steps {
	measured := max(0, steps-warmup)
	// A run without a step limit has more steps than fit into memory; few have more than this.
	room := 1 + min(measured, 1<<16)
	t := &Steps{warmup: warmup, measured: measured, ends: make([]time.Duration, 0, room)}
	if warmup == 0 {
		t.ends = append(t.ends, 0)
	}
	return t
}

// End records the end of a step.
func (t *Steps) End(now time.Duration) {
	if t.warmup--; t.warmup <= 0 {
		t.ends = append(t.ends, now)
	}
}

// groupSteps is the number of consecutive steps that are timed together, in runs of at least three
// such groups. With a device that works asynchronously, the host only sees when a single step was
// queued.
const groupSteps = 10

// group returns how many of n steps are timed together.
func group(n int) int {
	if n < 3*groupSteps {
		return 1
	}
	return groupSteps
}

// Edge reports whether this step is the last of a group, of the warm-up or of all: its end must be
// measured on the device.
func (t *Steps) Edge() bool {
	if t.warmup > 1 {
		return false
	}
	k := len(t.ends)
	return k%group(t.measured) == 0 || k == t.measured
}

// SetLaps sets the ends of the edges to device times; between has the intervals between them.
func (t *Steps) SetLaps(between []time.Duration) {
	group, last := group(t.measured), len(t.ends)-1
	for i, d := range between {
		t.ends[min((i+1)*group, last)] = t.ends[i*group] + d
	}
}

// microseconds returns median, mean and 90th percentile of a step; zeros if no step followed the
// warm-up.
func (t *Steps) microseconds() (median, mean, p90 float64) {
	n := len(t.ends) - 1
	if n < 1 {
		return 0, 0, 0
	}
	group := group(n)
	groups := make([]float64, n/group)
	for i := range groups {
		groups[i] = float64(t.ends[(i+1)*group]-t.ends[i*group]) / float64(time.Microsecond) / float64(group)
	}
	slices.Sort(groups)
	k := len(groups)
	median = (groups[k/2] + groups[(k-1)/2]) / 2
	mean = float64(t.ends[n]-t.ends[0]) / float64(time.Microsecond) / float64(n)
	return median, mean, groups[(9*k)/10]
}

// Worst returns the largest median, mean and 90th percentile of any rank.
//
// Collective: all ranks.
func (t *Steps) Worst(k *exchange.Values) ([]float64, error) {
	v := make([]float64, 3)
	v[0], v[1], v[2] = t.microseconds()
	return v, exchange.Reduce(k, "step times", v, dist.Max)
}

// Measured returns the number of steps after the warm-up.
func (t *Steps) Measured() int { return t.measured }
