package trace

import "time"

// Clock is the clock of a rank, compared with that of rank 0.
type Clock struct {
	Rank   int           `json:"rank"`
	Node   int           `json:"node"`      // number of its host
	Offset time.Duration `json:"offset_ns"` // its time minus that of rank 0, at one moment
	Bound  time.Duration `json:"bound_ns"`  // largest error of Offset
}

// Round is an exchange in which no rank leaves before all have entered, by the clock of one rank.
type Round struct{ Enter, Leave time.Time }

// Offset returns the time of a clock minus that of another, which took part in the same rounds, and
// its largest error. Every round gives an interval, as in NTP (RFC 5905, 8): the clock that enters
// is not later than the other that leaves. The offset is the middle of the intersection, which is
// at most as long as the shortest round trip.
//
// Shapes/units: at least one round, as many of both.
func Offset(clock, other []Round) (offset, bound time.Duration) {
	for i, c := range clock {
		least, most := c.Enter.Sub(other[i].Leave), c.Leave.Sub(other[i].Enter)
		if i > 0 {
			least, most = max(least, offset-bound), min(most, offset+bound)
		}
		bound = (most - least + 1) / 2
		offset = least + bound
	}
	return offset, bound
}
