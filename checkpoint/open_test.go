package checkpoint

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Every damage to a file of the newest checkpoint is reported, and the previous one is opened.
func TestTornCheckpointsArePassedOver(t *testing.T) {
	const rank1, manifest = "rank-00001-of-00002.safetensors", "manifest.json"
	flip := func(at int) func(p []byte) []byte {
		return func(p []byte) []byte {
			p[(at+len(p))%len(p)] ^= 1
			return p
		}
	}
	for _, tt := range []struct {
		name, file string
		edit       func(p []byte) []byte // nil removes the file
		want       string
	}{
		{"no manifest", manifest, nil, "it has no manifest, so it was not finished"},
		{"empty manifest", manifest, func([]byte) []byte { return nil }, "manifest.json: it does not end with its hash"},
		{"short manifest", manifest, func(p []byte) []byte { return p[:len(p)-1] }, "it does not end with its hash: it is cut short or was edited"},
		{"edited manifest", manifest, func(p []byte) []byte { return bytes.Replace(p, []byte(`"stage": 1`), []byte(`"stage": 2`), 1) }, "its hash is"},
		{"no file", rank1, nil, rank1 + ": no such file or directory"},
		{"empty file", rank1, func([]byte) []byte { return nil }, rank1 + ": corrupt: 0 B are too short"},
		{"short file", rank1, func(p []byte) []byte { return p[:len(p)-1] }, rank1 + `: corrupt: tensor "half[512:1001]" ends at`},
		{"long file", rank1, func(p []byte) []byte { return append(p, 0) }, rank1 + ": corrupt: "},
		{"a bit of the data", rank1, flip(-1), rank1 + ": its CRC-32C is"},
		{"a bit in the middle", rank1, flip(3000), rank1 + ": its CRC-32C is"},
		{"a bit of the header's length", rank1, flip(1), rank1 + ": "},
		{"a bit of a name", rank1, func(p []byte) []byte { return bytes.Replace(p, []byte("half"), []byte("hale"), 1) }, `tensor half: ` + rank1 + ` has no entry "half[512:1001]"`},
		{"another shape", rank1, func(p []byte) []byte {
			return bytes.Replace(p, []byte(`"F32","shape":[305]`), []byte(`"U32","shape":[305]`), 1)
		}, "want 305 f32"},
		{"the file of another step", rank1, func([]byte) []byte { return nil }, "its CRC-32C is"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{Dir: t.TempDir(), Size: 2, Sharded: true}
			for _, step := range []int{100, 200, 900} {
				mustSave(t, o, step)
			}
			newest := filepath.Join(o.Dir, "step-00000900")
			if tt.name == "the file of another step" {
				other, err := os.ReadFile(filepath.Join(o.Dir, "step-00000200", rank1))
				if err != nil {
					t.Fatal(err)
				}
				tt.edit = func([]byte) []byte { return other }
			}
			if path := filepath.Join(newest, tt.file); tt.edit != nil {
				change(t, path, tt.edit)
			} else if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			c := open(t, o.Dir)
			checkContent(t, c, 200)
			rejected := c.Rejected()
			if len(rejected) != 1 || rejected[0].Path != newest || !errors.Is(rejected[0].Err, ErrCorrupt) || !strings.Contains(rejected[0].Err.Error(), tt.want) {
				t.Errorf("%v, want %q", rejected, tt.want)
			}
			closed(t, c)
			if _, err := Open(newest); !errors.Is(err, ErrCorrupt) {
				t.Errorf("asked for by name: %v", err)
			}
		})
	}
}

func TestOpenFindsNothing(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "absent")); !errors.Is(err, ErrNone) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "step-00000001")); !errors.Is(err, ErrNone) || errors.Is(err, ErrCorrupt) {
		t.Errorf("no folder of a checkpoint: %v", err)
	}
	for _, name := range []string{"step-1", "step-00000001.x", "step-00000001.old", "steps", "step-000000100", "step-99999999999999999999"} { // not ours
		if err := os.Mkdir(filepath.Join(dir, name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(dir); !errors.Is(err, ErrNone) || strings.Contains(err.Error(), "step-") {
		t.Errorf("an empty folder: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "step-00000007"), nil, 0o666); err != nil { // a file
		t.Fatal(err)
	}
	o := Options{Dir: dir, Size: 1}
	mustSave(t, o, 5)
	change(t, filepath.Join(dir, "step-00000005", "model.safetensors"), func(p []byte) []byte { return p[:len(p)/2] })
	_, err := Open(dir)
	if !errors.Is(err, ErrNone) || !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "step-00000005: model.safetensors: corrupt") {
		t.Errorf("one that is torn: %v", err)
	}
}

// Steps may be as large as an int, such as a time in nanoseconds.
func TestTheLargestStepIsFound(t *testing.T) {
	for _, step := range []int{math.MaxInt / 10, math.MaxInt} {
		o := Options{Dir: t.TempDir()}
		if err := saveAll(t, o, quick{}, step, true); err != nil {
			t.Fatal(err)
		}
		checkNewest(t, o.Dir, step)
	}
}

// A process without free descriptors cannot check checkpoints, so it does not resume from an older
// one, or from nothing.
func TestWhatCannotBeOpenedIsNotPassedOver(t *testing.T) {
	o := Options{Dir: t.TempDir(), Size: 1}
	mustSave(t, o, 1)
	paths, err := List(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	_, gone, err := openFirst(o.Dir, paths)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if gone || !errors.Is(err, unix.EMFILE) || errors.Is(err, ErrNone) {
		t.Errorf("gone %v, %v", gone, err)
	}
	for _, err := range []error{fs.ErrNotExist, unix.EIO, ErrCorrupt} {
		if denied(err) {
			t.Errorf("%v says nothing about this process", err)
		}
	}
}

// OpenAt makes only the requested checks: VerifySizes does not detect a changed byte, and Verify
// does later.
func TestVerifySizes(t *testing.T) {
	o := Options{Dir: t.TempDir(), Size: 3, Sharded: true}
	mustSave(t, o, 5)
	path := filepath.Join(o.Dir, "step-00000005")
	for _, name := range []string{"rank-00000-of-00003.safetensors", "rank-00002-of-00003.safetensors"} {
		change(t, filepath.Join(path, name), func(p []byte) []byte {
			p[len(p)-1] ^= 128
			return p
		})
	}
	c, err := OpenAt(path, VerifySizes)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, c)
	err = c.Verify()
	for _, want := range []string{"rank-00000-of-00003.safetensors: its CRC-32C is ", "rank-00002-of-00003.safetensors: its CRC-32C is "} {
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "rank-00001") {
		t.Errorf("%v: there is nothing wrong with rank 1's", err)
	}
}

// An open checkpoint stays readable, whatever a saver removes meanwhile.
func TestOpenCheckpointOutlivesItsFolder(t *testing.T) {
	o := Options{Dir: t.TempDir(), Size: 2, Sharded: true, Keep: 1}
	mustSave(t, o, 1)
	c := open(t, o.Dir)
	mustSave(t, o, 2)
	if got, err := List(o.Dir); err != nil || !slices.Equal(got, []string{filepath.Join(o.Dir, "step-00000002")}) {
		t.Errorf("%q, %v", got, err)
	}
	checkContent(t, c, 1)
	if err := c.Verify(); err != nil {
		t.Error(err)
	}
	closed(t, c)
	closed(t, c)
}

func TestWhatIsClosedIsNotRead(t *testing.T) {
	o := Options{Dir: t.TempDir()}
	mustSave(t, o, 7)
	c := open(t, o.Dir)
	path := filepath.Join(t.TempDir(), "model.safetensors")
	if _, _, err := c.Merge(path); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	name, element := model()[0].Name, elements(model()[0], 7, 0, 1)
	for _, closer := range []interface{ Close() error }{c, c, f, f} {
		if err := closer.Close(); err != nil {
			t.Errorf("Close of a %T: %v", closer, err)
		}
	}
	_, _, merge := c.Merge(path)
	for call, err := range map[string]error{
		"Verify": c.Verify(), "Merge": merge, "Read": c.Read(name, 0, element), "File.Read": f.Read(name, 0, element),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s of a closed checkpoint: %v, want ErrClosed", call, err)
		}
	}
}

func TestKeepLeavesTheNewest(t *testing.T) {
	o := Options{Dir: t.TempDir(), Size: 1, Keep: 2}
	steps := func() (names []string) {
		list, err := List(o.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range list {
			names = append(names, filepath.Base(path))
		}
		return names
	}
	for _, step := range []int{10, 20, 30} {
		mustSave(t, o, step)
	}
	if got := steps(); !slices.Equal(got, []string{"step-00000030", "step-00000020"}) {
		t.Errorf("%q", got)
	}
	// A torn checkpoint does not count. It is not removed while it is among the newest, so that a
	// user can inspect it.
	change(t, filepath.Join(o.Dir, "step-00000030", "model.safetensors"), func(p []byte) []byte { return p[1:] })
	mustSave(t, o, 40)
	if got := steps(); !slices.Equal(got, []string{"step-00000040", "step-00000030", "step-00000020"}) {
		t.Errorf("%q", got)
	}
	// Resumed from an earlier step: later checkpoints stay, and the new one is not removed.
	mustSave(t, o, 25)
	if got := steps(); !slices.Equal(got, []string{"step-00000040", "step-00000030", "step-00000025", "step-00000020"}) {
		t.Errorf("%q", got)
	}
	mustSave(t, o, 50)
	mustSave(t, o, 60)
	if got := steps(); !slices.Equal(got, []string{"step-00000060", "step-00000050"}) {
		t.Errorf("%q", got)
	}
	checkNewest(t, o.Dir, 60)
}

// New returns an error for an unusable folder, or Save if that happens later.
func TestFoldersThatCannotBeUsed(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Dir: filepath.Join(file, "below")}); err == nil || !strings.Contains(err.Error(), "checkpoint: folder "+file+"/below: ") {
		t.Errorf("a folder below a file: %v", err)
	}
	dir := filepath.Join(root, "gone")
	s, err := New(Options{Dir: dir})
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	err = s.Save(metaOf(1), runsOf(model(), 1, 0, 1, false))
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "the folder must exist, and all ranks must see it") {
		t.Errorf("a folder that is gone: %v", err)
	}
	if _, err := newSaver(Options{Dir: root}, readOnly{}); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "choose a folder that can be written") {
		t.Errorf("a folder that cannot be written: %v", err)
	} else if strings.Count(err.Error(), "choose a folder") != 1 {
		t.Errorf("said twice: %v", err)
	}
	s, err = newSaver(Options{Dir: root, Size: 2, Sharded: true}, vanishing{}) // which would wait for rank 1
	if err != nil {
		t.Fatal(err)
	}
	err = s.Save(metaOf(1), runsOf(model(), 1, 0, 2, false))
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "if another run saves to "+root+", give it a folder of its own") {
		t.Errorf("a folder that is removed during a save: %v", err)
	}
}

// vanishing is a disk where another program removes the unfinished save.
type vanishing struct{ disk }

func (d vanishing) SyncDir(name string) error {
	if strings.HasSuffix(name, ".tmp") {
		return os.RemoveAll(name)
	}
	return d.disk.SyncDir(name)
}

// A checkpoint may have been moved to another disk, with a link in its place.
func TestLinksAreFollowed(t *testing.T) {
	o, other := Options{Dir: t.TempDir(), Keep: 1}, t.TempDir()
	mustSave(t, o, 5)
	const name = "step-00000005"
	err := os.Rename(filepath.Join(o.Dir, name), filepath.Join(other, name))
	if err == nil {
		err = os.Symlink(filepath.Join(other, name), filepath.Join(o.Dir, name))
	}
	if err != nil {
		t.Fatal(err)
	}
	checkNewest(t, o.Dir, 5)
	mustSave(t, o, 6)
	if got := names(t, o.Dir); len(got) != 3 || slices.Contains(got, name) {
		t.Errorf("%q", got)
	}
}

// readOnly is a disk that rejects writes.
type readOnly struct{ disk }

func (readOnly) Create(name string) (file, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
}

// hasty is a disk where rank 0 has committed and renamed the folder as soon as the part of rank 1
// exists.
type hasty struct{ disk }

func (d hasty) Rename(from, to string) error {
	if err := d.disk.Rename(from, to); err != nil || filepath.Ext(to) != partSuffix {
		return err
	}
	staging := filepath.Dir(to)
	return os.Rename(staging, filepath.Join(filepath.Dir(staging), "step-00000001"))
}

func TestRank0MayCommitBeforeTheOthersAreDone(t *testing.T) {
	o := Options{Dir: t.TempDir(), Rank: 1, Size: 2, Sharded: true}
	s, err := newSaver(o, hasty{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Save(metaOf(1), runsOf(model(), 1, 1, 2, false)); err != nil {
		t.Error(err)
	}
	if got := names(t, o.Dir); !slices.Contains(got, "step-00000001/"+partName(1, 2)) {
		t.Errorf("%q", got)
	}
}
