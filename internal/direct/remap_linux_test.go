package direct

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestMemoryMappedAgainOutlivesItsFirstMapping(t *testing.T) {
	size := 4 * os.Getpagesize()
	fd, err := unix.MemfdCreate("again", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err = unix.Ftruncate(fd, int64(size)); err != nil {
		t.Fatal(err)
	}
	first, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	first[page] = 1
	again, err := mapAgain(unsafe.Pointer(&first[page]), uintptr(2*page))
	if err != nil {
		t.Fatal(err)
	}
	if len(again) != 2*page || again[0] != 1 || &again[0] == &first[page] {
		t.Errorf("%d B, which begin with %d", len(again), again[0])
	}
	again[2*page-1] = 2
	if first[3*page-1] != 2 {
		t.Error("what is stored to one is not in the other")
	}
	if err = unix.Munmap(first); err != nil {
		t.Fatal(err)
	}
	if again[0] != 1 || again[2*page-1] != 2 {
		t.Error("memory is lost with its first mapping")
	}
	if err = unmap(again); err != nil {
		t.Error(err)
	}
}

func TestPrivateMemoryIsNotMappedAgain(t *testing.T) {
	b, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := mapAgain(unsafe.Pointer(&b[0]), uintptr(len(b))); err == nil {
		t.Errorf("mapped %d B of this process alone", len(again))
	}
	if err = unix.Munmap(b); err != nil {
		t.Error(err)
	}
}
