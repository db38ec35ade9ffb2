package hosttest

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// namespaces are the kinds of namespaces that a host has of its own.
const namespaces = unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNS | unix.CLONE_NEWPID

// onMainThread reports whether the caller runs on the first thread of the process.
func onMainThread() bool { return unix.Gettid() == os.Getpid() }

// unshareNetwork gives the calling thread a new network namespace.
func unshareNetwork() error { return unix.Unshare(unix.CLONE_NEWNET) }

// ownNamespaces returns the attributes of process 1 of a host. It has a session of its own, so that
// an interrupt from the terminal reaches the test process first.
func ownNamespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL, Setsid: true}
}
