//go:build !linux

package launch

import "io"

// Columns returns 0: terminals are only supported on Linux.
func Columns(io.Writer) int { return 0 }
