package gpu

import (
	"syscall"
	"time"
)

// nap sleeps for d, or until a signal.
func nap(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&ts, nil)
}
