package asym

import "unsafe"

// Claim requests the given number of cache lines of 64 bytes from p on, for writes that follow
// soon. It returns at once. Other cores then give up the lines before the writes. It changes only
// the timing.
//
//go:noescape
func Claim(p unsafe.Pointer, lines int)

// Demote moves the given number of cache lines of 64 bytes from p on from the caches of this core
// to one that all cores share. It returns at once. Other cores then read them faster than from this
// core. It changes only the timing.
//
//go:noescape
func Demote(p unsafe.Pointer, lines int)
