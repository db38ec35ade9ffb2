//go:build !amd64

package hostexec

// levels is empty: everything is plain Go.
var levels []level

// pause takes about as long as n PAUSE instructions.
func pause(n int) {
	for range 40 * n {
		continue
	}
}
