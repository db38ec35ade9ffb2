package direct

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapAgain maps shared memory a second time: bytes bytes at p, the start of a page. The pages stay
// while either mapping exists.
//
// Owns: the caller unmaps it. Errors: those of mremap, also for private memory.
func mapAgain(p unsafe.Pointer, bytes uintptr) ([]byte, error) {
	// An old size of 0 keeps the mapping, and makes another of the same pages (mremap(2)).
	at, err := unix.MremapPtr(p, 0, nil, bytes, unix.MREMAP_MAYMOVE)
	if err != nil {
		return nil, fmt.Errorf("map %d B again: %w", bytes, err)
	}
	return unsafe.Slice((*byte)(at), bytes), nil
}

// unmap removes the mapping of mapAgain.
func unmap(b []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)))
}
