package asym

import (
	"syscall"
	"time"
)

// nap sleeps for d, or until a signal, on its thread. A timer does not work here. In a bubble of
// testing/synctest time stops while a goroutine waits for a sync.Mutex, as those in the queue do.
// Otherwise it advances for all goroutines in the bubble.
func nap(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&ts, nil)
}
