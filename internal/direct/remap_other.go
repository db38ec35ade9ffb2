//go:build !linux

package direct

import (
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
)

func mapAgain(unsafe.Pointer, uintptr) ([]byte, error) {
	return nil, fmt.Errorf("%w: memory is mapped again on Linux only", dist.ErrUnsupported)
}

func unmap([]byte) error { return nil }
