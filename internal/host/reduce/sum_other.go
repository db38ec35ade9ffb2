//go:build !amd64

package reduce

import "unsafe"

// levels is empty here: all kernels are plain Go.
var levels []level

// DirtyPays reports whether a core of this machine fills lines that another has modified faster
// than lines that both have read.
const DirtyPays = false

// movsb has no effect here, as there is only one copy.
var movsb bool

func touch(unsafe.Pointer, int) {}
