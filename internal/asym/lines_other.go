//go:build !amd64

package asym

import "unsafe"

// Claim asks for the given number of cache lines of 64 bytes from p on, to write to them soon, and
// returns at once. Here it does nothing.
func Claim(unsafe.Pointer, int) {}

// Demote moves the given number of cache lines of 64 bytes, the first being that of p, to a cache
// that all cores share, and returns at once. Here it does nothing.
func Demote(unsafe.Pointer, int) {}
