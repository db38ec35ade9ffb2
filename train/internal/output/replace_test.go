package output

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestReplaceFileIsAllOrNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, text := range []string{"first", "second, longer", "3"} {
		if err := Replace(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if err := Replace(filepath.Join(dir, "none", "file"), nil); err == nil {
		t.Error("a file in a folder that is not there")
	}
	target := filepath.Join(dir, "folder")
	if err := os.Mkdir(target, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Replace(target, []byte("x")); err == nil {
		t.Error("a folder was replaced")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// A pipe is written to and not replaced by a file: replacing the null device would break other
// programs.
func TestReplaceFileLeavesAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip("no pipe in a folder: ", err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR, 0) // there is a reader
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if err := Replace(path, []byte("text")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Fatalf("%v, %v", info, err)
	}
	got := make([]byte, 16)
	if n, err := pipe.Read(got); err != nil || string(got[:n]) != "text" {
		t.Errorf("%q, %v", got[:n], err)
	}
}

// A link stays, and leads to the new text: replacing /dev/stdout would break other programs.
func TestReplaceFileLeavesALink(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, []byte("old"), 0o600), os.Symlink("file", link)); err != nil {
		t.Fatal(err)
	}
	if err := Replace(link, []byte("text")); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(link); err != nil || to != "file" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "text" {
		t.Errorf("%q, %v", got, err)
	}
}
