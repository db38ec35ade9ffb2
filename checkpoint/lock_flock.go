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

// Lock opens the file name, made if it is missing, and locks it: a flock, which belongs to what was
// opened and ends with it, in this process or by its end. Where the file is another user's and
// cannot be written, it is opened for reading.
//
// Whoever can open a file can lock it, for reading or writing, and so keep all others from it. Only
// users who may write to the folder may open the lock, so Lock takes the other permissions away,
// also from a file that is there. A lock that another user took before that is left to them with
// the file, which gets a successor.
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

// openLock opens and locks the file name. It reports whether other users could open the file
// before.
func openLock(name string) (f *os.File, wasOpen bool, err error) {
	const flags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK // a link or a pipe is no lock
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

// flock locks f, and does not wait.
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

// closeToReaders gives a lock the mode with which exactly the users who may write to folder dir can
// open it: 0600, with the bits of the group if the file has the folder's, and those of all others.
// An error leaves the mode as it was: the file is another user's, or the file system has no modes.
//
// Returns: whether users who may not could open it.
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

// groupOf returns the group of a file; -1 if it has none.
func groupOf(info fs.FileInfo) int {
	if of, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(of.Gid)
	}
	return -1
}

// replaceLock puts a new file in the place of a lock that users could open who may not, and that
// one of them holds. A process that may lock the file has written its number there, and then
// nothing is done. Processes that replace at once are kept apart by the lock of the new file, which
// they all give the same name.
//
// Returns: nil where the lock is not to be replaced, or cannot be.
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
	own.say(holder{os.Getpid(), host}) // a process that finds the new file locked must see who has it
	old, _, err := openLock(name)
	if errors.Is(err, syscall.EWOULDBLOCK) && theirs() && os.Rename(next, name) == nil {
		return f
	}
	_ = errors.Join(os.Remove(next), f.Close()) // a leftover does no harm
	return old
}

// alive reports whether there is a process pid on this host.
func alive(pid int) bool { return pid > 0 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
