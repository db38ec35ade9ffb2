//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// Lock opens the file name, made if it is not there, and locks it: a flock, which belongs to what was opened and ends with
// it, in this process or by its end. Where the file is another user's it is opened as it can be.
//
// Errors: EWOULDBLOCK if it is locked, by this process or another.
func (disk) Lock(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if errors.Is(err, fs.ErrPermission) {
		if other, reading := os.Open(name); reading == nil {
			f, err = other, nil
		}
	}
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(&fs.PathError{Op: "flock", Path: name, Err: err}, f.Close())
	}
	return f, nil
}

// alive reports whether there is a process pid on this host.
func alive(pid int) bool { return pid > 0 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
