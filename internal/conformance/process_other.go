//go:build !linux

package conformance

import (
	"os"
	"os/exec"
)

// tieToParent does nothing: the time limit ends what the parent leaves behind.
func tieToParent(*exec.Cmd) {}

// wasKilled reports whether a process ended otherwise than by exiting.
func wasKilled(state *os.ProcessState) bool { return !state.Exited() }
