package perf

// counter reads the time stamp counter, after all earlier instructions and before any later one.
func counter() int64

// invariantCounter reports whether the time stamp counter has a constant rate in all states of the
// processor.
func invariantCounter() bool

func counterUsable() bool { return invariantCounter() }
