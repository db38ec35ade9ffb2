//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package checkpoint

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// lockedBy checks that a folder is locked for another run, and returns the process in the error.
func lockedBy(t *testing.T, dir string) int {
	t.Helper()
	s, err := newSaver(Options{Dir: dir}, disk{})
	locked := &LockedError{}
	if !errors.As(err, &locked) || !errors.Is(err, ErrLocked) || locked.Dir != dir || !strings.Contains(err.Error(), "folder "+dir+": locked: ") {
		t.Fatalf("New is %v, %v, want that %s is locked", s, err, dir)
	}
	if named := strings.Contains(err.Error(), fmt.Sprint(locked.PID)); locked.PID != 0 && !named {
		t.Errorf("%v does not name process %d", err, locked.PID)
	}
	return locked.PID
}

// mustNew opens a folder that no run has locked.
func mustNew(t *testing.T, o Options) *Saver {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Unlocked(); err != nil {
		t.Fatalf("no lock: %v", err)
	}
	return s
}

func TestOneRunSavesToAFolder(t *testing.T) {
	dir := t.TempDir()
	all := mustSavers(t, Options{Dir: dir, Size: 3, Sharded: true}) // whose ranks do not lock each other out
	if pid := lockedBy(t, dir); pid != os.Getpid() {
		t.Errorf("process %d has it, want %d", pid, os.Getpid())
	}
	if err := saveWith(t, all, 4, false); err != nil {
		t.Fatal(err)
	}
	lockedBy(t, dir)
	checkNewest(t, dir, 4) // to read it needs no lock
	closed(t, all[1])
	closed(t, all[2])
	lockedBy(t, dir)
	closed(t, all[0])
	closed(t, mustNew(t, Options{Dir: dir}))
	if text, err := os.ReadFile(filepath.Join(dir, lockName)); err != nil || len(text) > 0 {
		t.Errorf("the lock file without a holder has %q, %v", text, err)
	}
}

// A start that fails releases the folder.
func TestFailedStartGivesTheLockBack(t *testing.T) {
	dir := t.TempDir()
	if _, err := newSaver(Options{Dir: dir}, readOnly{}); !errors.Is(err, fs.ErrPermission) {
		t.Fatal(err)
	}
	closed(t, mustNew(t, Options{Dir: dir}))
}

// A save in the background keeps the folder locked, also for a run that no longer waits for the
// save.
func TestFolderIsLockedUntilTheSaveHasEnded(t *testing.T) {
	gate := &gatedFS{open: make(chan struct{})}
	s, err := newSaver(Options{Dir: t.TempDir(), Async: true}, gate)
	if err != nil {
		t.Fatal(err)
	}
	gate.armed = true
	err = s.Save(metaOf(1), runsOf(model(), 1, 0, 1, false))
	if err = errors.Join(err, s.Abandon(), s.Abandon()); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(metaOf(2), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("a save after Abandon: %v", err)
	}
	lockedBy(t, s.o.Dir)
	close(gate.open)
	closed(t, s) // waits for it
	closed(t, mustNew(t, Options{Dir: s.o.Dir}))
	checkNewest(t, s.o.Dir, 1)

	idle := mustNew(t, Options{Dir: s.o.Dir, Async: true})
	if err := idle.Abandon(); err != nil {
		t.Fatal(err)
	}
	closed(t, mustNew(t, Options{Dir: s.o.Dir}))
}

// stubborn is a disk where another process has the lock for some calls.
type stubborn struct {
	disk
	left *int
}

func (d stubborn) Lock(name string) (*os.File, error) {
	if *d.left--; *d.left >= 0 {
		return nil, &fs.PathError{Op: "flock", Path: name, Err: syscall.EWOULDBLOCK}
	}
	return d.disk.Lock(name)
}

// A run that is ending keeps the folder locked for a moment.
func TestStartWaitsForARunThatEnds(t *testing.T) {
	dir := t.TempDir()
	left := 3
	s, err := openSaver(Options{Dir: dir}, stubborn{left: &left}, time.Minute)
	if err != nil || left != -1 {
		t.Fatalf("%v, with %d calls left", err, left)
	}
	if _, err := openSaver(Options{Dir: dir}, disk{}, 2*lockPause); !errors.Is(err, ErrLocked) {
		t.Errorf("while another has it: %v", err)
	}
	closed(t, s)
}

// A killed process keeps the folder locked until its end, and no longer.
func TestLockEndsWithTheProcess(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), killedVariable+"="+dir)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for saved := false; !saved && lines.Scan(); { // dots for calls, and a line of its own for the step
		saved = strings.Trim(lines.Text(), ".") != ""
	}
	// It is held where it is, lest it removes the checkpoint that is being opened.
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Wait4(cmd.Process.Pid, nil, syscall.WUNTRACED, nil); err != nil {
		t.Fatal(err)
	}
	pid := lockedBy(t, dir)
	if pid != cmd.Process.Pid {
		t.Errorf("process %d has it, want %d", pid, cmd.Process.Pid)
	}
	c := open(t, dir)
	checkContent(t, c, c.Manifest().Step)
	closed(t, c)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // to its end
	}
	_ = cmd.Wait() // killed
	closed(t, mustNew(t, Options{Dir: dir}))
}

// The error does not have a process number that cannot be right.
func TestHolderIsToldWhereItIsKnown(t *testing.T) {
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, lockName)
	f, err := disk{}.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, f)
	const gone = 1<<31 - 1 // no system gives a process this number
	for text, want := range map[string]LockedError{
		"":     {},
		"torn": {},
		fmt.Sprintf(`{"pid":%d,"host":%q}`, gone, here):               {},
		fmt.Sprintf(`{"pid":%d,"host":%q}`, gone, here+"x"):           {PID: gone, Host: here + "x"},
		fmt.Sprintf(`{"pid":%d,"host":%q}`, os.Getppid(), here):       {PID: os.Getppid(), Host: here},
		fmt.Sprintf(`{"pid":%d,"host":%q}`, os.Getpid(), here) + "\n": {PID: os.Getpid(), Host: here},
	} {
		change(t, path, func([]byte) []byte { return []byte(text) })
		want.Dir = dir
		_, err := newSaver(Options{Dir: dir}, disk{})
		if got := (&LockedError{}); !errors.As(err, &got) || *got != want {
			t.Errorf("of %q: %v, want %+v", text, err, want)
		}
		if elsewhere := strings.Contains(fmt.Sprint(err), " on "+here+"x"); elsewhere != (want.Host == here+"x") {
			t.Errorf("of %q: %v", text, err)
		}
	}
}

// lockless is a disk whose locks fail.
type lockless struct {
	disk
	err error
}

func (d lockless) Lock(name string) (*os.File, error) {
	return nil, &fs.PathError{Op: "flock", Path: name, Err: d.err}
}

// Without locks runs save as usual, and Unlocked has the reason.
func TestFileSystemsWithoutLocks(t *testing.T) {
	for _, why := range []error{syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.ENOLCK, syscall.EINVAL, syscall.EBADF} {
		o := Options{Dir: t.TempDir(), Keep: 1}
		s, err := newSaver(o, lockless{err: why})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Unlocked(); !errors.Is(err, why) {
			t.Errorf("Unlocked is %v, want %v", err, why)
		}
		closed(t, mustNew(t, o)) // it is not locked
		if err := errors.Join(s.Save(metaOf(3), runsOf(model(), 3, 0, 1, false)), s.Close()); err != nil {
			t.Error(err)
		}
		checkNewest(t, o.Dir, 3)
	}
	o := Options{Dir: t.TempDir()}
	if _, err := newSaver(o, lockless{err: syscall.EROFS}); !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), "choose a folder that can be written") {
		t.Errorf("a folder that cannot be written: %v", err)
	}
	if _, err := newSaver(o, lockless{err: syscall.EIO}); !errors.Is(err, syscall.EIO) || errors.Is(err, ErrLocked) {
		t.Errorf("a disk that fails: %v", err)
	}
}

// Reading leaves no lock, so that read-only folders can be read.
func TestReadersLockNothing(t *testing.T) {
	dir := t.TempDir()
	mustSave(t, Options{Dir: dir, Size: 2, Sharded: true}, 9)
	if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chmod(dir, 0o755) }()
	checkNewest(t, dir, 9)
	list, err := List(dir)
	if err != nil || len(list) != 1 {
		t.Fatalf("%q, %v", list, err)
	}
	c, err := OpenAt(list[0], VerifyAll)
	if err == nil {
		_, _, err = c.Merge(filepath.Join(t.TempDir(), "all.safetensors"))
	}
	if err != nil {
		t.Fatal(err)
	}
	closed(t, c)
	entries, err := os.ReadDir(dir)
	if err != nil || slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == lockName }) {
		t.Errorf("%v, %v: reading has locked", entries, err)
	}
}

// Files of other programs in the folder do not change.
func TestNewLeavesOtherFilesAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "probe"), []byte("of another program"), 0o666); err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	closed(t, s)
	if text, err := os.ReadFile(filepath.Join(dir, "probe")); err != nil || string(text) != "of another program" {
		t.Errorf("%q, %v", text, err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"probe"}) {
		t.Errorf("there are %q", got)
	}
}
