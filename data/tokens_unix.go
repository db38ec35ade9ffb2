//go:build unix

package data

import (
	"fmt"
	"os"
	"syscall"
)

// mapFile maps a file for reading.
func mapFile(f *os.File, size int64) (b []byte, unmap func() error, err error) {
	if size != int64(int(size)) {
		return nil, nil, fmt.Errorf("%d bytes are more than this processor can address", size)
	}
	b, err = syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	return b, func() error { return os.NewSyscallError("munmap", syscall.Munmap(b)) }, nil
}
