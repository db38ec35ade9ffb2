//go:build !linux

package asym

import "time"

// nap sleeps for d, or longer if timers are late.
func nap(d time.Duration) { time.Sleep(d) }
