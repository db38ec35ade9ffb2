//go:build !unix

package data

import (
	"io"
	"os"
)

// mapFile reads a file into memory: on this system it is not mapped.
func mapFile(f *os.File, size int64) (b []byte, unmap func() error, err error) {
	b = make([]byte, size)
	_, err = io.ReadFull(f, b)
	return b, func() error { return nil }, err
}
