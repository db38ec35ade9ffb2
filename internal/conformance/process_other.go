//go:build !linux

package conformance

import (
	"os"
	"os/exec"
)

// tieToParent does nothing: the time limit ends orphans.
func tieToParent(*exec.Cmd) {}

// wasKilled reports whether a process ended without exiting.
func wasKilled(state *os.ProcessState) bool { return !state.Exited() }
