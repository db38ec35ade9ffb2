//go:build !amd64

package tensor

// levels is empty: all conversions are plain Go.
var levels []vectors
