package dl

import "runtime"

// OnThread runs fn with the goroutine locked to an OS thread, for calls that share a library's
// per-thread state: set device and call, call and error text, group start to group end. Calls nest.
// Returns: the error of fn.
func OnThread(fn func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return fn()
}
