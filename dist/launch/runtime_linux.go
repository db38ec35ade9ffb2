package launch

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/symgrad/symgrad/dist"
)

// runtimeFolders returns folders in which no other user can take a name first: that of
// XDG_RUNTIME_DIR, and the one that a login makes, for ranks without the variable.
func runtimeFolders(set string) []string {
	var private []string
	for _, dir := range []string{set, filepath.Join("/run/user", strconv.Itoa(os.Getuid()))} {
		if filepath.IsAbs(dir) && isPrivate(dir) && (len(private) == 0 || private[0] != filepath.Clean(dir)) {
			private = append(private, filepath.Clean(dir))
		}
	}
	return private
}

// isPrivate reports whether dir is a folder of this user without access for others.
func isPrivate(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o077 != 0 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid()
}

// socketFile is a unix socket with a name in a file system, and a lock that its owner holds while
// it lives. The lock distinguishes a socket in use from one that a killed process left.
type socketFile struct {
	net.Listener
	path string
	lock *os.File
}

// listenFile opens the socket path in a private folder, and replaces one that a dead process left.
//
// Errors: EADDRINUSE when another process of this user has it.
func listenFile(path string) (net.Listener, error) {
	lock, err := lockSocket(path + ".lock")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(path) // of a dead process, since this one has the lock
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, errors.Join(err, os.Remove(lock.Name()), lock.Close())
	}
	l.SetUnlinkOnClose(false) // Close does it, before it releases the lock
	return &socketFile{Listener: l, path: path, lock: lock}, nil
}

// lockSocket makes and locks the file name. If its owner removes the file meanwhile, it starts
// again.
func lockSocket(name string) (*os.File, error) {
	for {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = f.Close() // nothing was written
			if errors.Is(err, syscall.EWOULDBLOCK) {
				err = syscall.EADDRINUSE
			}
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		mine, err := f.Stat()
		there, thereErr := os.Stat(name)
		if err == nil && thereErr == nil && os.SameFile(mine, there) {
			return f, nil
		}
		_ = f.Close() // nothing was written
	}
}

// Close ends the socket and removes its name.
func (s *socketFile) Close() error {
	err := s.Listener.Close()
	_ = os.Remove(s.path) // perhaps removed with the folder, at the end of the login
	_ = os.Remove(s.lock.Name())
	return errors.Join(err, s.lock.Close())
}

// holderOfName returns an error if another user has the socket address, which was in use. It
// returns nil if this user has it, or the user is unknown.
func holderOfName(address string) error {
	conn, err := net.Dial("unix", address)
	if err != nil {
		return nil
	}
	defer conn.Close()
	if err := checkPeer(conn); errors.Is(err, dist.ErrInvalid) {
		return err
	}
	return nil
}
