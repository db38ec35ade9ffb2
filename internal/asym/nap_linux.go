package asym

import (
	"syscall"
	"time"
)

// nap sleeps for d, on its thread; a signal that ends it early is as good. A timer would not do: in
// a bubble of testing/synctest time stands still while a goroutine waits for a sync.Mutex, as those
// in the queue do, and otherwise goes on for all that are in it.
func nap(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&ts, nil)
}
