package checkpoint

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"

	"github.com/symgrad/symgrad/tensor"
)

func TestMergeIsOnePlainFile(t *testing.T) {
	for _, tt := range []struct {
		only []Role
		want []string // in the order of the file
	}{
		{nil, []string{"seen", "scale", "b", "w", "half", "nothing"}},
		{[]Role{EMA}, []string{"ema/w"}},
		{[]Role{Param, State}, []string{"b", "exp_avg/w", "exp_avg_sq/w", "w", "half"}},
	} {
		o := Options{Dir: t.TempDir(), Size: 3, Sharded: true}
		mustSave(t, o, 12)
		c := open(t, o.Dir)
		path := filepath.Join(o.Dir, "model.safetensors")
		n, bytesWritten, err := c.Merge(path, tt.only...)
		if err != nil {
			t.Fatal(err)
		}
		f, err := OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		var total int64
		for _, e := range f.Header().Entries {
			got = append(got, e.Name)
			want, _ := c.Lookup(e.Name)
			p := bufferOf(t, make([]byte, e.Bytes), want.DType)
			if err := f.Read(e.Name, 0, p); err != nil || !bytes.Equal(p.Raw(), content(want, 12)) || !reflect.DeepEqual(append([]int{}, e.Shape...), append([]int{}, want.Shape...)) {
				t.Errorf("%s: %v", e.Name, err)
			}
			total += e.Bytes
		}
		if !reflect.DeepEqual(got, tt.want) || n != len(got) || total != bytesWritten || f.Header().Metadata["format"] != "pt" || f.Header().Metadata["step"] != "12" {
			t.Errorf("%v: %q, %d, %d B, %v", tt.only, got, n, bytesWritten, f.Header().Metadata)
		}
		closed(t, f)
		closed(t, c)
	}
}

// A tensor larger than the copy buffer is copied whole.
func TestMergeOfALargeTensor(t *testing.T) {
	big := Tensor{Name: "big", Role: Param, DType: tensor.F32, Shape: []int{3, chunk/4 + 5}}
	dir := t.TempDir()
	all := mustSavers(t, Options{Dir: dir, Size: 2, Sharded: true, Async: true})
	for rank, s := range all {
		at, n := RunShare(big.Len(), rank, 2)
		if err := s.Save(Meta{}, []Run{{Tensor: big, Offset: at, Len: n, Data: elements(big, 0, at, n)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(all[0].Close(), all[1].Close()); err != nil {
		t.Fatal(err)
	}
	c := open(t, dir)
	defer closed(t, c)
	path := filepath.Join(dir, "x")
	if _, _, err := c.Merge(path); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, f)
	got := bufferOf(t, make([]byte, big.Bytes()), big.DType)
	if err := f.Read("big", 0, got); err != nil || !bytes.Equal(got.Raw(), content(big, 0)) {
		t.Errorf("not the saved elements: %v", err)
	}
	if _, _, err := c.Merge(path, EMA); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

// A merge does not replace a file of the checkpoint, under any name.
func TestMergeDoesNotReplaceTheCheckpoint(t *testing.T) {
	for _, sharded := range []bool{false, true} {
		o := Options{Dir: t.TempDir(), Size: 2, Sharded: sharded}
		if err := saveAll(t, o, quick{}, 3, true); err != nil {
			t.Fatal(err)
		}
		c := open(t, o.Dir)
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(c.Path(), link); err != nil {
			t.Fatal(err)
		}
		own := filepath.Join(t.TempDir(), "own")
		if err := os.Symlink(filepath.Join(c.Path(), c.Manifest().Files[0].Name), own); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.Merge(own); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
		for _, dir := range []string{c.Path(), link} {
			for _, name := range []string{c.Manifest().Files[0].Name, manifestName} {
				if _, _, err := c.Merge(filepath.Join(dir, name)); !errors.Is(err, ErrInvalid) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		if _, _, err := c.Merge(filepath.Join(link, "merged.safetensors")); err != nil {
			t.Error(err)
		}
		closed(t, c)
		checkNewest(t, o.Dir, 3)
	}
}

// A name that ends with a slash is not a file's.
func TestFileIsNotWrittenIntoAFolderOfItsName(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	if err := os.Mkdir(out, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(out+"/", nil, nil); err == nil {
		t.Errorf("no error, and there is %q", names(t, dir))
	}
	if got := names(t, dir); !reflect.DeepEqual(got, []string{"out/"}) {
		t.Errorf("%q", got)
	}
}

// A link to a file, as /dev/stdout may be, is not replaced: its target is the new file.
func TestFileIsWrittenWhereALinkLeads(t *testing.T) {
	dir := t.TempDir()
	link, old := filepath.Join(dir, "link"), filepath.Join(dir, "old")
	if err := errors.Join(os.WriteFile(old, []byte("old"), 0o666), os.Symlink("old", link)); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(link, nil, []NamedTensor{{Name: "x", Shape: []int{2}, Data: tensor.Of([]float32{1, 2})}}); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(link); err != nil || to != "old" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	f, err := OpenFile(old)
	if err != nil {
		t.Fatal(err)
	}
	closed(t, f)
}

// A pipe is written to, and not replaced.
func TestFileIsWrittenIntoAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip("no pipe in a folder: ", err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR, 0) // there is a reader
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if err := WriteFile(path, nil, []NamedTensor{{Name: "x", Shape: []int{2}, Data: tensor.Of([]float32{1, 2})}}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Fatalf("%v, %v", info, err)
	}
	got := make([]byte, 1024)
	n, err := pipe.Read(got)
	if err != nil || !bytes.HasSuffix(got[:n], tensor.Of([]float32{1, 2}).Raw()) {
		t.Errorf("%q, %v", got[:n], err)
	}
}
