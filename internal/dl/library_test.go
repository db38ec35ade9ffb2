package dl

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestPathIsTheMappedFile(t *testing.T) {
	lib := libm(t)
	if !filepath.IsAbs(lib.Path()) {
		t.Fatalf("path %q is not absolute", lib.Path())
	}
	if info, err := os.Lstat(lib.Path()); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%s: %v, %v, want a regular file", lib.Path(), info, err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(maps), lib.Path()+"\n") {
		t.Errorf("%s is not mapped into this process", lib.Path())
	}
	if want := "system (" + lib.Path() + ")"; lib.String() != want || lib.Name() != "system" {
		t.Errorf("String %q, Name %q, want %q and system", lib, lib.Name(), want)
	}
}

func TestLookupOfAMissingSymbolNamesLibraryPathAndSymbol(t *testing.T) {
	lib := libc(t)
	for _, symbol := range []string{"no_such_function", "", "la\x00bs"} {
		addr, err := lib.Lookup(symbol)
		if addr != 0 || !errors.Is(err, ErrUnsupported) {
			t.Fatalf("Lookup(%q) = %#x, %v, want ErrUnsupported", symbol, addr, err)
		}
		if !strings.HasPrefix(err.Error(), "dl: system ("+lib.Path()+"): symbol ") {
			t.Errorf("Lookup(%q): message %q", symbol, err)
		}
	}
	addr, err := lib.Lookup("labs")
	if addr == 0 || err != nil {
		t.Errorf("Lookup(labs) = %#x, %v", addr, err)
	}
}

func TestRequireNamesTheVersion(t *testing.T) {
	lib := libc(t)
	if err := lib.Require("labs", "1.0"); err != nil {
		t.Errorf("Require of an exported symbol: %v", err)
	}
	err := lib.Require("no_such_function", "9.9")
	if !errors.Is(err, ErrUnsupported) {
		t.Fatalf("got %v, want ErrUnsupported", err)
	}
	if want := "dl: " + lib.String() + `: symbol "no_such_function": unsupported: needs system 9.9 or later`; err.Error() != want {
		t.Errorf("message %q, want %q", err, want)
	}
}

func TestConcurrentOpensOfOneLibraryAgree(t *testing.T) {
	want := libm(t)
	cos, err := want.Lookup("cos")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 50 {
				lib, err := Open(Search{Name: "m", Sonames: []string{"libm.so.6"}})
				if err != nil {
					t.Error(err)
					return
				}
				addr, err := lib.Lookup("cos")
				if lib.Path() != want.Path() || addr != cos || err != nil {
					t.Errorf("got %s, cos at %#x, %v; want %s, %#x", lib.Path(), addr, err, want.Path(), cos)
					return
				}
				if _, err := lib.Lookup("no_such_function"); err == nil {
					t.Error("a missing symbol was found")
				}
			}
		})
	}
	wg.Wait()
}
