package asym

import "unsafe"

// Claim asks for the given number of cache lines of 64 bytes from p on, to write to them soon, and
// returns at once: when they are written, other cores have given them up. Nothing changes but how
// long that takes.
//
//go:noescape
func Claim(p unsafe.Pointer, lines int)

// Demote moves the given number of cache lines of 64 bytes, the first being that of p, from the
// caches of this core to one that all cores share, and returns at once: who reads them next has
// them sooner than from this core. Nothing changes but how long that takes.
//
//go:noescape
func Demote(p unsafe.Pointer, lines int)
