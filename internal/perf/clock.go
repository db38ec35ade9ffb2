package perf

import (
	"math"
	"time"
)

// clock tells time in ticks, for differences on one thread. The zero clock is unusable; newClock
// makes one.
type clock struct {
	tsc    bool // the processor's counter; else time.Since
	base   time.Time
	perNS  float64 // ticks in a nanosecond
	readNS float64 // what one reading costs: the least time between two
}

// Calibrating lasts this long: at 50 ns of doubt about each end, the rate is right to 5 in a
// million.
const calibration = 10 * time.Millisecond

// newClock is the cheapest clock of this machine, and what reading it costs.
func newClock() clock {
	c := clock{base: time.Now(), perNS: 1}
	if counterUsable() {
		c = counterClock(c)
	}
	least := int64(math.MaxInt64)
	for range 2000 {
		t0 := c.read()
		least = min(least, c.read()-t0)
	}
	c.readNS = c.ns(least)
	return c
}

// counterClock is a clock by the processor's counter, if that goes at one speed: two calibrations
// must agree.
func counterClock(plain clock) clock {
	first, second := counterRate(), counterRate()
	if first <= 0 || math.Abs(second/first-1) > 1e-3 {
		return plain
	}
	plain.tsc, plain.perNS = true, second
	return plain
}

// counterRate is how many ticks of the counter a nanosecond has.
func counterRate() float64 {
	t0, n0 := counterAndTime()
	time.Sleep(calibration)
	t1, n1 := counterAndTime()
	return float64(n1-n0) / float64(t1.Sub(t0))
}

// counterAndTime is the time and the counter at one moment: the pair, of several, that was read
// fastest.
func counterAndTime() (at time.Time, ticks int64) {
	least := int64(math.MaxInt64)
	for range 20 {
		before := counter()
		now := time.Now()
		if took := counter() - before; took < least {
			least, at, ticks = took, now, before+took/2
		}
	}
	return at, ticks
}

// read is the time in ticks.
func (c *clock) read() int64 {
	if c.tsc {
		return counter()
	}
	return int64(time.Since(c.base))
}

// ns is ticks in nanoseconds.
func (c *clock) ns(ticks int64) float64 { return float64(ticks) / c.perNS }

// name is what it reads: "tsc" or "monotonic".
func (c *clock) name() string {
	if c.tsc {
		return "tsc"
	}
	return "monotonic"
}
