// Package invariants holds checks that find bugs of this project and that a release must not pay
// for. They are there under the build tag invariants and under the race detector, and are empty
// without.
//
//	if invariants.Enabled && off%symmetric.Alignment != 0 {
//		panic(fmt.Sprintf("BUG: offset %d is not aligned", off))
//	}
//
// Enabled is a constant, so that the compiler drops the whole statement from a release; callers
// need no build tags of their own. A fault of a user is an error, never one of these panics: a
// panic on one rank is a hang on the others.
//
// The idea is that of github.com/cockroachdb/pebble/internal/invariants.
package invariants
