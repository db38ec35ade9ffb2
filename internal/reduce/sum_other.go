//go:build !amd64

package reduce

import (
	"unsafe"

	"github.com/symgrad/symgrad/tensor"
)

type sum func(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

type level struct {
	name string
	has  bool
	sums map[tensor.DType]sum
	step int
}

// levels has no instruction set here: all is plain Go.
var levels []level

func touch(unsafe.Pointer, int) {}
