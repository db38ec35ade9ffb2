//go:build !amd64

package asym

import "unsafe"

// Claim requests cache lines for writes on amd64. Here it does nothing.
func Claim(unsafe.Pointer, int) {}

// Demote moves cache lines to a shared cache on amd64. Here it does nothing.
func Demote(unsafe.Pointer, int) {}
