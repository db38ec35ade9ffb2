package dl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// open opens a library of the system's own. Only a platform without dlopen may skip.
func open(t testing.TB, sonames ...string) *Library {
	t.Helper()
	lib, err := Open(Search{Name: "system", Sonames: sonames})
	if errors.Is(err, ErrUnsupported) {
		t.Skipf("no dlopen on this platform: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return lib
}

func libc(t testing.TB) *Library { return open(t, "libc.so.6") }

func libm(t testing.TB) *Library { return open(t, "libm.so.6") }

func TestValidateNamesTheMistake(t *testing.T) {
	tests := []struct {
		name   string
		search Search
		want   string // empty: valid
	}{
		{"soname", Search{Name: "x", Sonames: []string{"libx.so"}}, ""},
		{"override", Search{Name: "x", Override: "/lib/libx.so"}, ""},
		{"dirs", Search{Name: "x", Sonames: []string{"libx.so"}, Dirs: []string{"/opt/*/lib", "/a[bc]"}}, ""},
		{"no name", Search{Sonames: []string{"libx.so"}}, "dl: search without a name"},
		{"nothing to look for", Search{Name: "x", Dirs: []string{"/lib"}}, "dl: x: the search has neither a path nor a soname"},
		{"empty soname", Search{Name: "x", Sonames: []string{"libx.so", ""}}, "dl: x: empty soname"},
		{"NUL in override", Search{Name: "x", Override: "/lib\x00/libx.so"}, `dl: x: NUL byte in "/lib\x00/libx.so"`},
		{"NUL in soname", Search{Name: "x", Sonames: []string{"a\x00"}}, `dl: x: NUL byte in "a\x00"`},
		{"NUL in dir", Search{Name: "x", Sonames: []string{"a"}, Dirs: []string{"/\x00"}}, `dl: x: NUL byte in "/\x00"`},
		{"bad pattern", Search{Name: "x", Sonames: []string{"a"}, Dirs: []string{"/a[b"}}, `dl: x: directory pattern "/a[b": syntax error in pattern`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := tt.search.Validate(); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("Validate: %q, want %q", got, tt.want)
			}
			if _, err := Open(tt.search); tt.want != "" && (err == nil || err.Error() != tt.want) {
				t.Errorf("Open: %v, want %q", err, tt.want)
			}
		})
	}
}

func TestCandidatesAreOverrideAloneOrSonamesThenDirs(t *testing.T) {
	root := t.TempDir()
	touch := func(names ...string) {
		for _, n := range names {
			file := filepath.Join(root, n)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	touch("py2/nvidia/nccl/lib/libn.so.2", "py1/nvidia/nccl/lib/libn.so.2", "py1/nvidia/nccl/lib/libn.so.1", "flat/libn.so.1")
	in := func(n string) string { return filepath.Join(root, n) }
	s := Search{Name: "n", Sonames: []string{"libn.so.2", "libn.so.1"}, Dirs: []string{in("*/nvidia/*/lib"), in("absent"), in("flat")}}

	want := []string{
		"libn.so.2", "libn.so.1",
		in("py1/nvidia/nccl/lib/libn.so.2"), in("py2/nvidia/nccl/lib/libn.so.2"),
		in("py1/nvidia/nccl/lib/libn.so.1"), in("flat/libn.so.1"),
	}
	if diff := cmp.Diff(want, s.candidates()); diff != "" {
		t.Errorf("candidates (-want +got):\n%s", diff)
	}
	s.Override = "/opt/libn.so"
	if diff := cmp.Diff([]string{"/opt/libn.so"}, s.candidates()); diff != "" {
		t.Errorf("candidates with override (-want +got):\n%s", diff)
	}
}

func TestOpenListsEverythingItTried(t *testing.T) {
	libc(t) // skips where there is no dlopen
	dir := t.TempDir()
	broken := filepath.Join(dir, "libabsent-b.so.2")
	if err := os.WriteFile(broken, []byte("this is not a shared library"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Open(Search{Name: "thing", Sonames: []string{"libabsent-a.so.1", "libabsent-b.so.2"}, Dirs: []string{dir}})
	if !errors.Is(err, ErrNotFound) {
		t.Fatalf("got %v, want ErrNotFound", err)
	}
	for _, want := range []string{
		"dl: thing: library not found, tried libabsent-a.so.1: cannot open shared object file",
		"; libabsent-b.so.2: cannot open shared object file",
		"; " + broken + ": file too short",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("message lacks %q:\n%s", want, err)
		}
	}
	if n := strings.Count(err.Error(), "libabsent-a.so.1"); n != 1 {
		t.Errorf("libabsent-a.so.1 is named %d times:\n%s", n, err)
	}
}

func TestOpenNeverSkipsAnOverride(t *testing.T) {
	real := libm(t).Path()
	text := filepath.Join(t.TempDir(), "libtext.so")
	if err := os.WriteFile(text, []byte(strings.Repeat("no ELF magic here\n", 64)), 0o755); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, override, want string }{
		{"absent file", "/absent/libm.so.6", "/absent/libm.so.6: cannot open shared object file"},
		{"directory", filepath.Dir(text), "cannot read file data: Is a directory"},
		{"not a library", text, "invalid ELF header"},
		{"absent soname", "libabsent.so.9", "libabsent.so.9: cannot open shared object file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			lib, err := Open(Search{Name: "m", Override: tt.override, Sonames: []string{"libm.so.6"}, Dirs: []string{filepath.Dir(real)}})
			if lib != nil || !errors.Is(err, ErrNotFound) {
				t.Fatalf("got %v, %v, want ErrNotFound", lib, err)
			}
			if !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "at the path that was set") {
				t.Errorf("message %q lacks %q", err, tt.want)
			}
		})
	}
}

func TestOpenTakesAnOverrideThatLoads(t *testing.T) {
	real := libm(t).Path()
	for _, override := range []string{real, "libm.so.6"} {
		lib, err := Open(Search{Name: "m", Override: override, Sonames: []string{"libabsent.so"}})
		if err != nil {
			t.Fatal(err)
		}
		if lib.Path() != real {
			t.Errorf("override %s: path %s, want %s", override, lib.Path(), real)
		}
	}
}

func TestOpenFindsALibraryInAPattern(t *testing.T) {
	real := libm(t).Path()
	root := t.TempDir()
	dir := filepath.Join(root, "site-packages", "nvidia", "math", "lib")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, filepath.Join(dir, "libonlyhere.so.3")); err != nil {
		t.Fatal(err)
	}
	lib, err := Open(Search{
		Name:    "math",
		Sonames: []string{"libonlyhere.so.4", "libonlyhere.so.3"},
		Dirs:    []string{filepath.Join(root, "*", "nvidia", "*", "lib")},
		Global:  true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if lib.Path() != real {
		t.Errorf("path %s, want the link's target %s", lib.Path(), real)
	}
	if _, err := lib.Lookup("cos"); err != nil {
		t.Error(err)
	}
}

func TestOpenBesideTakesTheFolderBeforeTheLoader(t *testing.T) {
	real := libm(t).Path()
	dir := t.TempDir()
	main := filepath.Join(dir, "libmain.so.1")
	lib := &Library{path: main}
	if _, err := lib.OpenBeside("part", false, "libabsent-part.so.1", "libabsent-part.so"); !errors.Is(err, ErrNotFound) ||
		!strings.Contains(err.Error(), filepath.Join(dir, "libabsent-part.so.1")) || !strings.Contains(err.Error(), "; libabsent-part.so: ") {
		t.Errorf("got %v, want ErrNotFound with both names, there and by the loader", err)
	}
	if part, err := lib.OpenBeside("part", false, "libabsent-part.so.1", "libc.so.6"); err != nil || filepath.Base(part.Path()) != "libc.so.6" {
		t.Errorf("got %v, %v, want that of the loader", part, err)
	}
	if err := os.Symlink(real, filepath.Join(dir, "libc.so.6")); err != nil { // another library by the name
		t.Fatal(err)
	}
	if part, err := lib.OpenBeside("part", false, "libc.so.6"); err != nil || part.Path() != real {
		t.Errorf("got %v, %v, want %s, which lies beside", part, err, real)
	}
	if _, err := lib.OpenBeside("part", false); err == nil {
		t.Error("no name is no error")
	}
}

// The loader keeps error text per OS thread; a goroutine that moved between dlopen and dlerror
// would read another's.
func TestConcurrentFailingOpensKeepTheirOwnText(t *testing.T) {
	libc(t)
	const goroutines, each = 32, 200
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				soname := fmt.Sprintf("libabsent-%d-%d.so", g, i)
				_, err := Open(Search{Name: "absent", Sonames: []string{soname}})
				want := fmt.Sprintf("dl: absent: library not found, tried %s: cannot open shared object file: No such file or directory", soname)
				if err == nil || err.Error() != want {
					t.Errorf("got %v, want %q", err, want)
					return
				}
			}
		})
	}
	wg.Wait()
}
