package gpu

import (
	"syscall"
	"time"
)

// nap sleeps for d; a signal that ends it early is as good.
func nap(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&ts, nil)
}
