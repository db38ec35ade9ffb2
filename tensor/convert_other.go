//go:build !amd64

package tensor

// levels has no instruction set here: all is plain Go.
var levels []vectors
