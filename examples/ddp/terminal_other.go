//go:build !linux

package main

import "io"

// terminalColumns is 0: where it is not known how to ask for its width, a terminal gets plain lines.
func terminalColumns(io.Writer) int { return 0 }
