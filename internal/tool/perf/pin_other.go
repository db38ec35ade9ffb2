//go:build !linux

package perf

// pinThread does nothing: this system does not bind threads to cores.
func pinThread(int, int, bool) (core int, undo func()) { return -1, func() {} }
