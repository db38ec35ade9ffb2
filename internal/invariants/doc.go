// Package invariants has checks for bugs of this project. They are compiled with the build tag
// invariants or the race detector. Without these they are empty, so that a release does not pay.
//
//	if invariants.Enabled && off%symmetric.Alignment != 0 {
//		panic(fmt.Sprintf("BUG: offset %d is not aligned", off))
//	}
//
// Enabled is a constant, so that the compiler removes the whole statement from a release. Callers
// need no build tags. A failure that a user can cause is an error, never one of these panics: a
// panic on one rank is a hang on the others.
//
// The idea is that of github.com/cockroachdb/pebble/internal/invariants.
package invariants
