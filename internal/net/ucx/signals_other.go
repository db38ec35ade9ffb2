//go:build !linux || !amd64

package ucx

// keepSignals runs fn. Package dl loads no libraries on this platform.
func keepSignals(fn func() error) error { return fn() }
