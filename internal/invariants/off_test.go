//go:build !invariants && !race

package invariants

import (
	"testing"
	"unsafe"
)

func TestEverythingIsEmptyInARelease(t *testing.T) {
	if Enabled {
		t.Error("Enabled is true without the tag invariants and without -race")
	}
	if n := unsafe.Sizeof(CloseChecker{}); n != 0 {
		t.Errorf("a CloseChecker takes %d bytes", n)
	}
	var c CloseChecker
	c.Close()
	c.Close() // no panic
	b := []byte{1, 2}
	Mangle(b)
	if b[0] != 1 || b[1] != 2 {
		t.Errorf("Mangle changed memory: %v", b)
	}
	if n := testing.AllocsPerRun(100, func() { c.Close(); Mangle(b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
