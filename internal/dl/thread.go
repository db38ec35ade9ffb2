package dl

import "runtime"

// OnThread runs fn with the calling goroutine held on one OS thread, for calls that share a
// library's per-thread state: set device and call, call and error text, group start to group end.
// Calls nest. Returns: what fn returns.
func OnThread(fn func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return fn()
}
