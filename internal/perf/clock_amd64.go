package perf

// counter is the time stamp counter, read after everything before it has been done and before
// anything after it begins.
func counter() int64

// invariantCounter reports whether the time stamp counter goes at one speed in all states of the
// processor.
func invariantCounter() bool

func counterUsable() bool { return invariantCounter() }
