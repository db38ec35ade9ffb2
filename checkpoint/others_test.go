//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// otherVariable makes the test binary another user's process: it locks the file that the variable
// names.
const otherVariable = "SYMGRAD_TEST_OTHER_USER"

// lockAsReader opens a file for reading, locks it, reports that on standard output, and keeps the
// lock until standard input ends.
func lockAsReader(name string) {
	f, err := os.Open(name)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	}
	if errors.Is(err, fs.ErrPermission) {
		_, _ = os.Stdout.WriteString("refused\n")
		return
	}
	if err != nil {
		_, _ = os.Stdout.WriteString(err.Error() + "\n")
		return
	}
	_, _ = os.Stdout.WriteString("locked\n")
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// otherUser runs this test's binary as another user, who locks a file. It returns the output and a
// function that ends the process. It skips the test if this user is not root.
func otherUser(t *testing.T, name string) (says string, end func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	for dir := filepath.Dir(name); dir != "/"; dir = filepath.Dir(dir) { // test folders are closed to others above
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if dir == os.TempDir() || filepath.Dir(dir) == os.TempDir() {
			break
		}
	}
	binary := filepath.Join(t.TempDir(), "other") // go test's own folder is closed to others
	if err := os.Chmod(filepath.Dir(filepath.Dir(binary)), 0o755); err != nil {
		t.Fatal(err)
	}
	own, err := os.Executable()
	var text []byte
	if err == nil {
		text, err = os.ReadFile(own)
	}
	if err == nil {
		err = errors.Join(os.WriteFile(binary, text, 0o755), os.Chmod(binary, 0o755)) // whatever the umask
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-test.run=^$")
	cmd.Dir, cmd.Env = "/", []string{otherVariable + "=" + name}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.StdoutPipe()
	in, err2 := cmd.StdinPipe()
	started := cmd.Start()
	if errors.Is(started, fs.ErrPermission) {
		t.Skipf("another user cannot run programs in %s: %v", os.TempDir(), started)
	}
	if err := errors.Join(err, err2, started); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 200)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(line[:n])), func() { _ = errors.Join(in.Close(), cmd.Wait()) }
}

// A user who may read a folder of checkpoints cannot keep its owner from saving there.
func TestReadersCannotLockAFolder(t *testing.T) {
	dir := t.TempDir()
	closed(t, mustNew(t, Options{Dir: dir}))
	says, end := otherUser(t, filepath.Join(dir, lockName))
	defer end()
	if says != "refused" {
		t.Errorf("the other user is %s", says)
	}
	closed(t, mustNew(t, Options{Dir: dir}))
}

// A lock that all users could read, of an earlier version or after chmod -R, may be held by one of
// them.
func TestALockThatReadersHoldIsReplaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, lockName)
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	says, end := otherUser(t, path)
	defer end()
	if says != "locked" {
		t.Fatalf("the other user is %s", says)
	}
	s := mustNew(t, Options{Dir: dir})
	lockedBy(t, dir) // the new file is a lock like any other
	closed(t, s)
	if got := names(t, dir); len(got) > 0 {
		t.Errorf("%q are left", got)
	}
	if _, refused := otherUser(t, path); refused != nil {
		refused()
	}
	closed(t, mustNew(t, Options{Dir: dir}))
}

// A run of an earlier version, whose lock all users can read, still has the folder.
func TestALockThatARunHoldsIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	s := mustNew(t, Options{Dir: dir})
	if err := os.Chmod(filepath.Join(dir, lockName), 0o644); err != nil {
		t.Fatal(err)
	}
	lockedBy(t, dir)
	closed(t, s)
}

// Exactly the users who may write to a folder can open its lock.
func TestLockHasTheWritersOfItsFolder(t *testing.T) {
	for folder, want := range map[fs.FileMode]fs.FileMode{0o755: 0o600, 0o700: 0o600, 0o775: 0o660, 0o777: 0o666, 0o757: 0o606} {
		for _, before := range []fs.FileMode{0, 0o600, 0o644, 0o666} {
			dir := t.TempDir()
			path := filepath.Join(dir, lockName)
			err := os.Chmod(dir, folder)
			if err == nil && before != 0 {
				err = errors.Join(os.WriteFile(path, nil, before), os.Chmod(path, before))
			}
			if err != nil {
				t.Fatal(err)
			}
			closed(t, mustNew(t, Options{Dir: dir}))
			if info, err := os.Stat(path); err != nil || info.Mode() != want {
				t.Errorf("in a folder of mode %v, after %v: %v, %v, want %v", folder, before, info.Mode(), err, want)
			}
		}
	}
}

// A file that is not a lock is not opened, waited for or written to.
func TestLockIsARegularFile(t *testing.T) {
	for name, place := range map[string]func(path string) error{
		"a pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a link":   func(path string) error { return os.Symlink("/dev/null", path) },
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		dir := t.TempDir()
		if err := place(filepath.Join(dir, lockName)); err != nil {
			t.Fatal(err)
		}
		if s, err := newSaver(Options{Dir: dir}, disk{}); err == nil {
			t.Errorf("%s is taken for a lock", name)
			closed(t, s)
		}
	}
}
