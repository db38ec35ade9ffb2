//go:build !amd64

package reduce

import "unsafe"

// levels has no instruction set here: all is plain Go.
var levels []level

// DirtyPays reports whether a core of this machine fills lines that another has modified faster
// than lines that both have read.
const DirtyPays = false

// movsb says which of two copies to take, of which there is one here.
var movsb bool

func touch(unsafe.Pointer, int) {}
