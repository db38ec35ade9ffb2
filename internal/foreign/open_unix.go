//go:build unix

package foreign

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// withoutWaiting makes an open of a pipe or a device return at once, and keeps a terminal from
// becoming the process's own.
const withoutWaiting = syscall.O_NONBLOCK | syscall.O_NOCTTY

// Private reports, as an error, that a user other than root and the one of this process owns a file
// or folder, or may write to it. The info must be that of an open descriptor: a name can lead to
// another file a moment later.
func Private(info fs.FileInfo) error {
	of, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: its owner is unknown", info.Name())
	}
	if user := os.Geteuid(); of.Uid != 0 && int(of.Uid) != user {
		return fmt.Errorf("user %d owns it, and this process runs as user %d", of.Uid, user)
	}
	if mode := info.Mode(); mode.Perm()&0o022 != 0 {
		return fmt.Errorf("other users may write to it (mode %v): run chmod go-w", mode)
	}
	return nil
}
