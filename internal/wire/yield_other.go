//go:build !linux

package wire

import "runtime"

// yieldTo lets another goroutine use the processor.
func yieldTo() bool {
	runtime.Gosched()
	return true
}
