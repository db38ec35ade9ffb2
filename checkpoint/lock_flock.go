//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/symgrad/symgrad/internal/foreign"
)

// Lock opens the file name, and makes it if it is missing, and locks it with flock. The lock
// belongs to the open file: it ends when that is closed, or with the process. A file of another
// user that cannot be written is opened for reading.
//
// A user who can open a file, even for reading, can lock it and so block all others. Only users who
// may write to the folder may open the lock, so Lock removes the other permissions, also from an
// existing file. If another user took the lock before that, Lock puts a new file in its place.
//
// Errors: EWOULDBLOCK if it is locked, by this process or another that may lock it.
func (disk) Lock(name string) (*os.File, error) {
	f, wasOpen, err := openLock(name)
	if wasOpen && errors.Is(err, syscall.EWOULDBLOCK) {
		if replaced := replaceLock(name); replaced != nil {
			return replaced, nil
		}
	}
	return f, err
}

// openLock opens and locks the file name. wasOpen reports whether users who may not write to the
// folder could open the file before.
func openLock(name string) (f *os.File, wasOpen bool, err error) {
	const flags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK // reject links, do not wait for pipes
	f, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|flags, 0o600)
	if errors.Is(err, fs.ErrPermission) {
		if other, reading := os.OpenFile(name, os.O_RDONLY|flags, 0); reading == nil {
			f, err = other, nil
		}
	}
	if err != nil {
		return nil, false, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: foreign.ErrIrregular}
	}
	if err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	wasOpen = closeToReaders(f, info, filepath.Dir(name))
	if err = flock(f); err != nil {
		return nil, wasOpen, errors.Join(err, f.Close())
	}
	if now, err := os.Lstat(name); err != nil || !os.SameFile(info, now) { // another process has replaced it meanwhile
		return nil, false, errors.Join(&fs.PathError{Op: "flock", Path: name, Err: syscall.EWOULDBLOCK}, f.Close())
	}
	return f, wasOpen, nil
}

// flock locks f without waiting.
func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			err = &fs.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
		return err
	}
}

// closeToReaders sets the mode of a lock so that exactly the users who may write to folder dir can
// open it: 0600, plus the bits of the group if file and folder have the same group, and those of
// all others. After an error the mode is unchanged: the file is another user's, or the file system
// has no modes.
//
// Returns: whether users who may not write to dir could open the file before.
func closeToReaders(f *os.File, info fs.FileInfo, dir string) (wasOpen bool) {
	mode := fs.FileMode(0o600)
	folder, err := os.Stat(dir)
	if err != nil {
		return false
	}
	if writers := folder.Mode().Perm(); writers&0o020 != 0 && groupOf(folder) == groupOf(info) {
		mode |= 0o060
	}
	if folder.Mode().Perm()&0o002 != 0 {
		mode |= 0o006
	}
	if info.Mode().Perm() != mode {
		_ = f.Chmod(mode)
	}
	return info.Mode().Perm()&^mode != 0
}

// groupOf returns the group of a file, or -1.
func groupOf(info fs.FileInfo) int {
	if of, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(of.Gid)
	}
	return -1
}

// replaceLock replaces a lock that a user holds who may not write to the folder. A process with the
// right to lock has written its number to the file; in that case replaceLock does nothing.
// Processes that replace at the same time all use one name for the new file, so its lock excludes
// all but one.
//
// Returns: nil if the lock must not or cannot be replaced.
func replaceLock(name string) *os.File {
	theirs := func() bool {
		text, err := foreign.ReadFile(name, maxHolder)
		return err == nil && holderOf(text) == holder{}
	}
	if !theirs() {
		return nil
	}
	next := name + ".new"
	f, _, err := openLock(next)
	if err != nil {
		return nil
	}
	host, _ := os.Hostname()
	own := folderLock{file: f}
	own.say(holder{os.Getpid(), host}) // another process must be able to read who holds it
	old, _, err := openLock(name)
	if errors.Is(err, syscall.EWOULDBLOCK) && theirs() && os.Rename(next, name) == nil {
		return f
	}
	_ = errors.Join(os.Remove(next), f.Close()) // a leftover does no harm
	return old
}

// alive reports whether process pid exists on this host.
func alive(pid int) bool { return pid > 0 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
