package direct

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapAgain maps memory that processes share a second time: bytes bytes at p, which is the beginning
// of a page. The pages stay as long as either is mapped.
//
// Owns: the caller unmaps it. Errors: those of mremap, for memory that is private to this process
// too.
func mapAgain(p unsafe.Pointer, bytes uintptr) ([]byte, error) {
	// An old size of 0 leaves the mapping as it is, and makes another of the same pages
	// (mremap(2)).
	at, err := unix.MremapPtr(p, 0, nil, bytes, unix.MREMAP_MAYMOVE)
	if err != nil {
		return nil, fmt.Errorf("map %d B again: %w", bytes, err)
	}
	return unsafe.Slice((*byte)(at), bytes), nil
}

// unmap undoes mapAgain.
func unmap(b []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)))
}
