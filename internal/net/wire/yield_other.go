//go:build !linux

package wire

import "runtime"

// yield lets another goroutine use the processor.
func yield() { runtime.Gosched() }
