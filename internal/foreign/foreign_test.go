//go:build unix

package foreign

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// write makes a file.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpenRefusesIrregularFilesAtOnce(t *testing.T) {
	dir := t.TempDir()
	pipe, socket, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "socket"), filepath.Join(dir, "link")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		defer syscall.Close(fd)
		err = errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: socket}), syscall.Mkfifo(pipe, 0o600), os.Symlink("/dev/zero", link))
	}
	if err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]string{dir: "a folder", pipe: "a named pipe", socket: "a socket", link: "a device", "/dev/zero": "a device"} {
		for name, open := range map[string]func() error{
			"Open":     func() error { _, err := Open(path); return err },
			"ReadFile": func() error { _, err := ReadFile(path, 10); return err },
		} {
			var at *fs.PathError
			err := open()
			if !errors.Is(err, ErrIrregular) || !errors.As(err, &at) || at.Path != path || !strings.HasSuffix(err.Error(), "it is "+kind) {
				t.Errorf("%s of %s: %v", name, kind, err)
			}
		}
	}
	if _, err := Open(pipe + "x"); !errors.Is(err, fs.ErrNotExist) || strings.Count(err.Error(), pipe) != 1 {
		t.Error(err)
	}
	if _, err := ReadNamed(dir, 1<<20); !errors.Is(err, syscall.EISDIR) {
		t.Error(err)
	}
}

func TestWholeFilesAreBounded(t *testing.T) {
	path := write(t, "12345")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func(limit int64) ([]byte, error){
		"ReadFile":           func(limit int64) ([]byte, error) { return ReadFile(path, limit) },
		"ReadFile of a link": func(limit int64) ([]byte, error) { return ReadFile(link, limit) },
		"ReadNamed":          func(limit int64) ([]byte, error) { return ReadNamed(path, limit) },
		"ReadAll":            func(limit int64) ([]byte, error) { return ReadAll(strings.NewReader("12345"), limit) },
	} {
		for _, limit := range []int64{5, 6, 1 << 40} {
			if text, err := read(limit); string(text) != "12345" || err != nil {
				t.Errorf("%s, at most %d: %q, %v", name, limit, text, err)
			}
		}
		for _, limit := range []int64{0, 4} {
			if text, err := read(limit); !errors.Is(err, ErrTooLong) || text != nil {
				t.Errorf("%s, at most %d: %q, %v", name, limit, text, err)
			}
		}
	}
	if _, err := ReadNamed("/dev/zero", 1000); !errors.Is(err, ErrTooLong) || !strings.Contains(err.Error(), "read /dev/zero: too long: more than the 1000 B") {
		t.Error(err)
	}
}

// A pipe that the user names is read to its end.
func TestReadNamedReadsPipes(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadNamed(fmt.Sprint("/dev/fd/", r.Fd()), 10); string(text) != "text" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

func TestPrivateIsOfOneUser(t *testing.T) {
	path := write(t, "")
	of := func() error {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return Private(info)
	}
	for mode, private := range map[fs.FileMode]bool{0o600: true, 0o644: true, 0o755: true, 0o620: false, 0o602: false, 0o666: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if err := of(); (err == nil) != private {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("only root can give files to another user")
	}
	if err := errors.Join(os.Chmod(path, 0o600), os.Chown(path, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	if err := of(); err == nil || !strings.Contains(err.Error(), "user 65534 owns it, and this process runs as user 0") {
		t.Error(err)
	}
}

func TestSniffKnowsWhatIsDownloadedByMistake(t *testing.T) {
	for begin, want := range map[string]string{
		"version https://git-lfs.github.com/spec/v1\noid": "a Git LFS pointer",
		" \n<!doctype HTML>":                              "an HTML page",
		"\ufeff<html lang=en>":                            "an HTML page",
		"<?xml version='1.0'?>":                           "an XML text",
		"{\"error\":1}":                                   "a JSON text",
		"\x1f\x8b\x08\x00":                                "compressed by gzip",
		"\x28\xb5\x2f\xfd":                                "compressed by zstd",
		"PK\x03\x04":                                      "a zip archive",
		"\x80\x02\x8a\x0al":                               "a Python pickle",
		"\x89HDF\r\n\x1a\n":                               "an HDF5 file",
		strings.Repeat("\x00", 64):                        "zeros",
	} {
		if got := Sniff([]byte(begin)); !strings.HasPrefix(got, want) {
			t.Errorf("%q is %q, want %q", begin, got, want)
		}
	}
	for _, begin := range []string{"", "\x00", "{\x00\x00\x00\x00\x00\x00\x00{}", "@\x00\x00\x00\x00\x00\x00\x00{\"w\":", "words"} {
		if got := Sniff([]byte(begin)); got != "" {
			t.Errorf("%q is %q", begin, got)
		}
	}
}
