//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/symgrad/symgrad/internal/invariants"
)

// No file of a checkpoint can block a reader or have no end.
func TestIrregularFilesAreRefusedAtOnce(t *testing.T) {
	const file = "model.safetensors"
	for name, place := range map[string]func(path string) error{
		"a named pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a device":     func(path string) error { return os.Symlink("/dev/zero", path) },
		"a folder":     func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		for _, of := range []string{manifestName, file} {
			o := Options{Dir: t.TempDir()}
			mustSave(t, o, 1)
			mustSave(t, o, 2)
			newest := filepath.Join(o.Dir, stepName(2))
			if err := errors.Join(os.Remove(filepath.Join(newest, of)), place(filepath.Join(newest, of))); err != nil {
				t.Fatal(err)
			}
			_, err := OpenAt(newest, VerifyAll)
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "not a regular file: it is "+name) {
				t.Errorf("%s for %s: %v", name, of, err)
			}
			if _, err := OpenFile(filepath.Join(newest, of)); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s for %s: OpenFile: %v", name, of, err)
			}
			checkNewest(t, o.Dir, 1)
			closed(t, mustNew(t, o)) // which looks at the manifests, too
		}
	}
}

// A manifest that is too long costs no memory, and is never written.
func TestManifestsAreBounded(t *testing.T) {
	o := Options{Dir: t.TempDir()}
	mustSave(t, o, 1)
	path := filepath.Join(o.Dir, stepName(1))
	if err := os.Truncate(filepath.Join(path, manifestName), maxManifest+1); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := OpenAt(path, VerifySizes)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("a manifest that is too long takes %d B", took)
	}
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "67108865 B, at most 67108864 are allowed") {
		t.Error(err)
	}
	if invariants.Enabled {
		return // encoding 64 MiB takes long under the race detector, and one goroutine does it
	}
	m := &Manifest{Config: strings.Repeat("x", maxManifest)}
	if _, err := m.encode(); !errors.Is(err, ErrInvalid) {
		t.Errorf("a manifest that no reader reads: %v", err)
	}
}

// An interrupted removal leaves no damage: no checkpoint is corrupt, and the next start or save
// removes the rest.
func TestARemovalThatIsCutShortIsNoDamage(t *testing.T) {
	for _, left := range []int{0, 1, 2, 3} { // files that are gone
		o := Options{Dir: t.TempDir(), Size: 2, Sharded: true}
		mustSave(t, o, 1)
		mustSave(t, o, 2)
		removed := filepath.Join(o.Dir, stepName(1)+removedSuffix)
		if err := os.Rename(filepath.Join(o.Dir, stepName(1)), removed); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(removed)
		if err != nil || len(entries) != 3 {
			t.Fatal(entries, err)
		}
		for _, e := range entries[:left] {
			if err := os.Remove(filepath.Join(removed, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
		if list, err := List(o.Dir); err != nil || !slices.Equal(list, []string{filepath.Join(o.Dir, stepName(2))}) {
			t.Errorf("%q, %v", list, err)
		}
		if _, err := OpenAt(removed, VerifyAll); !errors.Is(err, ErrNone) || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "it is being removed") {
			t.Error(err)
		}
		c := open(t, o.Dir)
		checkContent(t, c, 2)
		if rejected := c.Rejected(); len(rejected) > 0 {
			t.Errorf("%v", rejected)
		}
		closed(t, c)
		if left%2 == 0 {
			closed(t, mustNew(t, o))
		} else { // a saver that is open removes it with its next save
			all, err := newSavers(o, quick{})
			if err == nil {
				err = errors.Join(os.MkdirAll(removed, 0o777), saveWith(t, all, 3, false))
			}
			if err != nil {
				t.Error(err)
			}
			for _, s := range all {
				closed(t, s)
			}
		}
		if slices.ContainsFunc(names(t, o.Dir), func(name string) bool { return strings.Contains(name, "removed") }) {
			t.Errorf("%q", names(t, o.Dir))
		}
	}
}

// A folder that is being written is not reported as damaged.
func TestUnfinishedIsNotCorrupt(t *testing.T) {
	o := Options{Dir: t.TempDir()}
	mustSave(t, o, 1)
	tmp := filepath.Join(o.Dir, stepName(2)+".tmp")
	if err := os.Mkdir(tmp, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenAt(tmp, VerifyAll); !errors.Is(err, ErrUnfinished) || errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
	if _, err := OpenAt(filepath.Join(o.Dir, stepName(9)), VerifyAll); !errors.Is(err, ErrNone) || errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
}
