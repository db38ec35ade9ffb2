//go:build !amd64

package ticks

const counter = false

// Now is the present tick, here a nanosecond.
func Now() int64 { return nanoseconds() }
