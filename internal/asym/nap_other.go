//go:build !linux

package asym

import "time"

// nap sleeps for d, and for longer where timers are late.
func nap(d time.Duration) { time.Sleep(d) }
