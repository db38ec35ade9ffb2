//go:build !amd64

package perf

// counter is unused: these processors have no counter that every program may read.
func counter() int64 { return 0 }

func counterUsable() bool { return false }
