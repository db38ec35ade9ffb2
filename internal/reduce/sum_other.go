//go:build !amd64

package reduce

import (
	"unsafe"

	"github.com/symgrad/symgrad/tensor"
)

type sum func(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int)

type weighted func(dsts *unsafe.Pointer, nd int, srcs *unsafe.Pointer, ns int, bytes int, how int, scalars *uint64)

type level struct {
	name     string
	has      bool
	sums     map[tensor.DType]sum
	averages map[tensor.DType]sum
	premuls  map[tensor.DType]weighted
	step     int
}

// levels has no instruction set here: all is plain Go.
var levels []level

// DirtyPays reports whether a core of this machine fills lines that another has modified faster than lines that both have read.
const DirtyPays = false

func touch(unsafe.Pointer, int) {}
