package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
)

// lockName is the file that a run locks in its folder of checkpoints. The file stays when the run
// ends: removing it could take the lock from a run that has just opened the file.
const lockName = ".lock"

// Waiting times of New for a locked folder: a run that was killed just before a restart may not
// have ended yet.
const (
	lockPatience = 2 * time.Second
	lockPause    = 20 * time.Millisecond
)

// LockedError is returned when another run, or another Saver of this program, saves to the folder.
// It is an ErrLocked.
type LockedError struct {
	Dir  string // the folder
	PID  int    // of the process with the lock; 0 if unknown
	Host string // of that process; "" if unknown
}

// Error returns the folder, the process with the lock, and the remedy.
func (e *LockedError) Error() string {
	who := "another process"
	switch {
	case e.PID == os.Getpid():
		who = fmt.Sprintf("this process, %d,", e.PID)
	case e.PID > 0:
		who = fmt.Sprintf("process %d", e.PID)
	}
	if here, _ := os.Hostname(); e.Host != "" && e.Host != here {
		who += " on " + e.Host
	}
	return fmt.Sprintf("checkpoint: folder %s: %v: %s saves there: wait until it has ended, or choose another folder", e.Dir, ErrLocked, who)
}

// Is reports whether target is ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// holder is the content of the lock file: the process with the lock.
type holder struct {
	PID  int    `json:"pid"`
	Host string `json:"host"`
}

// folderLock is a lock on a folder. The operating system releases it when the process ends, for any
// reason.
type folderLock struct {
	file  *os.File // nil for a folder without a lock
	none  error    // reason for no lock
	users atomic.Int32
}

// lockFolder locks dir for the caller, its first user. A file system without locks is no error: the
// folder then has none, and the user must keep other runs away. A locked folder is tried again
// until patience has passed.
//
// Errors: *LockedError, those of the file system.
func lockFolder(sys fileSystem, dir string, patience time.Duration) (*folderLock, error) {
	path := filepath.Join(dir, lockName)
	l := &folderLock{}
	l.users.Store(1)
	f, err := sys.Lock(path)
	for until := time.Now().Add(patience); errors.Is(err, syscall.EWOULDBLOCK) && time.Now().Before(until); f, err = sys.Lock(path) {
		<-time.After(min(lockPause, patience))
	}
	switch {
	case err == nil:
	case errors.Is(err, syscall.EWOULDBLOCK):
		text, _ := sys.ReadFile(path) // without it the error has no process
		h := holderOf(text)
		return nil, &LockedError{Dir: dir, PID: h.PID, Host: h.Host}
	case unlockable(err):
		l.none = err
		return l, nil
	default:
		return nil, err
	}
	l.file = f
	host, _ := os.Hostname()
	l.say(holder{os.Getpid(), host})
	return l, nil
}

// maxHolder is the largest number of bytes read from a lock file.
const maxHolder = 4096

// holderOf returns the process that the text of a lock names. It returns no process for an
// incomplete text, or a process that is dead.
func holderOf(text []byte) holder {
	var h holder
	err := json.Unmarshal(text, &h)
	if here, _ := os.Hostname(); err != nil || h.Host == here && !alive(h.PID) {
		return holder{}
	}
	return h
}

// unlockable reports whether an error means that the file system has no locks, that its lock
// service does not answer, or (EBADF, on NFS) that this user may not write the file.
func unlockable(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.ENOLCK) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EBADF)
}

// say writes the process with the lock. A failure is no reason not to save: the errors of other
// runs then lack the process.
func (l *folderLock) say(h holder) {
	text, err := json.Marshal(h)
	if err == nil {
		err = l.file.Truncate(0)
	}
	if err == nil {
		_, _ = l.file.WriteAt(append(text, '\n'), 0)
		_ = l.file.Sync() // makes it visible to other hosts on a network file system
	}
}

// hold adds a user of the lock.
func (l *folderLock) hold() {
	if l != nil {
		l.users.Add(1)
	}
}

// release drops a user; the last one releases the lock.
func (l *folderLock) release() error {
	if l == nil || l.users.Add(-1) > 0 || l.file == nil {
		return nil
	}
	_ = l.file.Truncate(0) // no process has the lock
	return l.file.Close()
}
