//go:build !linux

package hosttest

import (
	"errors"
	"syscall"
)

// Roles of the test binary on Linux.
const roleInit, roleEnter, agentPath = "", "", ""

func onMainThread() bool { return false }

func unshareNetwork() error { return errors.ErrUnsupported }

func ownNamespaces() *syscall.SysProcAttr { return nil }
