package nccl

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/dl/dltest"
)

// fresh reports whether the test may go on here: no NCCL is loaded, which other tests of this
// process do. Where one is, the test runs in a process of its own.
func fresh(t *testing.T) bool {
	t.Helper()
	files, err := processFiles()
	if err != nil {
		t.Fatal(err)
	}
	return len(files) == 0 || dltest.Alone(t)
}

// An unusable library is refused by its version, before its other functions are looked up.
func TestLibrariesThatAreTooOldAndSecondOnesAreRefused(t *testing.T) {
	if !dltest.Alone(t) {
		return
	}
	old := dltest.Compile(t, "libnccl.so.2", "testdata/version.c", "-DVERSION=2708") // 2.7.8, of the time when versions had four digits
	_, err := Open(Config{Path: old})
	if !errors.Is(err, ErrLibrary) || !IsUnavailable(err) {
		t.Fatalf("error %v, want ErrLibrary", err)
	}
	for _, want := range []string{old, "2.7.8", leastVersion.String()} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
	// The first is loaded for good: by its path it is refused again, and without a path it is the
	// one that is taken.
	for _, path := range []string{old, ""} {
		if _, err := Open(Config{Path: path}); !errors.Is(err, ErrLibrary) || !strings.Contains(err.Error(), "2.7.8") {
			t.Errorf("Path %q: error %v, want ErrLibrary that names the version", path, err)
		}
	}
	other := dltest.Compile(t, "libnccl.so.2", "testdata/version.c", "-DVERSION=22803")
	if _, err := Open(Config{Path: other}); !errors.Is(err, ErrLibrary) || !strings.Contains(err.Error(), old) || !strings.Contains(err.Error(), other) {
		t.Errorf("error %v, want ErrLibrary that names %s and %s", err, old, other)
	}
}

func TestLibraryThatLacksAFunctionIsRefused(t *testing.T) {
	if !dltest.Alone(t) {
		return
	}
	path := dltest.Compile(t, "libnccl.so.2", "testdata/version.c", "-DVERSION=22803")
	if _, err := Open(Config{Path: path}); !errors.Is(err, ErrLibrary) || !errors.Is(err, dl.ErrUnsupported) || !strings.Contains(err.Error(), "NCCL 2.28.3") {
		t.Errorf("error %v, want ErrLibrary that names the version and what is missing", err)
	}
}

func TestMissingLibraryIsAnErrorWithEverythingThatWasTried(t *testing.T) {
	if !fresh(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "libnccl.so.2")
	_, err := Open(Config{Path: path})
	if !errors.Is(err, ErrLibrary) || !errors.Is(err, dl.ErrNotFound) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want ErrLibrary that names %s", err, path)
	}
	if !IsUnavailable(err) || IsUnavailable(dist.ErrInvalid) {
		t.Error("IsUnavailable does not tell a missing library from a mistake")
	}
}

func TestFileThatIsNoLibraryIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libnccl.so.2")
	if err := os.WriteFile(path, []byte("not an object"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Path: path}); !errors.Is(err, ErrLibrary) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want ErrLibrary that names %s", err, path)
	}
}

// NCCL's environment is C's own.
func TestNCCLIsToldWhatItShallFind(t *testing.T) {
	if err := setEnviron(); err != nil {
		t.Fatal(err)
	}
	lib, err := dl.Open(dl.Search{Name: "libc", Sonames: []string{"libc.so.6"}})
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		getenv func(name string) string `dl:"getenv"`
	}
	if err := lib.Bind(&c); err != nil {
		t.Fatal(err)
	}
	for _, v := range ncclEnviron {
		if got := c.getenv(v.name); got != v.value {
			t.Errorf("%s=%q, want %q", v.name, got, v.value)
		}
	}
}

// Any library will do that is on every machine and is not NCCL.
func TestLibraryThatIsNotNCCLIsRefused(t *testing.T) {
	if !fresh(t) {
		return
	}
	_, err := Open(Config{Path: "libm.so.6"})
	if !errors.Is(err, ErrLibrary) || !errors.Is(err, dl.ErrUnsupported) || !strings.Contains(err.Error(), "ncclGetVersion") {
		t.Errorf("error %v, want ErrLibrary that names the missing symbol", err)
	}
}

const mapsText = `55d0 r--p 00000000 08:01 1234 /usr/bin/symgrad
7f10-7f20 r--p 00000000 08:01 77 /opt/a b/libnccl.so.2.28.3
7f20-7f30 r-xp 00010000 08:01 77 /opt/a b/libnccl.so.2.28.3
7f30-7f40 r-xp 00010000 08:01 78 /opt/libnccl-net.so
7f40-7f50 rw-p 00000000 00:00 0
7f50-7f60 rw-p 00000000 00:00 0 [heap]
`

func TestLoadedLibrariesAreFoundInTheMaps(t *testing.T) {
	one, err := loadedFiles(strings.NewReader(mapsText))
	if err != nil || len(one) != 1 || one[0].path != "/opt/a b/libnccl.so.2.28.3" || onlyOne(one) != nil {
		t.Errorf("found %v, error %v; want one file", one, err)
	}
	// The same inode on another device is another file; a deleted file is still loaded.
	two, err := loadedFiles(strings.NewReader(mapsText + "7f60-7f70 r--p 00000000 08:02 77 /venv/nvidia/nccl/lib/libnccl.so.2 (deleted)\n"))
	if err != nil || len(two) != 2 {
		t.Fatalf("found %v, error %v; want two files", two, err)
	}
	err = onlyOne(two)
	if !errors.Is(err, ErrLibrary) || !strings.Contains(err.Error(), "/opt/a b/libnccl.so.2.28.3 and /venv/nvidia/nccl/lib/libnccl.so.2:") {
		t.Errorf("error %v, want ErrLibrary that names both files", err)
	}
	if _, err := wanted("", two); !errors.Is(err, ErrLibrary) {
		t.Errorf("error %v, want ErrLibrary", err)
	}
	if files, err := processFiles(); err != nil || len(files) > 1 {
		t.Errorf("this process has loaded %v, error %v", files, err)
	}
}

// The loaded library is taken; another file is refused before it is loaded.
func TestSecondLibraryIsRefused(t *testing.T) {
	dir := t.TempDir()
	have, other, link := filepath.Join(dir, "libnccl.so.2.28.3"), filepath.Join(dir, "other.so"), filepath.Join(dir, "libnccl.so.2")
	for _, f := range []string{have, other} {
		if err := os.WriteFile(f, []byte(f), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(have, link); err != nil {
		t.Fatal(err)
	}
	loaded := []loadedFile{{path: have, inode: "08:01 77"}}
	for _, file := range []string{"", "libnccl.so.2", have, link} {
		if got, err := wanted(file, loaded); err != nil || got != have {
			t.Errorf("%q: %s, error %v; want the loaded one", file, got, err)
		}
	}
	for _, file := range []string{other, filepath.Join(dir, "none.so")} {
		_, err := wanted(file, loaded)
		if !errors.Is(err, ErrLibrary) || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), have) {
			t.Errorf("%q: error %v, want ErrLibrary that names both", file, err)
		}
	}
	if got, err := wanted(other, nil); err != nil || got != other {
		t.Errorf("%s, error %v; want what is asked for", got, err)
	}
}

func TestErrorsSayEverythingAndMatchWhatIsLeftToDo(t *testing.T) {
	e := &Error{
		Call: "ncclAllReduce", Code: 4, Text: "invalid argument", Detail: "why", What: "allreduce f32[3]", Rank: 1, Size: 4,
		Version: 22803, Path: "/lib/libnccl.so.2", Hint: "do this",
	}
	want := "ncclAllReduce for allreduce f32[3] on rank 1/4: invalid argument (code 4): why; NCCL 2.28.3 (/lib/libnccl.so.2); do this"
	if e.Error() != want {
		t.Errorf("%q, want %q", e.Error(), want)
	}
	short := &Error{Call: "ncclGetUniqueId", Code: 2, Text: "system error", Rank: -1, Version: 22803, Path: "x"}
	if short.Error() != "ncclGetUniqueId: system error (code 2); NCCL 2.28.3 (x)" {
		t.Errorf("%q", short.Error())
	}
	for code, sentinel := range map[int]error{
		1: dist.ErrAborted, 2: dist.ErrAborted, 3: dist.ErrAborted, 4: dist.ErrInvalid, 5: dist.ErrInvalid, 6: dist.ErrAborted,
		8: dist.ErrTimeout,
	} {
		if err := error(&Error{Code: code}); !errors.Is(err, sentinel) || sentinel != dist.ErrInvalid && errors.Is(err, dist.ErrInvalid) {
			t.Errorf("code %d does not match %v alone", code, sentinel)
		}
	}
}

func TestHintsNameTheRemedy(t *testing.T) {
	free := func() (uint64, error) { return 3 << 20, nil }
	broken := func() (uint64, error) { return 0, errors.New("gone") }
	for _, c := range []struct {
		code   int32
		detail string
		free   func() (uint64, error)
		want   string
	}{
		{5, "Duplicate GPU detected : rank 0 and rank 1", free, "GPU of its own"},
		{2, "Error: failed to extend /dev/shm/nccl-xyz", free, "/dev/shm has 3 MiB left"},
		{2, "", free, "/dev/shm has 3 MiB left; NCCL_DEBUG=WARN"},
		{2, "", broken, "/dev/shm: gone"},
		{1, "Cuda failure 2 'out of memory'", free, "GPU's memory is full"},
		{1, "pidfd_getfd: Operation not permitted", free, "SYS_PTRACE"},
	} {
		if got := hint(c.code, c.detail, c.free); !strings.Contains(got, c.want) {
			t.Errorf("%d %q: %q, want %q in it", c.code, c.detail, got, c.want)
		}
	}
	if got := hint(4, "", free); got != "" {
		t.Errorf("a hint where there is none: %q", got)
	}
}
