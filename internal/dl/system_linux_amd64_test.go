package dl

import (
	"testing"
	"unsafe"
)

// Offsets of struct link_map in glibc's <link.h>: ElfW(Addr) l_addr; char *l_name; ElfW(Dyn) *l_ld;
// struct link_map *l_next, *l_prev.
func TestLinkMapHasGlibcsLayout(t *testing.T) {
	var lm linkMap
	got := [...]uintptr{unsafe.Sizeof(lm), unsafe.Offsetof(lm.addr), unsafe.Offsetof(lm.name), unsafe.Offsetof(lm.dyn), unsafe.Offsetof(lm.next), unsafe.Offsetof(lm.prev)}
	if want := [...]uintptr{40, 0, 8, 16, 24, 32}; got != want {
		t.Errorf("size and offsets %v, want %v", got, want)
	}
}

func TestPathOfABadHandleIsEmpty(t *testing.T) {
	if dlinfo() == nil {
		t.Fatal("this C library has no dlinfo")
	}
	if got := sysPath(0); got != "" {
		t.Errorf("got %q", got)
	}
}
