//go:build !amd64

package hostexec

// levels has no instruction set here: all is plain Go.
var levels []level

// pause takes about as long as n PAUSE instructions of another processor.
func pause(n int) {
	for range 40 * n {
		continue
	}
}
