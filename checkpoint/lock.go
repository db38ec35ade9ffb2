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

// lockName is the file in a folder of checkpoints that the run that saves there has locked. It
// stays when the run ends: a program that removed it could take it from another that has just
// opened it.
const lockName = ".lock"

// What New does where the folder is locked: a run that was killed a moment ago, and is to go on,
// may not have ended quite.
const (
	lockPatience = 2 * time.Second
	lockPause    = 20 * time.Millisecond
)

// LockedError is that another run saves to the folder, or another Saver of this program. It is an
// ErrLocked.
type LockedError struct {
	Dir  string // the folder
	PID  int    // of the process that has locked it; 0 if that is not known
	Host string // where that runs; "" if that is not known
}

// Error names the folder and who has it.
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

// Is makes it an ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// holder is what the file says of who has locked it.
type holder struct {
	PID  int    `json:"pid"`
	Host string `json:"host"`
}

// folderLock is a folder that no other run saves to. The operating system takes it back when the
// process ends, however.
type folderLock struct {
	file  *os.File // nil for a folder that has no lock
	none  error    // why it has none
	users atomic.Int32
}

// lockFolder locks dir for the caller, who is its first user. A file system that has no locks is
// none to refuse: the folder then is as safe as who names it. One that is locked is tried again and
// again, so long as patience is.
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
		text, _ := sys.ReadFile(path) // without it less is known
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

// maxHolder is the bytes of a lock's text that are read at most.
const maxHolder = 4096

// holderOf returns the process that text, of a lock, names; none for a text that is about to be
// written, and for a process that was killed.
func holderOf(text []byte) holder {
	var h holder
	err := json.Unmarshal(text, &h)
	if here, _ := os.Hostname(); err != nil || h.Host == here && !alive(h.PID) {
		return holder{}
	}
	return h
}

// unlockable reports whether an error says that the file system has no locks, that what keeps them
// for all hosts cannot be asked, or (EBADF, of NFS) that this user may not write what is to be
// locked.
func unlockable(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.ENOLCK) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EBADF)
}

// say writes who has the lock. That it cannot is no reason not to save: others learn less.
func (l *folderLock) say(h holder) {
	text, err := json.Marshal(h)
	if err == nil {
		err = l.file.Truncate(0)
	}
	if err == nil {
		_, _ = l.file.WriteAt(append(text, '\n'), 0)
		_ = l.file.Sync() // on a network file system other hosts do not see it before
	}
}

// hold makes one more user of the lock.
func (l *folderLock) hold() {
	if l != nil {
		l.users.Add(1)
	}
}

// release gives the lock back when the last user does.
func (l *folderLock) release() error {
	if l == nil || l.users.Add(-1) > 0 || l.file == nil {
		return nil
	}
	_ = l.file.Truncate(0) // nobody has it
	return l.file.Close()
}
