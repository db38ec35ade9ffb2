// Package dltest compiles C libraries for tests of how libraries are found, called and rejected.
package dltest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/internal/dl"
)

// Require names an environment variable: at 1, a test without a C compiler fails instead of being
// skipped. CI sets it, so that it cannot be green by skipping.
const Require = "SYMGRAD_REQUIRE_CC"

// aloneVariable is set in the process of a test that Alone has started.
const aloneVariable = "SYMGRAD_TEST_DL_ALONE"

// Alone reports whether the test runs in a process of its own, where it may load libraries that
// stay loaded. Otherwise it runs the test in a new process and adopts the result.
func Alone(t testing.TB) bool {
	t.Helper()
	if os.Getenv(aloneVariable) != "" {
		return true
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), aloneVariable+"=1")
	out, err := cmd.CombinedOutput()
	switch text := string(out); {
	case err == nil && strings.Contains(text, "--- SKIP: "+t.Name()):
		t.Skipf("in a process of its own:\n%s", out)
	case err != nil || !strings.Contains(text, "--- PASS: "+t.Name()):
		t.Errorf("in a process of its own: %v\n%s", err, out)
	}
	return false
}

// Compile compiles a C file with the given compiler flags into a library named soname, and returns
// its path. Every call makes a new file, because the loader takes equal files for one. The file is
// removed with the test, but a loaded library stays.
//
// Without a compiler, or on a platform without dlopen, the test is skipped.
func Compile(t testing.TB, soname, source string, flags ...string) string {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		if os.Getenv(Require) == "1" {
			t.Fatalf("%s=1 and there is no C compiler to make %s with: %v", Require, soname, err)
		}
		t.Skipf("no C compiler to make %s with: %v", soname, err)
	}
	file := filepath.Join(t.TempDir(), soname)
	args := append([]string{"-O1", "-shared", "-fPIC", "-Wno-unused-result", "-o", file, source}, flags...)
	if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", compiler, strings.Join(args, " "), err, out)
	}
	// A missing file is opened, because a loaded library would stay.
	if _, err := dl.Open(dl.Search{Name: "absent", Override: file + ".absent"}); errors.Is(err, dl.ErrUnsupported) {
		t.Skipf("no dlopen on this platform: %v", err)
	}
	return file
}
