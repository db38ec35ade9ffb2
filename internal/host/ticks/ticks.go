package ticks

import "time"

// Clock converts ticks to times since its epoch. The zero Clock is not usable.
type Clock struct {
	epoch time.Time
	ticks int64 // at epoch
}

// NewClock returns a clock whose epoch is now.
func NewClock() Clock {
	// Keep the pair of readings with the smallest distance: the process may be stopped between two.
	var best Clock
	shortest := int64(-1)
	for range 3 {
		before := Now()
		epoch := time.Now()
		if d := Now() - before; shortest < 0 || d < shortest {
			best, shortest = Clock{epoch, before + d/2}, d
		}
	}
	return best
}

// Epoch returns the time from which the clock counts.
func (c Clock) Epoch() time.Time { return c.epoch }

// Scale returns the length of a tick in nanoseconds, measured from the epoch to now. It is more
// exact the longer ago the epoch is.
func (c Clock) Scale() float64 {
	if !counter {
		return 1
	}
	now := NewClock()
	d := now.ticks - c.ticks
	if d <= 0 {
		return 1
	}
	return float64(now.epoch.Sub(c.epoch)) / float64(d)
}

// Nanoseconds returns the time of a reading of Now since the epoch. scale is a result of Scale.
func (c Clock) Nanoseconds(tick int64, scale float64) int64 {
	return int64(float64(tick-c.ticks) * scale)
}

// start is the origin of ticks that are nanoseconds.
var start = time.Now()

func nanoseconds() int64 { return int64(time.Since(start)) }
