//go:build !amd64

package perf

// counter is not used: there is none that every processor of this kind lets programs read.
func counter() int64 { return 0 }

func counterUsable() bool { return false }
