//go:build !amd64

package ticks

const counter = false

// Now returns the current tick, here a nanosecond.
func Now() int64 { return nanoseconds() }
