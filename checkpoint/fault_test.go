package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/internal/long"
)

// faultyFS is a disk on which one of the calls that change something fails.
type faultyFS struct {
	disk
	at    int   // the number of the call, from 0; negative for never
	fault error // its result; nil means that the machine stops there: this call and all later ones fail
	trash string

	calls   []string
	pending []renaming      // names that are not durable, the oldest first
	unsaid  map[string]bool // files whose content is not
}

// renaming is a change of names, and its undo.
type renaming struct {
	from, to string // "" for made and for removed
}

var errStopped = errors.New("the machine has stopped")

// call counts calls, and reports whether this one fails. half reports whether a write may succeed
// in part.
func (f *faultyFS) call(what, name string) error {
	n := len(f.calls)
	f.calls = append(f.calls, what+" "+filepath.Base(name))
	switch {
	case f.at >= 0 && n == f.at && f.fault != nil:
		return &fs.PathError{Op: what, Path: name, Err: f.fault}
	case f.at >= 0 && n >= f.at && f.fault == nil:
		return errStopped
	}
	return nil
}

func (f *faultyFS) Mkdir(name string) error {
	if err := f.call("mkdir", name); err != nil {
		return err
	}
	err := f.disk.Mkdir(name)
	if err == nil {
		f.did(renaming{"", name})
	}
	return err
}

func (f *faultyFS) Create(name string) (file, error) {
	if err := f.call("create", name); err != nil {
		return nil, err
	}
	if err := f.putAside(name); err != nil {
		return nil, err
	}
	w, err := f.disk.Create(name)
	if err == nil {
		f.did(renaming{"", name})
		f.unsaid[name] = true
	}
	return &faultyFile{file: w, fs: f, name: name}, err
}

func (f *faultyFS) Rename(from, to string) error {
	if err := f.call("rename", to); err != nil {
		return err
	}
	if info, err := os.Stat(to); err == nil && !info.IsDir() {
		if err := f.putAside(to); err != nil {
			return err
		}
	}
	if err := f.disk.Rename(from, to); err != nil {
		return err
	}
	f.did(renaming{from, to})
	return nil
}

// moved returns the name of a file after a renaming.
func (c renaming) moved(name string) string {
	if c.from != "" && (name == c.from || strings.HasPrefix(name, c.from+"/")) {
		return c.to + strings.TrimPrefix(name, c.from)
	}
	return name
}

// did records a change of names.
func (f *faultyFS) did(c renaming) {
	f.pending = append(f.pending, c)
	for name := range f.unsaid {
		if now := c.moved(name); now != name {
			delete(f.unsaid, name)
			f.unsaid[now] = true
		}
	}
}

// putAside removes name so that the removal can be undone.
func (f *faultyFS) putAside(name string) error {
	if _, err := os.Lstat(name); err != nil {
		return nil
	}
	aside := filepath.Join(f.trash, fmt.Sprint(len(f.pending), "-", len(f.calls)))
	if err := os.Rename(name, aside); err != nil {
		return err
	}
	f.did(renaming{name, aside})
	return nil
}

func (f *faultyFS) Remove(name string) error {
	if err := f.call("remove", name); err != nil {
		return err
	}
	info, err := os.Lstat(name)
	if err != nil {
		return err
	}
	if entries, _ := os.ReadDir(name); info.IsDir() && len(entries) > 0 {
		return &fs.PathError{Op: "remove", Path: name, Err: syscall.ENOTEMPTY}
	}
	return f.putAside(name)
}

func (f *faultyFS) SyncDir(name string) error {
	if err := f.call("syncdir", name); err != nil {
		return err
	}
	var still []renaming
	for _, c := range f.pending {
		at := c.to
		if strings.HasPrefix(at, f.trash) {
			at = c.from
		}
		if filepath.Dir(at) != name {
			still = append(still, c)
			continue
		}
		for i, s := range still { // undo earlier renamings where the file is now
			still[i] = renaming{c.moved(s.from), c.moved(s.to)}
		}
	}
	f.pending = still
	return nil
}

// lose simulates a power failure: content that was not flushed is lost, and with names set
// renamings that were not flushed are undone.
func (f *faultyFS) lose(tb testing.TB, lostNames bool) {
	tb.Helper()
	for name := range f.unsaid { // each by itself
		if err := os.Truncate(name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			tb.Fatal(err)
		}
	}
	for i, c := range slices.Backward(f.pending) {
		if !lostNames {
			break
		}
		var err error
		if c.from == "" {
			err = os.Rename(c.to, filepath.Join(f.trash, fmt.Sprint("undone-", i)))
		} else {
			err = os.Rename(c.to, c.from)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// faultyFile is a file of a faultyFS.
type faultyFile struct {
	file
	fs   *faultyFS
	name string
}

func (w *faultyFile) Write(p []byte) (int, error) {
	if err := w.fs.call("write", w.name); err != nil {
		n, _ := w.file.Write(p[:len(p)/2]) // it gets half way
		return n, err
	}
	return w.file.Write(p)
}

func (w *faultyFile) Sync() error {
	if err := w.fs.call("fsync", w.name); err != nil {
		return err
	}
	delete(w.fs.unsaid, w.name)
	return nil
}

func (w *faultyFile) Close() error {
	if err := w.fs.call("close", w.name); err != nil {
		return errors.Join(err, w.file.Close())
	}
	return w.file.Close()
}

// scenario is a folder with checkpoints, and a save that fails.
type scenario struct {
	name string
	keep int
	have []int // existing steps
	save int   // the step that is saved
}

var scenarios = []scenario{
	{"the first", 0, nil, 200},
	{"one more", 0, []int{100}, 200},
	{"the older goes", 1, []int{50, 100}, 200},
	{"the same again", 2, []int{100, 200}, 200},
}

// begin makes the folder of the scenario, and a disk that fails.
func (sc *scenario) begin(t *testing.T, at int, fault error) (Options, []*Saver, *faultyFS) {
	t.Helper()
	root := t.TempDir()
	o := Options{Dir: filepath.Join(root, "ckpt"), Size: 2, Sharded: true, Timeout: 20 * time.Millisecond}
	for _, step := range sc.have {
		mustSave(t, o, step)
	}
	o.Keep = sc.keep
	f := &faultyFS{at: -1, fault: fault, trash: filepath.Join(root, "trash"), unsaid: map[string]bool{}}
	if err := os.Mkdir(f.trash, 0o777); err != nil {
		t.Fatal(err)
	}
	all, err := newSavers(o, f)
	if err != nil {
		t.Fatal(err)
	}
	f.calls, f.pending, f.at = nil, nil, at
	return o, all, f
}

// calls returns the number of calls of a save that succeeds.
func (sc *scenario) calls(t *testing.T) []string {
	t.Helper()
	o, all, f := sc.begin(t, -1, nil)
	if err := saveWith(t, all, sc.save, false); err != nil {
		t.Fatal(err)
	}
	checkNewest(t, o.Dir, sc.save)
	return f.calls
}

// tried reports whether short tests include case at: one case in a fixed number. Long tests include
// all. With invariants or the race detector it is one of seven, because all cases run the same
// code.
func tried(at, every int) bool {
	switch {
	case invariants.Enabled:
		return at%7 == 0
	case long.Enabled():
		return true
	}
	return at%every == 0
}

// A checkpoint to remove is renamed first, and the name is flushed before its manifest is removed;
// the manifest is removed before all other files.
func TestCheckpointsAreRenamedBeforeTheyAreRemoved(t *testing.T) {
	calls := scenarios[2].calls(t)
	at := slices.Index(calls, "rename step-00000050.removed.tmp")
	want := []string{
		"rename step-00000050.removed.tmp", "syncdir ckpt", "remove manifest.json", "syncdir step-00000050.removed.tmp",
		"remove rank-00000-of-00002.safetensors",
	}
	if at < 0 || !slices.Equal(calls[at:min(at+len(want), len(calls))], want) || slices.Index(calls, "rename step-00000200") > at {
		t.Errorf("%q", calls)
	}
}

// The machine stops at each call of a save: by a kill, or by a power failure that loses unflushed
// data in two variants. Short tests take one of the three at each call. Afterwards there is a whole
// checkpoint, the newest if Save had returned, and the next start can save.
func TestTheMachineStopsAtEveryCall(t *testing.T) {
	for _, sc := range scenarios {
		calls := sc.calls(t)
		if len(calls) < 20 {
			t.Errorf("%s: only %q", sc.name, calls)
		}
		for at, what := range append(calls, "after all") {
			for i, how := range []string{"killed", "no power", "no power, names lost"} {
				if !tried(at+i, 3) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%d %s/%s", sc.name, at, what, how), func(t *testing.T) { sc.stop(t, at, how, (at+i)%3 == 0) })
			}
		}
	}
}

// stop stops the machine at a call; again is whether the next start saves too, which is slow.
func (sc *scenario) stop(t *testing.T, at int, how string, again bool) {
	o, all, f := sc.begin(t, at, nil)
	failed := saveWith(t, all, sc.save, false)
	for _, s := range all {
		closed(t, s) // the program has ended, and its lock with it
	}
	if how != "killed" {
		f.lose(t, how == "no power, names lost")
	}
	before := 0 // the newest step that was there
	if len(sc.have) > 0 {
		before = slices.Max(sc.have)
	}
	found := sc.check(t, o.Dir, failed == nil, before)
	next, err := newSaver(o, quick{}) // the next start clears up, and loses nothing
	if err != nil {
		t.Fatal(err)
	}
	closed(t, next)
	if now := sc.check(t, o.Dir, failed == nil, before); now < found {
		t.Errorf("step %d was there before New, and then step %d", found, now)
	}
	if again {
		mustSave(t, o, 300)
		checkNewest(t, o.Dir, 300)
	}
	for _, name := range names(t, o.Dir) {
		if strings.Contains(name, "tmp") || strings.Contains(name, "part") && how != "no power, names lost" {
			t.Errorf("%s is left", name)
		}
	}
}

// check opens the newest checkpoint, which must be that of save or an earlier one, or that of save
// if saved. Returns: its step; 0 for none.
func (sc *scenario) check(t *testing.T, dir string, saved bool, before int) int {
	t.Helper()
	c, err := Open(dir)
	if errors.Is(err, ErrNone) && before == 0 && !saved {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, c)
	step := c.Manifest().Step
	if step != sc.save && (saved || step != before) {
		t.Errorf("step %d", step)
	}
	checkContent(t, c, step)
	return step
}

// Each call fails once, as on a full disk; all later ones succeed. The error has the reason, and
// the existing checkpoints stay whole.
func TestEveryCallFails(t *testing.T) {
	for _, sc := range scenarios {
		calls := sc.calls(t)
		for at, what := range calls {
			if !tried(at, 1) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d %s", sc.name, at, what), func(t *testing.T) {
				o, all, f := sc.begin(t, at, syscall.ENOSPC)
				err := saveWith(t, all, sc.save, false)
				harmless := strings.HasPrefix(what, "remove rank-00001-of-00002.part")
				if !harmless && (err == nil || !errors.Is(err, syscall.ENOSPC) && !strings.Contains(err.Error(), "no file of rank 1") || !strings.Contains(err.Error(), "free some room")) {
					t.Errorf("%v", err)
				}
				before := 0
				if len(sc.have) > 0 {
					before = slices.Max(sc.have)
				}
				step := sc.check(t, o.Dir, false, before)
				var save *SaveError
				if errors.As(err, &save) == (step == sc.save) && before != sc.save && !strings.HasPrefix(what, "syncdir") { // not flushed, but there
					t.Errorf("step %d is there, and Save says %v", step, err)
				}
				if err := saveWith(t, all, 300, false); err != nil { // the same savers go on
					t.Error(err)
				}
				checkNewest(t, o.Dir, 300)
				if f.at = -1; slices.ContainsFunc(names(t, o.Dir), func(n string) bool { return strings.Contains(n, "tmp") }) {
					t.Errorf("%q", names(t, o.Dir))
				}
			})
		}
	}
}

// The next Save returns the error of a save in the background, and saves all the same.
func TestNextSaveTellsWhatWentWrong(t *testing.T) {
	f := &faultyFS{at: -1, fault: syscall.EROFS, trash: t.TempDir(), unsaid: map[string]bool{}}
	s, err := newSaver(Options{Dir: t.TempDir(), Async: true}, f)
	if err != nil {
		t.Fatal(err)
	}
	f.at = len(f.calls) + 1
	if err := s.Save(metaOf(1), runsOf(model(), 1, 0, 1, false)); err != nil {
		t.Error(err)
	}
	err = s.Save(metaOf(2), runsOf(model(), 2, 0, 1, false))
	var save *SaveError
	if !errors.Is(err, syscall.EROFS) || !errors.As(err, &save) || save.Step != 1 || !strings.Contains(err.Error(), "choose a folder that can be written") {
		t.Error(err)
	}
	closed(t, s)
	checkNewest(t, s.o.Dir, 2)
	if list, err := List(s.o.Dir); err != nil || len(list) != 1 {
		t.Errorf("%q, %v", list, err)
	}
}
