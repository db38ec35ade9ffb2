package bpe

import "testing"

// LastCut is lastCut, for tests.
var LastCut = lastCut

// SetPartBytes sets partBytes for a test.
func SetPartBytes(t *testing.T, n int) {
	old := partBytes
	partBytes = n
	t.Cleanup(func() { partBytes = old })
}
