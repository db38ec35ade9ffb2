package conformance

import (
	"os"
	"os/exec"
	"syscall"
)

// tieToParent makes the kernel kill the process when its parent ends for any reason.
func tieToParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// wasKilled reports whether a process ended by SIGKILL.
func wasKilled(state *os.ProcessState) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}
