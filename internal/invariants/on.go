//go:build invariants || race

package invariants

import (
	"runtime/debug"
	"sync/atomic"
)

// Enabled reports whether this build checks invariants.
const Enabled = true

// CloseChecker finds a resource that is freed twice. Embed one in the resource and call Close where
// it is freed. The zero value is ready; it may be used from several goroutines.
type CloseChecker struct {
	first atomic.Pointer[[]byte] // the stack of the first Close
}

// Close records that the resource is freed. It panics with the first stack if it already was.
func (c *CloseChecker) Close() {
	stack := debug.Stack()
	if !c.first.CompareAndSwap(nil, &stack) {
		panic("BUG: closed twice; the first time at:\n" + string(*c.first.Load()))
	}
}

// Mangle fills b, memory that is about to be freed, with 0xCC, so that a late read is noticed.
func Mangle(b []byte) {
	for i := range b {
		b[i] = 0xCC
	}
}
