package ticks

// counter reports whether ticks are those of the processor's counter.
var counter = invariant()

// Now returns the current tick.
func Now() int64 {
	if counter {
		return rdtsc()
	}
	return nanoseconds()
}

// rdtsc reads the time stamp counter.
//
//go:noescape
func rdtsc() int64

// invariant reports whether the counter runs at one rate whatever the processor does.
//
//go:noescape
func invariant() bool
