package perf

import (
	"math"
	"time"
)

// clock measures time in ticks, for differences on one thread. The zero clock is unusable; newClock
// makes one.
type clock struct {
	tsc    bool // the processor's counter; else time.Since
	base   time.Time
	perNS  float64 // ticks in a nanosecond
	readNS float64 // cost of one reading: the least time between two
}

// calibration is the time of a calibration: with 50 ns of uncertainty at each end, the rate is
// exact to 5 in a million.
const calibration = 10 * time.Millisecond

// newClock returns the cheapest clock of this machine, with the cost of a reading.
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

// counterClock returns a clock by the processor's counter, if two calibrations agree that its rate
// is constant.
func counterClock(plain clock) clock {
	first, second := counterRate(), counterRate()
	if first <= 0 || math.Abs(second/first-1) > 1e-3 {
		return plain
	}
	plain.tsc, plain.perNS = true, second
	return plain
}

// counterRate returns the ticks of the counter in a nanosecond.
func counterRate() float64 {
	t0, n0 := counterAndTime()
	time.Sleep(calibration)
	t1, n1 := counterAndTime()
	return float64(n1-n0) / float64(t1.Sub(t0))
}

// counterAndTime returns the time and the counter at one moment: of several pairs, the one that was
// read fastest.
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

// read returns the time in ticks.
func (c *clock) read() int64 {
	if c.tsc {
		return counter()
	}
	return int64(time.Since(c.base))
}

// ns returns ticks in nanoseconds.
func (c *clock) ns(ticks int64) float64 { return float64(ticks) / c.perNS }

// name returns the source of the clock: "tsc" or "monotonic".
func (c *clock) name() string {
	if c.tsc {
		return "tsc"
	}
	return "monotonic"
}
